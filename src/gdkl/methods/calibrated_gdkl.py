"""GDKL as users get it: the fast schedule, and a noise that rows vouch for which had not been learned yet."""

from __future__ import annotations

from dataclasses import replace

from gdkl.gp import KernelFunction
from gdkl.guide import fit_guide
from gdkl.methods.data import TrainingData
from gdkl.methods.deep_kernel import DeepKernelOptions
from gdkl.methods.fitted import FittedModel
from gdkl.methods.gdkl import DEFAULT_KERNEL_RATE, DEFAULT_SPLIT_POOL, fit_gdkl, guided_noise_start
from gdkl.methods.held_out_noise import spare_rows, with_held_out_noise
from gdkl.methods.latecomers import Latecomers
from gdkl.training import Schedule


def fast_options(options: DeepKernelOptions, steps: int, learning_rate: float) -> DeepKernelOptions:
    """The library's own settings: as good as the published ones in a third of the steps."""
    schedule = Schedule.fast(steps, learning_rate)
    return replace(options, schedule=schedule, kernel_rate=DEFAULT_KERNEL_RATE, split_pool=DEFAULT_SPLIT_POOL)


def fit_calibrated_gdkl(
    data: TrainingData, kernel: KernelFunction, options: DeepKernelOptions, *, beta: float = 1.0, times: int = 1
) -> FittedModel:
    """Fit the guide and train students beside it; the noise of their predictions comes from rows they had not learned.

    Where there are many rows, some are kept from training; where there are fewer than 1000, some join it half-way.

    Args:
        data: Scaled training data of one fit or several.
        kernel: Of the guide.
        options: How the deep kernel is built and trained; its noise starts where the guide says.
        beta: Weight of the guide.
        times: Networks a fit. The model has so many members a fit: all fits once, and then all again.
    """
    kept, held_out = spare_rows(data, options.seed)
    guide = fit_guide(kernel, kept.rows, kept.targets)
    options = replace(options, noise_start=guided_noise_start(guide).repeat(times, 1))
    if held_out is not None:
        model = fit_gdkl(kept.repeat(times), guide, options, beta=beta)
        return with_held_out_noise(model, data.repeat(times), held_out.repeat(times))
    latecomers, several = Latecomers.draw(data, options.seed), data.repeat(times)
    model = fit_gdkl(several, guide, options, beta=beta, latecomers=latecomers)
    model.posterior.noise = latecomers.noise(model, several, guide)
    return model
