"""Training loops and what watches them; they do not know which method runs."""

from gdkl.training.adam import LeanAdam
from gdkl.training.callbacks import Callback, EarlyStopping, History, ProgressDisplay, StepReport, as_callbacks
from gdkl.training.checkpoint import Checkpoint
from gdkl.training.full_batch import Decay, Schedule, TrainingOutcome, descend, train_full_batch
from gdkl.training.randomness import generator_state, seeded
from gdkl.training.splits import SplitSampler

__all__ = [
    "Callback",
    "Checkpoint",
    "Decay",
    "EarlyStopping",
    "History",
    "LeanAdam",
    "ProgressDisplay",
    "Schedule",
    "SplitSampler",
    "StepReport",
    "TrainingOutcome",
    "as_callbacks",
    "descend",
    "generator_state",
    "seeded",
    "train_full_batch",
]
