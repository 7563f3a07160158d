"""Compiled kernels on a real GPU; `test_fused.py` has what can be tested without one."""

from __future__ import annotations

import importlib.util
import logging
import os
import random
import subprocess
import sys

import numpy as np
import pytest
import torch
from architectures import architecture, error, images
from hypothesis import given, settings
from hypothesis import strategies as st
from oracles import CASES, arrays, inputs

import gdkl.infinite as inf
from gdkl.guide.kernels import as_kernel_function
from gdkl.infinite.fused.kernel import kernel_of

pytestmark = pytest.mark.skipif(
    not torch.cuda.is_available() or importlib.util.find_spec("cupy") is None, reason="needs a CUDA device and CuPy"
)

TOLERANCE = {torch.float32: 2e-6, torch.float64: 1e-12}


@pytest.mark.parametrize("dtype", TOLERANCE, ids=str)
@pytest.mark.parametrize("name", CASES)
def test_matches_the_high_precision_kernel(name: str, dtype: torch.dtype):
    case = CASES[name]
    net = inf.from_spec(case["layers"])
    x1, x2 = (inputs(case, which, dtype).cuda() for which in ("x1", "x2"))
    K11, K12, diagonal = net.kernel(x1), net.kernel(x1, x2), net.diagonal(x1)
    hp = {key: arrays()[f"{name}/nngp_{key}_hp"] for key in ("11", "12", "diag2")}
    d1, d2 = np.sqrt(hp["11"].diagonal()), np.sqrt(hp["diag2"])
    assert (abs(K11.double().cpu().numpy() - hp["11"]) / np.outer(d1, d1)).max() <= TOLERANCE[dtype]
    assert (abs(K12.double().cpu().numpy() - hp["12"]) / np.outer(d1, d2)).max() <= TOLERANCE[dtype]
    assert torch.equal(K11, K11.T)
    assert torch.equal(K11.diagonal(), diagonal)
    # Against a copy the diagonal is computed as pairs are.
    copied = net.kernel(x1, x1.clone()).diagonal()
    assert ((copied - diagonal).abs() / diagonal).max() <= 1e-6
    cpu = net.kernel(x1.cpu(), x2.cpu())
    assert (abs(K12.cpu().numpy() - cpu.numpy()) / np.outer(d1, d2)).max() <= 2 * TOLERANCE[dtype]


@settings(max_examples=15, deadline=None)
@given(r=st.randoms(use_true_random=False), straight=st.booleans(), seed=st.integers(0, 99))
def test_matches_torch(r: random.Random, straight: bool, seed: int):
    net, shape = architecture(r, straight=straight)
    x = images(shape, seed)
    kernel_of(net.program(), x.cuda())
    exact = net.diagonal(x.double())
    reference = net.kernel(x.double())
    assert error(net.kernel(x.cuda()), reference, exact, exact) <= 2e-6
    assert error(net.kernel(x.cuda(), x[:2].cuda()), reference[:, :2], exact, exact[:2]) <= 2e-6


@pytest.mark.parametrize("n", [1, 2, 63, 64, 65, 200])
@pytest.mark.parametrize("dtype", TOLERANCE, ids=str)
def test_any_number_of_images(n: int, dtype: torch.dtype):
    net, x = inf.wide_resnet(blocks=1), torch.randn(n, 3, 8, 8, dtype=dtype)
    exact = net.diagonal(x.double())
    K = net.kernel(x.cuda(), memory=2**20)
    assert error(K, net.kernel(x.double()), exact, exact) <= TOLERANCE[dtype]
    m = max(1, n // 3)
    assert error(net.kernel(x[:m].cuda(), x.cuda()), net.kernel(x[:m].double(), x.double()), exact[:m], exact) <= 2e-6


@pytest.mark.parametrize("n", [1, 31, 32, 33, 300])
def test_any_number_of_vectors(n: int):
    net, x = inf.mlp(), torch.randn(n, 7)
    exact = net.diagonal(x.double())
    assert error(net.kernel(x.cuda()), net.kernel(x.double()), exact, exact) <= 2e-6
    assert error(net.kernel(x.cuda(), x[:1].cuda()), net.kernel(x.double(), x[:1].double()), exact, exact[:1]) <= 2e-6


@pytest.mark.parametrize("size", [40, 64])
def test_groups_of_several_warps(size: int):
    net, x = inf.wide_resnet(blocks=1), images((3, size, size), 0)
    exact = net.diagonal(x.double())
    assert error(net.kernel(x.cuda()), net.kernel(x.double()), exact, exact) <= 2e-6


def test_two_runs_give_the_same_bits():
    net, x = inf.wide_resnet(blocks=1), torch.randn(100, 3, 16, 16).cuda()
    assert torch.equal(net.kernel(x), net.kernel(x))


def test_files_and_memory(tmp_path):
    net, x = inf.wide_resnet(blocks=1), torch.randn(150, 3, 8, 8).cuda()
    K = net.kernel(x, out=tmp_path / "kernel.npy", memory=2**20)
    assert np.array_equal(np.load(tmp_path / "kernel.npy"), net.kernel(x).cpu().numpy())
    assert K.shape == (150, 150)


def test_other_streams():
    net, x = inf.mlp(), torch.randn(2000, 50).cuda()
    expected = net.kernel(x)
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        doubled = net.kernel(x * 2 / 2) * 1
    stream.synchronize()
    assert torch.equal(doubled, expected)


def test_no_memory_is_left_behind():
    net, x = inf.wide_resnet(blocks=1), torch.randn(64, 3, 8, 8).cuda()
    net.kernel(x)
    before = torch.cuda.memory_allocated()
    for _ in range(1000):
        net.kernel(x)
    assert torch.cuda.memory_allocated() == before


def test_what_is_not_compiled_takes_the_torch_path_with_one_line(caplog):
    net, x = inf.Sequential(inf.Conv2d(3), inf.ReLU(), inf.GlobalAvgPool2d()), torch.randn(3, 1, 6, 6)
    with caplog.at_level(logging.DEBUG, logger="gdkl"):
        K = net.kernel(x.cuda())
    assert [record.levelname for record in caplog.records] == ["DEBUG"]
    assert "GlobalAvgPool2d" in caplog.text
    torch.testing.assert_close(K.cpu(), net.kernel(x), rtol=1e-5, atol=1e-6)


def test_gradients_take_the_torch_path(caplog):
    net, x = inf.mlp(hidden_layers=1), torch.randn(4, 3, dtype=torch.float64).cuda().requires_grad_()
    with caplog.at_level(logging.DEBUG, logger="gdkl"):
        (gradient,) = torch.autograd.grad(net.kernel(x).sum(), x)
    assert torch.isfinite(gradient).all()
    assert not caplog.records


def test_the_guide_uses_the_compiled_kernel(monkeypatch):
    net, x = inf.mlp(), torch.randn(50, 4, dtype=torch.float64).cuda()
    kernel, launches = kernel_of(net.program(), x), []
    launch = kernel._launch
    monkeypatch.setattr(kernel, "_launch", lambda *given: (launches.append(given), launch(*given)))
    gram = as_kernel_function(net).gram(x)
    assert len(launches) == 2
    torch.testing.assert_close(gram.cpu(), net.kernel(x.cpu()), rtol=1e-12, atol=0)


def test_a_second_process_compiles_nothing(tmp_path):
    code = (
        "import torch, gdkl.infinite as inf\n"
        "from gdkl.infinite.fused import compile as compiler\n"
        "compiled, keep = [], compiler.keep_binary\n"
        "compiler.keep_binary = lambda path, binary: (compiled.append(path), keep(path, binary))\n"
        "inf.mlp().kernel(torch.randn(3, 4).cuda())\n"
        "print(len(compiled))"
    )
    counts = [
        subprocess.run(
            [sys.executable, "-c", code],
            env={**os.environ, "GDKL_CACHE": str(tmp_path)},
            capture_output=True,
            text=True,
            check=True,
        ).stdout.strip()
        for _ in range(2)
    ]
    assert counts == ["1", "0"]


def test_tiles_on_devices(tmp_path):
    net, x = inf.wide_resnet(blocks=1), torch.randn(100, 3, 8, 8)
    K = inf.tiled_kernel(net, x, out=tmp_path / "k.npy", tile=40, devices=["cuda:0", "cuda:0"])
    whole = net.kernel(x.cuda()).cpu().numpy()
    np.testing.assert_allclose(K, whole, rtol=2e-6)
    assert np.array_equal(K, K.T)
