"""Every layer against Monte Carlo over its own finite networks, and networks from torch."""

from __future__ import annotations

import pickle
import warnings

import pytest
import torch
from oracles import CASES
from torch import Tensor, nn
from torch.nn import functional

import gdkl.infinite as inf
from gdkl.numerics import GdklWarning, OptionError

VECTORS = (3,)
IMAGES = (2, 4, 5)
WIDTH = 256
HEAD = inf.Linear(1.3, 0.2)


def conv(*args: object, **options: object) -> inf.Conv2d:
    return inf.Conv2d(*args, weight_var=1.5, bias_var=0.3, **options)


def deep(*layers: inf.InfiniteNetwork) -> inf.Sequential:
    return inf.Sequential(inf.Linear(1.5, 0.3), *layers, HEAD)


NETWORKS: dict[str, tuple[inf.Sequential, tuple[int, ...]]] = {
    "linear": (deep(inf.Identity(), inf.Linear(0.7, 0.1)), VECTORS),
    "relu": (deep(inf.ReLU()), VECTORS),
    "leaky_relu": (deep(inf.LeakyReLU(0.3)), VECTORS),
    "abrelu": (deep(inf.ABReLU(-0.5, 1.5)), VECTORS),
    "abs": (deep(inf.Abs()), VECTORS),
    "sign": (deep(inf.Sign()), VECTORS),
    "erf": (deep(inf.Erf(1.2, 0.8, 0.3)), VECTORS),
    "sigmoid_like": (deep(inf.SigmoidLike()), VECTORS),
    "gelu": (deep(inf.GELU()), VECTORS),
    "gaussian": (deep(inf.Gaussian(1.1, -0.4)), VECTORS),
    "rbf": (deep(inf.RBF(0.7)), VECTORS),
    "sin": (deep(inf.Sin(1.1, 0.9, 0.2)), VECTORS),
    "cos": (deep(inf.Cos(1.1, 0.9, 0.2)), VECTORS),
    "tanh": (deep(inf.Elementwise(torch.tanh)), VECTORS),
    "layer_norm": (deep(inf.LayerNorm(), inf.ReLU()), VECTORS),
    "dropout": (deep(inf.Dropout(0.4), inf.ReLU()), VECTORS),
    "residual": (deep(inf.Residual(inf.Sequential(inf.ReLU(), inf.Linear(1.2, 0.1))), inf.ReLU()), VECTORS),
    "conv_same": (inf.Sequential(conv(3, 2, "same"), inf.ReLU(), inf.Flatten(), HEAD), IMAGES),
    "conv_circular": (
        inf.Sequential(conv((2, 3), 1, "same", "circular"), inf.ReLU(), inf.Flatten(), HEAD),
        IMAGES,
    ),
    "conv_padded": (inf.Sequential(conv(3, padding=(1, 2)), inf.ReLU(), inf.Flatten(), HEAD), IMAGES),
    "conv_valid": (inf.Sequential(conv(2), inf.ReLU(), inf.GlobalAvgPool2d(), HEAD), IMAGES),
    "pool": (inf.Sequential(conv(3, padding=1), inf.ReLU(), inf.AvgPool2d(2), inf.Flatten(), HEAD), IMAGES),
    "pool_edges": (
        inf.Sequential(
            conv(3, padding=1),
            inf.ReLU(),
            inf.AvgPool2d(2, 2, "same", count_include_pad=False),
            inf.Flatten(),
            HEAD,
        ),
        IMAGES,
    ),
    "pixelwise": (
        inf.Sequential(inf.Linear(1.2, 0.2), inf.LayerNorm(), inf.ReLU(), inf.Flatten(), HEAD),
        IMAGES,
    ),
    "wide_resnet": (inf.Sequential(*inf.wide_resnet(1, 2.0, 0.2).layers), (2, 5, 4)),
}


@pytest.mark.parametrize("name", NETWORKS)
def test_monte_carlo(name: str):
    """The mean of f(x)f(x') over finite networks, within five standard errors and a part for finite width."""
    torch.manual_seed(0)
    net, shape = NETWORKS[name]
    x = torch.randn(4, *shape, dtype=torch.float64)
    x[3] = 0.5 * x[0]
    draws = []
    for _ in range(24 if len(shape) > 1 else 60):
        f = net.finite(WIDTH, outputs=WIDTH)(x).detach()
        # Outputs of one network are draws too: they share hidden layers, so that networks, not outputs,
        # count.
        draws.append(f @ f.T / WIDTH)
    estimates = torch.stack(draws)
    mean, error = estimates.mean(0), estimates.std(0) / len(draws) ** 0.5
    K = net.kernel(x)
    scale = K.diagonal().sqrt()
    finite_width = 1.5 / WIDTH * scale[:, None] * scale[None, :]
    assert torch.all((mean - K).abs() <= 5 * error + finite_width)
    # The test can tell: a kernel that is 15 % larger is outside.
    assert torch.any((mean - 1.15 * K).abs() > 5 * error + finite_width)


class TestFinite:
    def test_example_draws_the_weights(self):
        module = inf.mlp(2).finite(7, outputs=2, example=torch.ones(1, 3))
        assert [tuple(p.shape) for p in module.parameters() if p.ndim == 2] == [(7, 3), (7, 7), (2, 7)]

    def test_gradients_and_state(self):
        module = inf.wide_resnet(1).finite(4, example=torch.ones(1, 3, 8, 8))
        module(torch.ones(2, 3, 8, 8)).sum().backward()
        assert all(p.grad is not None for p in module.parameters())
        again = pickle.loads(pickle.dumps(module))
        assert torch.equal(again(torch.ones(1, 3, 8, 8)), module(torch.ones(1, 3, 8, 8)))

    def test_no_bias_no_parameter(self):
        module = inf.Linear(1.0, 0.0).finite(3, example=torch.ones(1, 2))
        assert [name for name, _ in module.named_parameters()] == ["weight"]

    def test_sizes(self):
        with pytest.raises(OptionError, match="width"):
            inf.mlp().finite(0)


def test_jacobian_of_the_finite_network_gives_the_ntk_when_rescaled():
    """Weights are in standard parametrisation: gradients count by the deviation that a parameter was drawn with."""
    torch.manual_seed(0)
    net, x = inf.mlp(1, weight_var=1.5, bias_var=0.3), torch.randn(3, 4, dtype=torch.float64)
    module = net.finite(4096, example=x)
    gram = torch.zeros(3, 3, dtype=torch.float64)
    for layer in (layer for layer in module.modules() if hasattr(layer, "weight_var")):
        for parameter, variance in ((layer.weight, 1.5 / layer.weight.shape[1]), (layer.bias, 0.3)):
            rows = [torch.autograd.grad(module(x)[i, 0], parameter)[0].flatten() for i in range(3)]
            J = torch.stack(rows) * variance**0.5
            gram += J @ J.T
    torch.testing.assert_close(gram, net.kernel(x, kind="ntk"), rtol=0.1, atol=0)


def test_wide_resnet_is_the_papers():
    assert inf.wide_resnet().to_spec() == CASES["wrn_n4_32x32x3_flatten"]["layers"]
    assert inf.wide_resnet(1).to_spec() == CASES["wrn_n1_32x32x3_flatten"]["layers"]
    with pytest.raises(OptionError, match="blocks"):
        inf.wide_resnet(0)


class Block(nn.Module):
    def __init__(self, i: int, o: int, stride: int):
        super().__init__()
        self.conv1 = nn.Conv2d(i, o, 3, stride, 1)
        self.conv2 = nn.Conv2d(o, o, 3, 1, 1)
        self.shortcut = nn.Conv2d(i, o, 1, stride) if stride > 1 or i != o else None

    def forward(self, x: Tensor) -> Tensor:
        out = self.conv2(functional.relu(self.conv1(torch.relu(x))))
        return out + (x if self.shortcut is None else self.shortcut(x))


class ResNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.stem = nn.Conv2d(3, 8, 3, padding=1, bias=False)
        self.blocks = nn.Sequential(Block(8, 8, 1), Block(8, 16, 2))
        self.head = nn.Linear(16, 10)

    def forward(self, x: Tensor) -> Tensor:
        x = self.blocks(self.stem(x))
        x = functional.adaptive_avg_pool2d(x.relu(), 1)
        return self.head(x.view(x.size(0), -1))


class TestFromTorch:
    def test_sequential(self):
        module = nn.Sequential(
            nn.Conv2d(3, 8, (3, 2), stride=2, padding=1, padding_mode="circular"),
            nn.LeakyReLU(0.2),
            nn.Dropout(0.1),
            nn.AvgPool2d(2, padding=1, count_include_pad=False),
            nn.GELU(),
            nn.Flatten(),
            nn.Linear(8, 4),
            nn.LayerNorm(4),
            nn.Identity(),
            nn.Linear(4, 1, bias=False),
        )
        expected = inf.Sequential(
            inf.Conv2d((3, 2), 2, 1, "circular", weight_var=2.0, bias_var=0.1),
            inf.LeakyReLU(0.2),
            inf.Dropout(0.1),
            inf.AvgPool2d(2, padding=1, count_include_pad=False),
            inf.GELU(),
            inf.Flatten(),
            inf.Linear(2.0, 0.1),
            inf.LayerNorm(),
            inf.Identity(),
            inf.Linear(2.0, 0.0),
        )
        assert inf.from_torch(module, weight_var=2.0, bias_var=0.1).to_spec() == expected.to_spec()

    def test_residual_network(self):
        net = inf.from_torch(ResNet(), weight_var=2.0, bias_var=0.1)

        def block(stride: int, shortcut: bool) -> inf.Residual:
            main = inf.Sequential(
                inf.ReLU(),
                inf.Conv2d(3, stride, 1, weight_var=2.0, bias_var=0.1),
                inf.ReLU(),
                inf.Conv2d(3, 1, 1, weight_var=2.0, bias_var=0.1),
            )
            return inf.Residual(main, inf.Conv2d(1, stride, weight_var=2.0, bias_var=0.1) if shortcut else None)

        expected = inf.Sequential(
            inf.Conv2d(3, padding=1, weight_var=2.0),
            block(1, False),
            block(2, True),
            inf.ReLU(),
            inf.GlobalAvgPool2d(),
            inf.Flatten(),
            inf.Linear(2.0, 0.1),
        )
        assert net.to_spec() == expected.to_spec()
        assert net.kernel(torch.randn(2, 3, 6, 6)).shape == (2, 2)

    def test_variances_by_layer(self):
        module = nn.Sequential(nn.Linear(3, 8), nn.Tanh(), nn.Linear(8, 1))

        def pair(layer: nn.Linear) -> tuple[float, float]:
            return float(layer.in_features), 0.5

        net = inf.from_torch(module, weight_var=pair, bias_var=pair)
        assert [layer.weight_var for layer in net.layers[::2]] == [3.0, 8.0]
        assert [layer.bias_var for layer in net.layers[::2]] == [0.5, 0.5]
        net = inf.from_torch(module, weight_var=lambda layer: layer.in_features, bias_var=0.1)
        assert [layer.weight_var for layer in net.layers[::2]] == [3.0, 8.0]

    def test_twin_of_the_finite_twin_by_sampling(self):
        torch.manual_seed(0)
        net = inf.from_torch(nn.Sequential(nn.Linear(3, 8), nn.SiLU(), nn.Linear(8, 1)), weight_var=1.5, bias_var=0.2)
        x = torch.randn(3, 3, dtype=torch.float64)
        f = net.finite(4000, outputs=4000)(x).detach()
        torch.testing.assert_close(f @ f.T / 4000, net.kernel(x), rtol=0.15, atol=0.05)

    def test_batch_norm_warns(self):
        module = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Flatten(), nn.Linear(4, 1))
        with pytest.warns(GdklWarning, match="LayerNorm"):
            net = inf.from_torch(module, weight_var=1.0, bias_var=0.0)
        assert [type(layer).__name__ for layer in net.layers] == [
            "Conv2d",
            "Identity",
            "ReLU",
            "Flatten",
            "Linear",
        ]
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            inf.from_torch(nn.Sequential(nn.Linear(3, 1)), weight_var=1.0, bias_var=0.0)

    @pytest.mark.parametrize(
        ("module", "name"),
        [
            (nn.Sequential(nn.Linear(3, 3), nn.MaxPool2d(2)), "MaxPool2d"),
            (nn.Sequential(nn.Conv2d(4, 4, 3, groups=2)), "groups"),
            (nn.Sequential(nn.Conv2d(4, 4, 3, dilation=2)), "dilation"),
            (nn.Sequential(nn.Conv2d(4, 4, 3, padding=1, padding_mode="reflect")), "reflect"),
            (nn.Sequential(nn.LSTM(3, 3)), "LSTM"),
        ],
    )
    def test_unsupported_layers_are_named(self, module: nn.Module, name: str):
        with pytest.raises(OptionError, match=name):
            inf.from_torch(module, weight_var=1.0, bias_var=0.0)

    def test_what_the_limit_cannot_be(self):
        class Shared(nn.Module):
            def __init__(self):
                super().__init__()
                self.layer = nn.Linear(3, 3)

            def forward(self, x: Tensor) -> Tensor:
                return self.layer(torch.relu(self.layer(x)))

        class Double(Shared):
            def forward(self, x: Tensor) -> Tensor:
                x = self.layer(x)
                return x + torch.relu(x)

        class Product(Shared):
            def forward(self, x: Tensor) -> Tensor:
                return self.layer(x) * x

        class Branch(Shared):
            def forward(self, x: Tensor) -> Tensor:
                return self.layer(x) if x.sum() > 0 else x

        for module, message in (
            (Shared(), "twice"),
            (Double(), "correlate"),
            (Product(), "mul"),
            (Branch(), "traced"),
        ):
            with pytest.raises(OptionError, match=message):
                inf.from_torch(module, weight_var=1.0, bias_var=0.0)
