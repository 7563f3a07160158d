"""The compiler of networks without a GPU: programs, the emulator that runs them, texts, files, the engine."""

from __future__ import annotations

import contextlib
import random
import re
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from architectures import architecture, error, images
from emulated import EmulatedKernel, emulate
from hypothesis import given, settings
from hypothesis import strategies as st
from oracles import CASES, arrays, inputs

import gdkl.infinite as inf
from gdkl.infinite.engines import engine_for
from gdkl.infinite.fused import compile as compiler
from gdkl.infinite.fused.engine import CompiledEngine
from gdkl.infinite.fused.lower import LaneProgram, Repeat, flat, lower
from gdkl.infinite.fused.source import write
from gdkl.infinite.gram import Work
from gdkl.infinite.program import Apply, Convolve, UnsupportedError

TOLERANCE = {torch.float32: 2e-6, torch.float64: 1e-12}
FAMILIES = {"relu", "leaky_relu", "abrelu", "erf", "sigmoid_like"}


def names_of(layers: list[dict]) -> set[str]:
    found = set()
    for layer in layers:
        if layer["op"] == "residual":
            found |= names_of(layer["main"]) | names_of(layer["shortcut"])
        else:
            found.add(layer.get("name", layer["op"]))
    return found


def is_wanted(case: dict) -> bool:
    """Images read out by flatten, without pooling, with activations of the families that are compiled."""
    names = names_of(case["layers"])
    activations = names - {"conv", "dense", "flatten", "layer_norm"}
    return "conv" in names and "flatten" in names and activations <= FAMILIES


IMAGE_CASES = [name for name, case in CASES.items() if is_wanted(case)]


def test_all_image_cases_are_here():
    assert len(IMAGE_CASES) == 25


def programs() -> list[tuple[str, torch.dtype, LaneProgram]]:
    """All cases that are compiled."""
    found = []
    for name, case in CASES.items():
        for dtype in TOLERANCE:
            with contextlib.suppress(UnsupportedError):
                net, shape = inf.from_spec(case["layers"]), inputs(case, "x1", dtype).shape[1:]
                found.append((name, dtype, lower(net.program(), shape, dtype)))
    return found


PROGRAMS = programs()


def test_all_image_cases_are_compiled():
    assert {name for name, dtype, _ in PROGRAMS if dtype == torch.float32} >= set(IMAGE_CASES)


@pytest.mark.parametrize(("name", "dtype", "program"), PROGRAMS, ids=[f"{name}-{dtype}" for name, dtype, _ in PROGRAMS])
def test_emulator_matches_the_high_precision_kernel(name: str, dtype: torch.dtype, program: LaneProgram):
    case = CASES[name]
    x1, x2 = inputs(case, "x1", dtype), inputs(case, "x2", dtype)
    K11, diagonal = emulate(program, x1.numpy())
    K12, _ = emulate(program, x1.numpy(), x2.numpy())
    hp = {key: arrays()[f"{name}/nngp_{key}_hp"] for key in ("11", "12", "diag2")}
    d1, d2 = np.sqrt(hp["11"].diagonal()), np.sqrt(hp["diag2"])
    assert (abs(K11 - hp["11"]) / np.outer(d1, d1)).max() <= TOLERANCE[dtype]
    assert (abs(K12 - hp["12"]) / np.outer(d1, d2)).max() <= TOLERANCE[dtype]
    assert (abs(diagonal / d1**2 - 1)).max() <= TOLERANCE[dtype]
    # Identical images: pairs end where the variance recursion ends.
    assert (abs(K11.diagonal() / diagonal - 1)).max() <= 1e-6


@given(r=st.randoms(use_true_random=False), straight=st.booleans(), seed=st.integers(0, 99))
def test_emulator_matches_torch(r: random.Random, straight: bool, seed: int):
    net, shape = architecture(r, straight=straight)
    x = images(shape, seed)
    program = lower(net.program(), shape, torch.float32)
    K, diagonal = emulate(program, x.numpy())
    reference, exact = net.kernel(x.double()), net.diagonal(x.double())
    assert error(torch.from_numpy(K), reference, exact, exact) <= 2e-6
    assert error(torch.from_numpy(np.diag(diagonal)), torch.diag(exact), exact, exact) <= 1e-6


@settings(max_examples=10)
@given(r=st.randoms(use_true_random=False), seed=st.integers(0, 99))
def test_emulator_matches_torch_in_double_precision(r: random.Random, seed: int):
    net, shape = architecture(r)
    x = images(shape, seed).double()
    K, diagonal = emulate(lower(net.program(), shape, torch.float64), x.numpy())
    exact = net.diagonal(x)
    assert error(torch.from_numpy(K), net.kernel(x), exact, exact) <= 1e-12
    assert error(torch.from_numpy(np.diag(diagonal)), torch.diag(exact), exact, exact) <= 1e-13


@pytest.mark.parametrize("size", [32, 40, 64])
def test_large_images(size: int):
    net, x = inf.wide_resnet(blocks=1), images((3, size, size), 0)[1:5]
    program = lower(net.program(), x.shape[1:], torch.float32)
    assert program.group == {32: 32, 40: 64, 64: 128}[size]
    K, _ = emulate(program, x.numpy())
    exact = net.diagonal(x.double())
    assert error(torch.from_numpy(K), net.kernel(x.double()), exact, exact) <= 2e-6


def test_lanes_beyond_the_map_stay_numbers():
    # 3 x 5 patches leave the last of 16 lanes over: a circular convolution fills it, no factor belongs to it.
    wave, around = inf.Sin(1.0, 0.7, 0.3), inf.Conv2d((2, 1), 1, "same", "circular")
    net = inf.Sequential(inf.Conv2d(1), inf.ReLU(), around, wave, inf.Conv2d((1, 2)), inf.Flatten(), inf.Linear())
    x = 300 * images((1, 9, 5), 0)
    program = lower(net.program(), (1, 9, 5), torch.float32)
    first = next(step for step in flat(program.steps) if isinstance(step.op, Apply))
    assert first.source.rows * first.source.columns < program.group
    K, _ = emulate(program, x.numpy())
    exact = net.diagonal(x.double())
    assert error(torch.from_numpy(K), net.kernel(x.double()), exact, exact) <= 2e-6


class TestPlacement:
    def test_the_papers_network_never_rereads_and_keeps_all_lanes_busy(self):
        program = lower(inf.wide_resnet(blocks=4).program(), (3, 32, 32), torch.float32)
        convolutions = [step for step in flat(program.steps) if isinstance(step.op, Convolve)]
        assert len(convolutions) == 28
        assert all(step.aligned for step in convolutions)
        assert program.group == 32
        for step in convolutions:
            for layout in (step.source, step.target):
                assert layout.pixels * 32 == layout.height * layout.width

    def test_small_images_share_a_warp(self):
        assert lower(inf.wide_resnet(blocks=1).program(), (3, 8, 8), torch.float32).group < 32

    def test_repeated_blocks_are_loops(self):
        shallow, deep = (
            lower(inf.wide_resnet(blocks=blocks).program(), (3, 32, 32), torch.float32) for blocks in (4, 9)
        )
        assert any(isinstance(step, Repeat) for step in deep.steps)
        assert len(write(deep, (3, 32, 32), "float").text) <= len(write(shallow, (3, 32, 32), "float").text)
        activations = [step for step in flat(deep.steps) if isinstance(step.op, Apply)]
        assert len(activations) == 2 * 3 * 9

    def test_images_beyond_the_registers_are_refused(self):
        with pytest.raises(UnsupportedError, match="registers"):
            lower(inf.wide_resnet(blocks=1).program(), (1, 400, 400), torch.float32)


class TestUnsupported:
    @pytest.mark.parametrize(
        "net",
        [
            inf.Sequential(inf.Conv2d(3), inf.GlobalAvgPool2d()),
            inf.Sequential(inf.Conv2d(3), inf.AvgPool2d(2), inf.Flatten()),
            inf.Sequential(inf.Conv2d(3), inf.Sign(), inf.Flatten()),
            inf.Sequential(inf.Conv2d(3), inf.Elementwise(torch.tanh), inf.Flatten()),
            inf.Sequential(inf.Conv2d(3), inf.LayerNorm(0.0), inf.Flatten()),
            inf.Sequential(inf.Conv2d(3)),
            inf.Sequential(inf.Conv2d(30), inf.Flatten()),
            inf.Sequential(inf.Residual(inf.Conv2d(3), inf.Conv2d(2)), inf.Flatten()),
        ],
        ids=repr,
    )
    def test_networks(self, net: inf.InfiniteNetwork):
        with pytest.raises(UnsupportedError):
            lower(net.program(), (1, 8, 8), torch.float32)

    def test_convolutions_of_vectors(self):
        with pytest.raises(UnsupportedError, match="vectors"):
            lower(inf.Conv2d(1).program(), (8,), torch.float32)

    def test_a_cpu_has_another_engine(self):
        x = torch.zeros(2, 3)
        assert not isinstance(engine_for(inf.mlp().program(), x, x, "nngp"), CompiledEngine)


class TestText:
    def test_variances_are_data(self):
        texts = [
            write(
                lower(inf.wide_resnet(blocks=2, weight_var=w).program(), (3, 8, 8), torch.float32), (3, 8, 8), "float"
            ).text
            for w in (2.0, 5.0)
        ]
        assert texts[0] == texts[1]

    def test_a_block_covers_its_tile(self):
        program = lower(inf.wide_resnet(blocks=1).program(), (3, 32, 32), torch.float32)
        source = write(program, (3, 32, 32), "float")
        assert source.tile[0] * source.tile[1] * program.group == source.threads == 256

    @settings(max_examples=10)
    @given(r=st.randoms(use_true_random=False), straight=st.booleans())
    def test_every_name_is_declared_before_it_is_used(self, r: random.Random, straight: bool):
        net, shape = architecture(r, straight=straight)
        text = write(lower(net.program(), shape, torch.float32), shape, "float").text
        for kernel in text.split('extern "C"')[1:]:
            known: set[str] = set()
            for line in kernel.splitlines():
                declared = re.match(r"\s*(?:const )?(?:float|double|int)[24]? (\w+) = (.*);", line)
                used = declared.group(2) if declared else line
                made = re.findall(r"\b(?:[thpi]\d+|note_\d+|loop\d+_\d+)\b", used)
                assert set(made) <= known, line
                if declared:
                    # A kernel's own arguments are not hidden by what it declares.
                    assert not re.search(rf"const int {declared.group(1)}[,)]", kernel), line
                    known.add(declared.group(1))

    def test_factors_fill_their_place(self):
        program = lower(inf.wide_resnet(blocks=1).program(), (3, 32, 32), torch.float32)
        # Three channels and nine activations: three at each size, the first of a group at the size before.
        assert program.factors == 3 * 1024 + (3 * 1024 + 2 * 256 + 64)


class TestFiles:
    def test_a_binary_comes_back(self, tmp_path):
        path = tmp_path / "kernels" / "a.cubin"
        assert compiler.read_binary(path) is None
        compiler.keep_binary(path, b"machine code")
        assert compiler.read_binary(path) == b"machine code"

    def test_a_damaged_one_does_not(self, tmp_path):
        path = tmp_path / "a.cubin"
        compiler.keep_binary(path, b"machine code")
        path.write_bytes(path.read_bytes()[:-1])
        assert compiler.read_binary(path) is None

    def test_a_folder_that_cannot_be_written_to_is_no_error(self, tmp_path):
        (tmp_path / "file").write_text("in the way")
        compiler.keep_binary(tmp_path / "file" / "a.cubin", b"machine code")

    def test_keys_know_source_device_and_compiler(self):
        keys = {
            compiler.content_key(*content)
            for content in (("a", "90", "13.0"), ("b", "90", "13.0"), ("a", "80", "13.0"), ("a", "90", "12.9"))
        }
        assert len(keys) == 4

    def test_without_cupy_the_reason_is_given(self, monkeypatch):
        def missing(name: str):
            raise ImportError(f"No module named {name!r}")

        monkeypatch.setattr(compiler, "import_module", missing)
        with pytest.raises(UnsupportedError, match="CuPy cannot be imported"):
            compiler.cupy()


class FakeCuPy:
    """As much of CuPy as compiling takes: a compiler that counts, and a device that takes what it made."""

    def __init__(self, *, compiles: bool = True, loads: bool = True) -> None:
        self.compiled = 0
        self.loaded: list[bytes] = []
        fake = self

        class Module:
            def load(self, binary: bytes) -> None:
                if not loads:
                    raise RuntimeError("CUDA_ERROR_OUT_OF_MEMORY")
                fake.loaded.append(binary)

        def compile_using_nvrtc(text: str, options: tuple[str, ...]) -> tuple[bytes, None]:
            if not compiles:
                raise RuntimeError("kern.cu(1): error: expected a declaration\nmore")
            fake.compiled += 1
            return text.encode() + repr(options).encode(), None

        self.cuda = SimpleNamespace(
            Device=lambda number: SimpleNamespace(compute_capability=f"9{number}"),
            nvrtc=SimpleNamespace(getVersion=lambda: (13, 0)),
            compiler=SimpleNamespace(compile_using_nvrtc=compile_using_nvrtc),
            function=SimpleNamespace(Module=Module),
        )


class TestCompiling:
    @pytest.fixture(autouse=True)
    def _empty_cache(self, tmp_path, monkeypatch):
        monkeypatch.setenv("GDKL_CACHE", str(tmp_path))
        monkeypatch.setattr(compiler, "_LOADED", {})

    def use(self, monkeypatch, **options) -> FakeCuPy:
        fake = FakeCuPy(**options)
        monkeypatch.setattr(compiler, "cupy", lambda: fake)
        return fake

    def test_once_a_process_and_once_a_disk(self, monkeypatch):
        fake = self.use(monkeypatch)
        assert compiler.load("text", 0) is compiler.load("text", 0)
        assert (fake.compiled, len(fake.loaded)) == (1, 1)
        # Another process starts with nothing in memory.
        monkeypatch.setattr(compiler, "_LOADED", {})
        compiler.load("text", 0)
        assert (fake.compiled, len(fake.loaded)) == (1, 2)
        assert fake.loaded[0] == fake.loaded[1]

    def test_once_for_each_architecture(self, monkeypatch):
        fake = self.use(monkeypatch)
        compiler.load("text", 0)
        compiler.load("text", 1)
        assert fake.compiled == 2

    @pytest.mark.parametrize(("options", "reason"), [({"compiles": False}, "NVRTC"), ({"loads": False}, "load")])
    def test_failures_are_reasons(self, options: dict, reason: str, monkeypatch):
        self.use(monkeypatch, **options)
        with pytest.raises(UnsupportedError, match=reason):
            compiler.load("text", 0)


class TestEngine:
    """The engine cuts matrices into blocks; here the emulator computes them."""

    net = inf.Sequential(inf.Conv2d(3, 2, "same", weight_var=2.0, bias_var=0.1), inf.ReLU(), inf.Flatten())

    def engine(self, n1: int, n2: int | None = None, dtype: torch.dtype = torch.float64):
        x1 = torch.randn(n1, 2, 6, 5, dtype=dtype)
        x2 = x1 if n2 is None else torch.randn(n2, 2, 6, 5, dtype=dtype)
        kernel = EmulatedKernel(lower(self.net.program(), x1.shape[1:], dtype))
        return CompiledEngine(kernel, x1, x2), kernel, x1, x2

    #: Factors of 64 inputs a block.
    small = Work(memory=2 * 64 * 1000)

    def test_symmetric(self):
        engine, kernel, x, _ = self.engine(150)
        K = torch.full((150, 150), float("nan"), dtype=torch.float64)
        seen: list[tuple[int, int]] = []
        engine.fill(K, symmetric=True, work=Work(self.small.memory, progress=lambda *done: seen.append(done)))
        torch.testing.assert_close(K, self.net.kernel(x), rtol=1e-13, atol=0)
        assert torch.equal(K, K.T)
        # Every pair once.
        assert kernel.pairs_computed == 150 * 149 // 2
        assert seen[-1] == (150 * 150, 150 * 150)
        assert len(seen) == 6

    def test_rectangular(self):
        engine, kernel, x1, x2 = self.engine(70, 130)
        K = torch.full((70, 130), float("nan"), dtype=torch.float64)
        engine.fill(K, symmetric=False, work=self.small)
        torch.testing.assert_close(K, self.net.kernel(x1, x2), rtol=1e-13, atol=0)
        assert kernel.pairs_computed == 70 * 130

    @pytest.mark.parametrize("symmetric", [True, False])
    def test_files(self, symmetric: bool):
        engine, _, x1, x2 = self.engine(100, None if symmetric else 80)
        K = np.full((100, len(x2)), np.nan)
        engine.fill(K, symmetric=symmetric, work=self.small)
        np.testing.assert_allclose(K, self.net.kernel(x1, None if symmetric else x2).numpy(), rtol=1e-13)

    def test_diagonal(self):
        engine, _, x, _ = self.engine(100)
        torch.testing.assert_close(engine.diagonal(self.small), self.net.diagonal(x), rtol=1e-14, atol=0)

    def test_nothing(self):
        engine, _, _, _ = self.engine(0)
        assert engine.diagonal(Work()).shape == (0,)
        engine.fill(torch.zeros(0, 0), symmetric=True, work=Work())
