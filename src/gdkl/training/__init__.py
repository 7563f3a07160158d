"""Students, steps and the training loop; it does not know which method runs."""

from gdkl.training.batches import (
    ALONE,
    ArrayBatches,
    Batch,
    BatchSource,
    LoaderBatches,
    NumberedBatches,
    TensorBatches,
    World,
    as_pair,
    check_batch_size,
    step_generator,
)
from gdkl.training.build import (
    batch_kernel,
    build_deep_kernel,
    build_network_with_head,
    build_sparse_deep_kernel,
    check_kernel,
    training_features,
)
from gdkl.training.callbacks import Callback, EarlyStopping, History, KeepOnInterrupt, StepReport, as_callbacks
from gdkl.training.checkpoint import Checkpoint, CheckpointWarning, RunCheckpoint
from gdkl.training.coded import CodedModel
from gdkl.training.cost import Problem, check_cost, prefers_exact
from gdkl.training.data import ClassData, TrainingData
from gdkl.training.dispatch import CallbackDispatcher, TrainingOutcome
from gdkl.training.distributed import current_world, local_device, process_group
from gdkl.training.evidence import REFUSED, KernelAndNoise, maximise_evidence
from gdkl.training.fit import condition_untrained, fit_exact, fit_network, fit_sparse
from gdkl.training.fitted import (
    MOST_LOG_FACTOR,
    OUTLIER_VARIANCE,
    FittedModel,
    FittedNetwork,
    Stack,
    relevance_model,
)
from gdkl.training.gaussian_network import GaussianNetwork
from gdkl.training.graphs import GraphedStep
from gdkl.training.guided_splits import GuidedSplits, SplitInputs
from gdkl.training.image_batches import ImageBatches
from gdkl.training.loop import make_optimiser, train
from gdkl.training.options import StudentOptions
from gdkl.training.prefetch import Prefetcher
from gdkl.training.progress import EpochProgress, ProgressDisplay
from gdkl.training.randomness import OwnRandomNumbers, seeded
from gdkl.training.schedule import Decay, Schedule
from gdkl.training.splits import SplitSampler
from gdkl.training.step import AutogradStep, Step, ThreadedStep
from gdkl.training.student import MATRIX_NAME, DeepKernel, HeldOut, SparseDeepKernel

__all__ = [
    "ALONE",
    "MATRIX_NAME",
    "MOST_LOG_FACTOR",
    "OUTLIER_VARIANCE",
    "REFUSED",
    "ArrayBatches",
    "AutogradStep",
    "Batch",
    "BatchSource",
    "Callback",
    "CallbackDispatcher",
    "Checkpoint",
    "CheckpointWarning",
    "ClassData",
    "CodedModel",
    "Decay",
    "DeepKernel",
    "EarlyStopping",
    "EpochProgress",
    "FittedModel",
    "FittedNetwork",
    "GaussianNetwork",
    "GraphedStep",
    "GuidedSplits",
    "HeldOut",
    "History",
    "ImageBatches",
    "KeepOnInterrupt",
    "KernelAndNoise",
    "LoaderBatches",
    "NumberedBatches",
    "OwnRandomNumbers",
    "Prefetcher",
    "Problem",
    "ProgressDisplay",
    "RunCheckpoint",
    "Schedule",
    "SparseDeepKernel",
    "SplitInputs",
    "SplitSampler",
    "Stack",
    "Step",
    "StepReport",
    "StudentOptions",
    "TensorBatches",
    "ThreadedStep",
    "TrainingData",
    "TrainingOutcome",
    "World",
    "as_callbacks",
    "as_pair",
    "batch_kernel",
    "build_deep_kernel",
    "build_network_with_head",
    "build_sparse_deep_kernel",
    "check_batch_size",
    "check_cost",
    "check_kernel",
    "condition_untrained",
    "current_world",
    "fit_exact",
    "fit_network",
    "fit_sparse",
    "local_device",
    "make_optimiser",
    "maximise_evidence",
    "prefers_exact",
    "process_group",
    "relevance_model",
    "seeded",
    "step_generator",
    "train",
    "training_features",
]
