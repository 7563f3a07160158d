"""
Intervals that widen where there are no data
============================================

Noisy observations of a function, with a gap. A band must be wide in the gap and narrow on the data.
"""

# %%
# The data: sixty noisy points, none between 2 and 4.
import matplotlib.pyplot as plt
import numpy as np

from gdkl import GDKLRegressor

rng = np.random.default_rng(0)
x = np.concatenate([rng.uniform(0, 2, 30), rng.uniform(4, 6, 30)])
y = np.sin(2 * x) + 0.1 * rng.normal(size=60)

# %%
# The fit, and the distribution at new points.
model = GDKLRegressor(random_state=0).fit(x[:, None], y)
grid = np.linspace(-1, 7, 200)
q = model.predict_distribution(grid[:, None])
low, high = q.interval(0.9)

# %%
# Standard deviations of the function itself, without noise, on the data and in the gap.
latent = np.sqrt(q.latent_variance)
known, gap = (grid > 0) & (grid < 2), (grid > 2.5) & (grid < 3.5)
print(f"on the data {latent[known].mean():.2f}, in the gap {latent[gap].mean():.2f}")

# %%
figure, axes = plt.subplots(figsize=(7, 3))
axes.fill_between(grid, low, high, alpha=0.3, label="90 % interval")
axes.plot(grid, q.mean, label="mean")
axes.plot(x, y, ".k", label="observations")
axes.legend(loc="lower left", ncols=3)
figure.tight_layout()
