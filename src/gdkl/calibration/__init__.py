"""Calibration: rows that a model has not learned, and what follows: noise, temperature, weights, settings."""

from gdkl.calibration.holdout import held_out_count, hold_out_rows, hold_out_stratified, select
from gdkl.calibration.noise import most_probable_noise
from gdkl.calibration.noise_factor import HeldOutMixture, NoiseFactor, fit_noise_factor
from gdkl.calibration.outliers import outlier_share, widened
from gdkl.calibration.stack import (
    FOLDS,
    Folds,
    draw_folds,
    fold_by_fold,
    log_density,
    mix_classes,
    share_weights,
    stack_weights,
)
from gdkl.calibration.temperature import PRIOR_DEVIATION, best_temperature
from gdkl.calibration.warp import select_warp

__all__ = [
    "FOLDS",
    "PRIOR_DEVIATION",
    "Folds",
    "HeldOutMixture",
    "NoiseFactor",
    "best_temperature",
    "draw_folds",
    "fit_noise_factor",
    "fold_by_fold",
    "held_out_count",
    "hold_out_rows",
    "hold_out_stratified",
    "log_density",
    "mix_classes",
    "most_probable_noise",
    "outlier_share",
    "select",
    "select_warp",
    "share_weights",
    "stack_weights",
    "widened",
]
