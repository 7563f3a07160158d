"""Draw the picture of docs/infinite.md.

python docs/pictures/infinite.py
"""

from __future__ import annotations

import math
from pathlib import Path

import matplotlib as mpl
import torch

mpl.use("Agg")
import matplotlib.pyplot as plt

import gdkl.infinite as inf

IMAGES = Path(__file__).parent.parent / "images"


def kernel_against_angle() -> None:
    """Correlation of the outputs for two inputs of one length, by the angle between them and the depth."""
    angles = torch.linspace(0, math.pi, 181, dtype=torch.float64)
    x = torch.stack([angles.cos(), angles.sin()], dim=1) * math.sqrt(2)
    figure, axes = plt.subplots(1, 2, figsize=(9, 3.4), sharey=True)
    for axis, kind, title in zip(axes, ("nngp", "ntk"), ("NNGP", "NTK"), strict=True):
        for depth in range(1, 7):
            K = inf.mlp(hidden_layers=depth, weight_var=2.0, bias_var=0.0).kernel(x[:1], x, kind=kind)[0]
            colour = plt.get_cmap("viridis")((depth - 1) / 6)
            axis.plot(angles.rad2deg(), K / K[0], color=colour, label=f"{depth}")
        axis.set(title=f"{title} of ReLU networks", xlabel="angle between the inputs, degrees", xlim=(0, 180))
        axis.set_xticks(range(0, 181, 45))
        axis.grid(alpha=0.3)
    axes[0].set_ylabel("K(angle) / K(0)")
    axes[0].legend(title="hidden layers", ncols=2, frameon=False)
    figure.tight_layout()
    figure.savefig(IMAGES / "infinite_depth.png", dpi=130)


if __name__ == "__main__":
    kernel_against_angle()
