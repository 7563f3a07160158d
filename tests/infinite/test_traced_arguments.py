"""Networks from torch: every argument counts, and what the sum of kernels does not cover is refused."""

from __future__ import annotations

import operator
import warnings
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.nn.utils.parametrizations import weight_norm

import gdkl.infinite as inf
from gdkl.nets import WideResNet
from gdkl.numerics import GdklWarning, OptionError

WEIGHT_VAR, BIAS_VAR = 1.5, 0.2
WIDTH = 512


class Net(nn.Module):
    """A forward function over layers a to e."""

    def __init__(self, forward: Callable[..., Tensor], **layers: nn.Module):
        super().__init__()
        for name, layer in layers.items():
            setattr(self, name, layer)
        self.function = forward

    def forward(self, x: Tensor) -> Tensor:
        return self.function(self, x)


def dense(forward: Callable[..., Tensor], width: int = 8) -> Net:
    sizes = {"a": (3, width), "b": (width, width), "c": (width, width), "d": (width, width)}
    return Net(
        forward,
        norm=nn.LayerNorm(width),
        **{name: nn.Linear(*size) for name, size in sizes.items()},
    )


def _added_in_place(net: Any, x: Tensor, read: str) -> Tensor:
    """A sum in place, behind which the tensor is read by its own name, or by another that it has."""
    h = other = net.a(x).relu()
    h += net.b(other)
    return net.c(h if read == "own name" else other)


def _multiplied_in_place(net: Any, x: Tensor) -> Tensor:
    h = other = net.a(x)
    h *= 2
    return net.c(other.relu())


def _added_to_its_alias(net: Any, x: Tensor) -> Tensor:
    h = net.a(x)
    other = functional.dropout(h, 0.0)
    h += net.b(x)
    return net.c(other)


def images(forward: Callable[..., Tensor], width: int = 8) -> Net:
    return Net(
        forward,
        a=nn.Conv2d(2, width, 3, padding=1),
        b=nn.Conv2d(width, width, 3, padding=1),
        d=nn.LazyLinear(width),
    )


def twin(module: nn.Module) -> inf.Sequential:
    return inf.from_torch(module, weight_var=WEIGHT_VAR, bias_var=BIAS_VAR)


def sampled(module: nn.Module, x: Tensor, draws: int = 30) -> tuple[Tensor, Tensor]:
    """Mean of f(x)f(x') over draws of the weights of the torch module itself, and its standard error."""
    module.double()(x)
    products = []
    for _ in range(draws):
        with torch.no_grad():
            for layer in module.modules():
                if isinstance(layer, nn.Linear | nn.Conv2d):
                    layer.weight.normal_(std=(WEIGHT_VAR / layer.weight[0].numel()) ** 0.5)
                    if layer.bias is not None:
                        layer.bias.normal_(std=BIAS_VAR**0.5)
            f = module(x)
        products.append(f @ f.T / f.shape[1])
    stacked = torch.stack(products)
    return stacked.mean(0), stacked.std(0) / draws**0.5


def check(build: Callable[[int], nn.Module], shape: tuple[int, ...]) -> None:
    torch.manual_seed(0)
    x = torch.randn(3, *shape, dtype=torch.float64)
    module = build(WIDTH if len(shape) == 1 else 96)
    K = twin(module).kernel(x)
    mean, error = sampled(module, x)
    scale = K.diagonal().sqrt()
    room = 5 * error + (0.01 if len(shape) == 1 else 0.03) * scale[:, None] * scale[None, :]
    assert torch.all((mean - K).abs() <= room)
    # The test can tell.
    assert torch.any((mean - 1.3 * K).abs() > room)


DENSE: dict[str, Callable[..., Tensor]] = {
    "softplus": lambda net, x: net.d(functional.softplus(net.a(x), beta=5)),
    "softplus_positional": lambda net, x: net.d(functional.softplus(net.a(x), 0.3, 30)),
    "elu": lambda net, x: net.d(functional.elu(net.a(x), alpha=3.0)),
    "celu": lambda net, x: net.d(functional.celu(net.a(x), 3.0)),
    "leaky_relu": lambda net, x: net.d(functional.leaky_relu(net.a(x), negative_slope=0.7)),
    "leaky_relu_positional": lambda net, x: net.d(functional.leaky_relu(net.a(x), 0.7)),
    "hardtanh": lambda net, x: net.d(functional.hardtanh(net.a(x), -2.0, 0.5)),
    "gelu_tanh": lambda net, x: net.d(functional.gelu(net.a(x), approximate="tanh")),
    "input_by_name": lambda net, x: net.d(functional.elu(input=net.a(x), alpha=3.0)),
    "erf": lambda net, x: net.d(torch.erf(net.a(x))),
    "norm": lambda net, x: net.d(net.norm(net.a(x)).relu()),
    "norm_function": lambda net, x: net.d(functional.layer_norm(net.a(x), (WIDTH,)).relu()),
    "norm_of_tanh": lambda net, x: net.d(net.norm(net.a(x).tanh())),
    "norm_of_sum": lambda net, x: net.d(net.norm(net.a(x) + net.b(net.a2(x).relu())).relu()),
    "shortcut_of_relu": lambda net, x: net.d((y := net.a(x).relu()) + net.b(y)),
    "shortcut_of_weights": lambda net, x: net.d((y := net.a(x)) + net.b(y).relu()),
    "odd_branches": lambda net, x: net.d(net.b(y := net.a(x).relu()).tanh() + net.c(y).relu()),
    "sum": lambda net, x: net.d(sum([net.b(y := net.a(x).relu()), net.c(y)])),
}


# Kinks are beyond quadrature, which says so; sampling is coarser still.
@pytest.mark.filterwarnings("ignore:Elementwise.*is integrated with:gdkl.numerics.NumericsWarning")
@pytest.mark.parametrize("name", DENSE)
def test_vectors_by_sampling(name: str):
    def build(width: int) -> nn.Module:
        net = dense(DENSE[name], width)
        net.a2 = nn.Linear(3, width)
        return net

    check(build, (3,))


MODULES = [
    nn.Softplus(beta=5),
    nn.ELU(alpha=3.0, inplace=True),
    nn.Hardtanh(-2.0, 0.5, inplace=True),
    nn.CELU(3.0),
    nn.LeakyReLU(0.7),
    nn.SiLU(inplace=True),
    nn.GELU("tanh"),
]


# Kinks are beyond quadrature, which says so; sampling is coarser still.
@pytest.mark.filterwarnings("ignore:Elementwise.*is integrated with:gdkl.numerics.NumericsWarning")
@pytest.mark.parametrize("activation", MODULES, ids=repr)
def test_attributes_of_modules_by_sampling(activation: nn.Module):
    check(lambda width: nn.Sequential(nn.Linear(3, width), activation, nn.Linear(width, width)), (3,))
    # The slope of a function that works in place is a slope too.
    net = twin(nn.Sequential(nn.Linear(3, 3), activation, nn.Linear(3, 1)))
    assert torch.isfinite(net.kernel(torch.ones(1, 3, dtype=torch.float64), kind="ntk")).all()


IMAGES: dict[str, Callable[..., Tensor]] = {
    "pool": lambda net, x: net.d(functional.avg_pool2d(net.a(x).relu(), 3, 2, 1, False, False).flatten(1)),
    "pool_by_name": lambda net, x: net.d(
        functional.avg_pool2d(net.a(x).relu(), kernel_size=3, padding=1, stride=2).flatten(start_dim=1)
    ),
    "view": lambda net, x: net.d((y := net.a(x).relu()).view(y.shape[0], -1)),
    "mean": lambda net, x: net.d(net.a(x).relu().mean((2, 3))),
    "norm_of_flat": lambda net, x: net.d(functional.layer_norm(torch.flatten(net.a(x), 1), [96 * 20]).relu()),
}


@pytest.mark.parametrize("name", IMAGES)
def test_images_by_sampling(name: str):
    check(lambda width: images(IMAGES[name], width), (2, 4, 5))


REFUSED_DENSE: dict[str, tuple[Callable[..., Tensor], str]] = {
    "alpha": (lambda net, x: torch.add(y := net.a(x), net.b(y), alpha=3.0), "add.*alpha=3.0"),
    "alpha_method": (lambda net, x: (y := net.a(x)).add(net.b(y), alpha=3.0), "add.*alpha=3.0"),
    "unknown_argument": (lambda net, x: net.a(x).relu(other=3), "relu.*other=3"),
    "too_many": (lambda net, x: net.a(x).tanh(3), "tanh.*3"),
    "flatten_end": (lambda net, x: torch.flatten(x, 1, 2), "flatten.*end_dim=2"),
    "flatten_all": (lambda net, x: torch.flatten(x), "flatten.*start_dim=0"),
    "view_of_batch": (lambda net, x: net.a(x.view(x.size(1), -1)), "view"),
    "view_of_number": (lambda net, x: net.a(x.view(1, -1)), "view"),
    "mean_type": (lambda net, x: x.mean((2, 3), dtype=torch.float64), "mean.*dtype"),
    "constant": (lambda net, x: net.a(x) + 1, "constant"),
    "constant_left": (lambda net, x: 1 + net.a(x), "constant"),
    "size": (lambda net, x: net.a(x) + x.size(0), "constant"),
    "slice": (lambda net, x: net.a(x)[:, :2], "getitem"),
    "same_twice": (lambda net, x: (y := net.a(x)) + y, "correlate"),
    "norm_of_relu": (lambda net, x: net.d(net.norm(net.a(x).relu())), "norm.*mean"),
    "norm_of_input": (lambda net, x: net.norm(x), "norm.*mean"),
    "norm_of_shortcut": (lambda net, x: net.norm((y := net.a(x).relu()) + net.b(y)), "norm.*mean"),
    "norm_axes": (lambda net, x: functional.layer_norm(net.a(x), (4, 8)), "layer_norm.*one axis"),
    "two_relus": (lambda net, x: (y := net.a(x).relu()) + net.b(y).relu(), "branch but one.*weights"),
    "two_branches": (lambda net, x: net.b(y := net.a(x)).relu() + net.c(y).relu(), "branch but one"),
    "raw_and_relu": (lambda net, x: x + net.a(x).relu(), "branch but one"),
    "no_weights_between": (lambda net, x: (y := net.a(x)) + y.tanh(), "branch but one"),
    "shortcut_twice": (lambda net, x: ((y := net.a(x)) + net.b(y)) + y, "branch but one"),
    "overwritten": (lambda net, x: net.b(functional.relu(y := net.a(x), inplace=True)) + y, "in place"),
    "overwritten_positional": (lambda net, x: net.b(functional.relu(y := net.a(x), True)) + y, "in place"),
    "overwritten_by_addition": (lambda net, x: _added_in_place(net, x, "another"), "in place.*a = a [+] b"),
    "overwritten_through_dropout": (_added_to_its_alias, "in place"),
    "overwritten_by_multiplication": (_multiplied_in_place, "in place"),
    "overwritten_method": (lambda net, x: net.b((y := net.a(x)).relu_()) + y, "in place"),
    "linear_then_flatten": (lambda net, x: net.b(net.a(x).flatten(1)), "flatten before"),
    "gelu": (lambda net, x: functional.gelu(net.a(x), approximate="erf"), "gelu.*approximate='erf'"),
    "foreign": (lambda net, x: operator.mul(net.a(x), 2), "mul"),
}


@pytest.mark.parametrize("name", REFUSED_DENSE)
def test_refused_on_vectors(name: str):
    forward, message = REFUSED_DENSE[name]
    with pytest.raises(OptionError, match=message):
        twin(dense(forward))


REFUSED_IMAGES: dict[str, tuple[Callable[..., Tensor], str]] = {
    "ceil_mode": (lambda net, x: functional.avg_pool2d(net.a(x), 2, ceil_mode=True), "ceil_mode=True"),
    "ceil_mode_positional": (
        lambda net, x: functional.avg_pool2d(net.a(x), 2, 2, 0, True),
        "ceil_mode=True",
    ),
    "divisor": (
        lambda net, x: functional.avg_pool2d(net.a(x), 2, divisor_override=3),
        "divisor_override=3",
    ),
    "adaptive": (lambda net, x: functional.adaptive_avg_pool2d(net.a(x), 2), "output_size=2"),
    "linear": (lambda net, x: net.d(net.a(x).relu()), "flatten"),
    "linear_on_pooled": (lambda net, x: net.d(net.a(x).relu().mean((2, 3), keepdim=True)), "flatten"),
    "norm": (lambda net, x: functional.layer_norm(net.a(x), (5,)), "last axis"),
    "conv_on_vectors": (lambda net, x: net.b(net.a(x).flatten(1)), "images"),
    "shapes": (lambda net, x: net.b(y := net.a(x)) + y.mean((2, 3), keepdim=True), "shapes"),
}


@pytest.mark.parametrize("name", REFUSED_IMAGES)
def test_refused_on_images(name: str):
    forward, message = REFUSED_IMAGES[name]
    with pytest.raises(OptionError, match=message):
        twin(images(forward))


@pytest.mark.parametrize(
    ("layer", "message"),
    [
        (nn.AvgPool2d(2, ceil_mode=True), "ceil_mode=True"),
        (nn.AvgPool2d(2, divisor_override=3), "divisor_override=3"),
        (nn.Flatten(1, 2), "end_dim=2"),
        (nn.AdaptiveAvgPool2d(2), "output_size=2"),
        (nn.LayerNorm((4, 5)), "one axis"),
    ],
    ids=repr,
)
def test_refused_attributes(layer: nn.Module, message: str):
    with pytest.raises(OptionError, match=message):
        twin(nn.Sequential(nn.Conv2d(2, 4, 3), layer))


class TestWhatIsNotANetwork:
    @pytest.mark.parametrize("argument", [torch.erf, None, [nn.Linear(3, 3)]])
    def test_no_module(self, argument: object):
        with pytest.raises(OptionError, match=r"nn\.Module"):
            twin(argument)  # pyright: ignore[reportArgumentType]

    def test_tied_weights(self):
        net = nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 4))
        net[2].weight = net[0].weight
        with pytest.raises(OptionError, match="'0' and '2' share weights"):
            twin(net)

    def test_parametrized_weights(self):
        with pytest.raises(OptionError, match="parametrized"):
            twin(nn.Sequential(weight_norm(nn.Linear(4, 4))))

    def test_a_parameter_of_its_own(self):
        net = dense(lambda net, x: net.a(x) + net.offset)
        net.offset = nn.Parameter(torch.ones(8))
        with pytest.raises(OptionError, match="'offset'"):
            twin(net)

    def test_a_layer_that_computes_something_else(self):
        class Doubled(nn.Linear):
            def forward(self, input: Tensor) -> Tensor:
                return 2 * super().forward(input)

        with pytest.raises(OptionError, match="weight"):
            twin(nn.Sequential(Doubled(3, 3)))


class TestVariances:
    net = nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 1, bias=False))

    @pytest.mark.parametrize("wrong", [None, "1", True, -1.0, float("nan"), (1.0, 2.0, 3.0), lambda _: None])
    def test_what_is_no_variance_is_refused(self, wrong: Any):
        with pytest.raises(OptionError, match="weight_var must"):
            inf.from_torch(self.net, weight_var=wrong, bias_var=0.1)
        with pytest.raises(OptionError, match="bias_var must"):
            inf.from_torch(self.net, weight_var=1.0, bias_var=wrong)

    def test_pairs_count_whole_or_are_refused(self):
        def pair(layer: nn.Module) -> tuple[float, float]:
            return (2.0, 0.3)

        expected = inf.Sequential(inf.Linear(2.0, 0.3), inf.ReLU(), inf.Linear(2.0)).to_spec()
        assert inf.from_torch(self.net, weight_var=pair, bias_var=pair).to_spec() == expected
        assert inf.from_torch(self.net, weight_var=pair, bias_var=0.3).to_spec() == expected
        with pytest.raises(OptionError, match=r"weight_var gives the pair.*'0'"):
            inf.from_torch(self.net, weight_var=pair, bias_var=0.2)
        with pytest.raises(OptionError, match=r"bias_var gives the pair.*'0'"):
            inf.from_torch(self.net, weight_var=lambda _: 1.0, bias_var=pair)


def test_a_sum_in_place_is_a_sum():
    plain = dense(lambda net, x: net.c((h := net.a(x).relu()) + net.b(h)))
    assert twin(dense(lambda net, x: _added_in_place(net, x, "own name"))).to_spec() == twin(plain).to_spec()


class TestSingleLayers:
    def test_linear(self):
        assert twin(nn.Linear(4, 4)).to_spec() == inf.Linear(WEIGHT_VAR, BIAS_VAR).to_spec()

    def test_activation(self):
        assert twin(nn.ReLU()).to_spec() == inf.ReLU().to_spec()

    def test_convolution(self):
        net = twin(nn.Conv2d(2, 2, 3, bias=False))
        assert net.to_spec() == inf.Conv2d(3, weight_var=WEIGHT_VAR).to_spec()
        with pytest.raises(OptionError, match="dilation"):
            twin(nn.Conv2d(2, 2, 3, dilation=2))

    def test_erf(self):
        net = twin(dense(lambda net, x: net.d(torch.special.erf(net.b(net.a(x).erf())))))
        assert [type(layer) for layer in net.layers] == [inf.Linear, inf.Erf] * 2 + [inf.Linear]


class TestResidual:
    @pytest.mark.parametrize("last", [inf.ReLU(), inf.GELU(), inf.SigmoidLike(), inf.Cos(), inf.Abs()], ids=repr)
    def test_two_means(self, last: inf.InfiniteNetwork):
        branch = inf.Sequential(inf.Linear(), last, inf.Dropout(0.1))
        other = inf.Sequential(inf.Linear(), inf.ReLU(), inf.LayerNorm())
        with pytest.raises(OptionError, match="correlate"):
            inf.Residual(branch, other)
        with pytest.raises(OptionError, match="correlate"):
            inf.Residual(inf.Residual(branch), other)

    def test_what_may_be_right(self):
        branch = inf.Sequential(inf.Linear(), inf.ReLU())
        for other in (
            None,
            inf.Linear(),
            inf.Sequential(branch, inf.Linear()),
            inf.Sequential(inf.Linear(), inf.Erf()),
            inf.Sequential(branch, inf.Residual(branch, inf.Linear()), inf.Conv2d(1)),
        ):
            inf.Residual(branch, other)
            inf.Residual(other or inf.Identity(), branch)


@pytest.mark.parametrize(
    "module",
    [
        nn.Sequential(nn.ReLU(), nn.Linear(3, 1)),
        nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Dropout(0.1), nn.GELU(), nn.Linear(4, 1)),
    ],
    ids=["raw", "twice"],
)
def test_an_activation_on_what_is_not_gaussian_is_told(module: nn.Module):
    with pytest.warns(GdklWarning, match="takes what comes in as Gaussian"):
        inf.from_torch(module, weight_var=1.0, bias_var=0.1)


def test_activations_behind_weights_are_not_told():
    module = nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 4), nn.Dropout(0.1), nn.GELU(), nn.Linear(4, 1))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        inf.from_torch(module, weight_var=1.0, bias_var=0.1)


@pytest.mark.parametrize("main", [inf.ReLU(), inf.Identity(), inf.AvgPool2d(2), inf.Residual(inf.Linear())])
def test_branches_without_weights_are_refused(main: inf.InfiniteNetwork):
    with pytest.raises(OptionError, match="weights of its own"):
        inf.Residual(main)


class _PreActivationBlock(nn.Module):
    """Batch norm and functional ReLU come first; the shortcut starts on either side of them."""

    def __init__(self, channels: int, out: int, stride: int):
        super().__init__()
        self.norm1, self.norm2 = nn.BatchNorm2d(channels), nn.BatchNorm2d(out)
        self.conv1 = nn.Conv2d(channels, out, 3, stride, 1, bias=False)
        self.conv2 = nn.Conv2d(out, out, 3, 1, 1, bias=False)
        self.dropout = nn.Dropout(0.3)
        self.shortcut = nn.Conv2d(channels, out, 1, stride, bias=False) if channels != out else None

    def forward(self, x: Tensor) -> Tensor:
        active = functional.relu(self.norm1(x))
        beside = x if self.shortcut is None else self.shortcut(active)
        return self.conv2(self.dropout(functional.relu(self.norm2(self.conv1(active))))) + beside


class _PreActivationNet(nn.Module):
    def __init__(self, pooling: Callable[[Tensor], Tensor]):
        super().__init__()
        self.stem = nn.Conv2d(3, 4, 3, 1, 1, bias=False)
        self.blocks = nn.Sequential(_PreActivationBlock(4, 8, 2), _PreActivationBlock(8, 8, 1))
        self.pooling = pooling

    def forward(self, x: Tensor) -> Tensor:
        return self.pooling(functional.relu(self.blocks(self.stem(x))))


@pytest.mark.parametrize(
    "pooling",
    [
        lambda x: x.mean((2, 3)),
        lambda x: functional.adaptive_avg_pool2d(x, 1).flatten(1),
        lambda x: functional.avg_pool2d(x, 2).flatten(1),
    ],
    ids=["mean", "adaptive", "average"],
)
def test_pre_activation_residual_networks(pooling: Callable[[Tensor], Tensor]):
    with pytest.warns(GdklWarning, match=r"'blocks.0.norm1' \(and 3 more\) counts as the identity") as told:
        net = inf.from_torch(_PreActivationNet(pooling), weight_var=2.0, bias_var=0.1)
    assert len(told) == 1
    block = [inf.Conv2d(3, 1, 1, weight_var=2.0), inf.ReLU(), inf.Conv2d(3, 1, 1, weight_var=2.0)]
    first = [inf.Conv2d(3, 2, 1, weight_var=2.0), *block[1:]]
    by_hand = inf.Sequential(
        inf.Conv2d(3, 1, 1, weight_var=2.0),
        inf.ReLU(),
        inf.Residual(inf.Sequential(*first), inf.Conv2d(1, 2, weight_var=2.0)),
        inf.Residual(inf.Sequential(inf.ReLU(), *block)),
        inf.ReLU(),
        inf.GlobalAvgPool2d(),
    )
    x = torch.randn(3, 3, 4, 4, dtype=torch.float64)
    torch.testing.assert_close(net.kernel(x), by_hand.kernel(x), rtol=1e-12, atol=0)


def test_our_own_wide_resnet_has_an_infinite_twin():
    with pytest.warns(GdklWarning, match=r"and 24 more"):
        net = inf.from_torch(WideResNet(28, 5, 0.3), weight_var=2.0, bias_var=0.1)
    assert inf.from_spec(net.to_spec()).to_spec() == net.to_spec()
    images = torch.randn(3, 3, 8, 8, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    with pytest.warns(GdklWarning):
        small = inf.from_torch(WideResNet(10, 1, 0.0), weight_var=2.0, bias_var=0.1)
    K = small.kernel(images)
    assert bool((torch.linalg.eigvalsh(K) > 0).all())
    torch.testing.assert_close(K.diagonal(), small.diagonal(images), rtol=1e-12, atol=0)


def test_a_change_to_whole_numbers_has_no_twin():
    class Rounds(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = nn.Linear(3, 2)

        def forward(self, x):
            return self.layer(x).to(torch.int64)

    with pytest.raises(OptionError, match=r"only \.to\(dtype\) of a floating-point precision"):
        inf.from_torch(Rounds(), weight_var=1.0, bias_var=0.0)
