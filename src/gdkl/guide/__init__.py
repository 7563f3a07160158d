"""The guide: an honest Gaussian process that the student is trained to agree with, once labels are seen."""

from gdkl.guide.batch import (
    BatchGuide,
    ClassBatchGuide,
    GramSource,
    OnlineGram,
    PrecomputedGram,
    fit_batch_guide,
    fit_class_batch_guide,
    subset_size,
)
from gdkl.guide.classes import STUDENT_MULTIPLE, BothWays, ClassGuide, fit_class_guide
from gdkl.guide.context import ClassContextGuide, ContextGuide, ask_class_contexts, ask_contexts
from gdkl.guide.evidence import EvidenceFit, fit_by_evidence
from gdkl.guide.guide import Guide, fit_guide
from gdkl.guide.images import image_kernel_function, takes_images
from gdkl.guide.kernels import GuideKernel, as_kernel_function
from gdkl.guide.search import Trial, image_guides, search_guides, table_guides

__all__ = [
    "STUDENT_MULTIPLE",
    "BatchGuide",
    "BothWays",
    "ClassBatchGuide",
    "ClassContextGuide",
    "ClassGuide",
    "ContextGuide",
    "EvidenceFit",
    "GramSource",
    "Guide",
    "GuideKernel",
    "OnlineGram",
    "PrecomputedGram",
    "Trial",
    "as_kernel_function",
    "ask_class_contexts",
    "ask_contexts",
    "fit_batch_guide",
    "fit_by_evidence",
    "fit_class_batch_guide",
    "fit_class_guide",
    "fit_guide",
    "image_guides",
    "image_kernel_function",
    "search_guides",
    "subset_size",
    "table_guides",
    "takes_images",
]
