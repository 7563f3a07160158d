"""Training loops and what watches them; they do not know which method runs."""

from gdkl.training.adam import LeanAdam
from gdkl.training.ahead import Ahead
from gdkl.training.batches import (
    ALONE,
    ArrayBatches,
    Batch,
    BatchSource,
    LoaderBatches,
    TensorBatches,
    World,
    as_pair,
    check_batch_size,
    step_generator,
)
from gdkl.training.callbacks import Callback, EarlyStopping, History, ProgressDisplay, StepReport, as_callbacks
from gdkl.training.checkpoint import Checkpoint
from gdkl.training.distributed import local_device, process_group
from gdkl.training.full_batch import descend, train_full_batch
from gdkl.training.graphs import GraphedStep
from gdkl.training.image_batches import ImageBatches
from gdkl.training.mini_batch import EpochProgress, MiniBatchSettings, train_mini_batch
from gdkl.training.randomness import OwnRandomNumbers, generator_state, seeded
from gdkl.training.rotation import CheckpointWarning, RotatingCheckpoint
from gdkl.training.run import TrainingOutcome
from gdkl.training.schedule import Decay, Schedule
from gdkl.training.splits import SplitSampler

__all__ = [
    "ALONE",
    "Ahead",
    "ArrayBatches",
    "Batch",
    "BatchSource",
    "Callback",
    "Checkpoint",
    "CheckpointWarning",
    "Decay",
    "EarlyStopping",
    "EpochProgress",
    "GraphedStep",
    "History",
    "ImageBatches",
    "LeanAdam",
    "LoaderBatches",
    "MiniBatchSettings",
    "OwnRandomNumbers",
    "ProgressDisplay",
    "RotatingCheckpoint",
    "Schedule",
    "SplitSampler",
    "StepReport",
    "TensorBatches",
    "TrainingOutcome",
    "World",
    "as_callbacks",
    "as_pair",
    "check_batch_size",
    "descend",
    "generator_state",
    "local_device",
    "process_group",
    "seeded",
    "step_generator",
    "train_full_batch",
    "train_mini_batch",
]
