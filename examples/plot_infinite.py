"""
An infinitely wide network beside a wide one
============================================

`gdkl.infinite` computes covariances of infinitely wide networks. The same specification makes a finite torch network,
whose outputs have that covariance at random weights.
"""

# %%
# One network, two uses.
import torch

from gdkl import infinite

net = infinite.Sequential(
    infinite.Linear(weight_var=1.6, bias_var=0.2),
    infinite.ReLU(),
    infinite.Linear(weight_var=1.6, bias_var=0.2),
)
x = torch.linspace(-2, 2, 5, dtype=torch.float64)[:, None]
exact = net.kernel(x)

# %%
# Two thousand random networks of width 200: their covariance is the kernel up to sampling error.
torch.manual_seed(0)
draws = torch.stack([net.finite(200)(x.float()).detach()[:, 0] for _ in range(2000)]).double()
sampled = draws.T @ draws / len(draws)
print(f"largest difference: {float((sampled - exact).abs().max()):.2f} of {float(exact.max()):.2f}")
