"""GDKL with noise calibrated on held-out rows: guide + deep kernel + guided objective + holdout."""

from __future__ import annotations

from dataclasses import replace

from gdkl.calibration import DelayedHoldout, condition_with_noise, held_out_count, hold_out_rows
from gdkl.gp import KernelFunction
from gdkl.guide import fit_guide
from gdkl.methods.gdkl import fit_gdkl, guided_noise_start
from gdkl.training import DelayedRows, FittedModel, StudentOptions, TrainingData


def fit_calibrated_gdkl(
    data: TrainingData,
    kernel: KernelFunction,
    options: StudentOptions,
    *,
    beta: float = 1.0,
    times: int = 1,
    start_at_guide: bool = True,
) -> FittedModel:
    """Fit the guide and train students beside it; rows that they have not learned set the noise of predictions.

    Where there are many rows, some are held out from training; where there are fewer than 1000, some join it half-way.

    Args:
        data: Scaled training data of one fit or several.
        kernel: Of the guide.
        options: How the deep kernel is built and trained.
        beta: Weight of the guide.
        times: Networks per fit. The model has so many members per fit: all fits once, and then all again.
        start_at_guide: Whether the noise starts at the guide's, or where the options say.
    """
    count = held_out_count(data.n, exact=True)
    held_out, used = hold_out_rows(data.n, count, options.seed)
    kept = data.take(used) if count else data
    guide = fit_guide(kernel, kept.rows, kept.targets)
    if start_at_guide:
        options = replace(options, noise_start=guided_noise_start(guide).repeat(times, 1))
    if count:
        model = fit_gdkl(kept.repeat(times), guide, options, beta=beta)
        return condition_with_noise(model, data.repeat(times), data.take(held_out).repeat(times))
    holdout, several = DelayedHoldout.draw(data, options.seed), data.repeat(times)
    delayed = DelayedRows(
        holdout.join_step(options.schedule.n_iter),
        holdout.others,
        lambda student: holdout.errors(several, student.network, student.kernel, student.noise()),
    )
    model = fit_gdkl(several, guide, options, beta=beta, delayed=delayed if len(holdout.held_out) else None)
    model.predictive_noise = holdout.noise(model, several, guide, delayed.measured)
    return model
