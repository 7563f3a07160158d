"""The guide: a frozen Gaussian process whose posterior regularises the student's."""

from gdkl.guide.class_relevance import fit_class_relevance, fit_site_guide
from gdkl.guide.evidence import fit_by_evidence, informative
from gdkl.guide.fit import fit_class_guide, fit_guide, subset_size
from gdkl.guide.grams import PrecomputedGram
from gdkl.guide.guide import MATRIX_NAME, Guide
from gdkl.guide.kernels import (
    GuideKernel,
    InfiniteKernelFunction,
    ScaledColumns,
    as_kernel_function,
    image_kernel_function,
)
from gdkl.guide.laplace import class_sites
from gdkl.guide.relevance import MOST_ROWS, RelevanceFit, fit_relevance, fit_relevance_folds
from gdkl.guide.search import image_guides, search_guides, table_guides

__all__ = [
    "MATRIX_NAME",
    "MOST_ROWS",
    "Guide",
    "GuideKernel",
    "InfiniteKernelFunction",
    "PrecomputedGram",
    "RelevanceFit",
    "ScaledColumns",
    "as_kernel_function",
    "class_sites",
    "fit_by_evidence",
    "fit_class_guide",
    "fit_class_relevance",
    "fit_guide",
    "fit_relevance",
    "fit_relevance_folds",
    "fit_site_guide",
    "image_guides",
    "image_kernel_function",
    "informative",
    "search_guides",
    "subset_size",
    "table_guides",
]
