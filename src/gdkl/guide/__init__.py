"""The guide: an honest Gaussian process that the student is trained to agree with, once labels are seen."""

from gdkl.guide.evidence import EvidenceFit, fit_by_evidence
from gdkl.guide.guide import Guide, fit_guide
from gdkl.guide.kernels import GuideKernel, as_kernel_function

__all__ = ["EvidenceFit", "Guide", "GuideKernel", "as_kernel_function", "fit_by_evidence", "fit_guide"]
