"""
Noise that depends on the inputs
================================

Where held-out rows show that the noise varies, `GDKLRegressor` lets the width of its intervals follow it.
"""

# %%
# Noise that rises threefold along the first column.
import matplotlib.pyplot as plt
import numpy as np

from gdkl import GDKLRegressor

rng = np.random.default_rng(0)
X = rng.uniform(-1, 1, (300, 2))
deviation = 0.2 + 0.2 * (X[:, 0] + 1)
y = np.sin(3 * X[:, 1]) + deviation * rng.normal(size=300)

# %%
# The predicted standard deviation beside the true one.
model = GDKLRegressor(random_state=0).fit(X, y)
grid = np.column_stack([np.linspace(-1, 1, 50), np.zeros(50)])
_, std = model.predict(grid, return_std=True)
truth = 0.2 + 0.2 * (grid[:, 0] + 1)
print(f"correlation with the true noise: {np.corrcoef(std, truth)[0, 1]:.2f}")

# %%
figure, axes = plt.subplots(figsize=(7, 3))
axes.plot(grid[:, 0], truth, label="true noise")
axes.plot(grid[:, 0], std, label="predicted standard deviation")
axes.set_xlabel("first column")
axes.legend()
figure.tight_layout()
