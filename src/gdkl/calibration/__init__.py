"""Calibration: rows that a model has not learned, and what follows from them (noise, temperature, settings)."""

from gdkl.calibration.holdout import held_out_count, hold_out_rows, hold_out_stratified, select
from gdkl.calibration.noise import DelayedHoldout, condition_with_noise, most_probable_noise
from gdkl.calibration.temperature import best_temperature

__all__ = [
    "DelayedHoldout",
    "best_temperature",
    "condition_with_noise",
    "held_out_count",
    "hold_out_rows",
    "hold_out_stratified",
    "most_probable_noise",
    "select",
]
