"""The guide: a frozen Gaussian process whose posterior regularises the student's."""

from gdkl.guide.evidence import EvidenceFit, fit_by_evidence
from gdkl.guide.fit import fit_class_guide, fit_guide, fixed_class_guide, subset_size
from gdkl.guide.grams import GramSource, PrecomputedGram
from gdkl.guide.guide import Guide
from gdkl.guide.kernels import GuideKernel, as_kernel_function, image_kernel_function, takes_images
from gdkl.guide.search import Trial, image_guides, search_guides, table_guides

__all__ = [
    "EvidenceFit",
    "GramSource",
    "Guide",
    "GuideKernel",
    "PrecomputedGram",
    "Trial",
    "as_kernel_function",
    "fit_by_evidence",
    "fit_class_guide",
    "fit_guide",
    "fixed_class_guide",
    "image_guides",
    "image_kernel_function",
    "search_guides",
    "subset_size",
    "table_guides",
    "takes_images",
]
