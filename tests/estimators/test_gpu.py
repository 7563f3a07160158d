"""A GPU gives what the CPU gives."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from regressor_cases import MAKERS, table

import gdkl

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")


@pytest.mark.parametrize("name", MAKERS)
def test_cpu_and_gpu_agree(name, tmp_path):
    X, y = table(60, outputs=2)
    # Few steps: training amplifies rounding, and the two devices round differently.
    options = {"n_iter": 10} if name in ("gdkl", "dkl") else {}
    cpu, gpu = (MAKERS[name](device=device, **options).fit(X, y) for device in ("cpu", "cuda"))
    assert gpu.model_.posterior.factor.is_cuda
    p, q = cpu.predict_distribution(X), gpu.predict_distribution(X)
    np.testing.assert_allclose(q.mean, p.mean, rtol=1e-4)
    np.testing.assert_allclose(q.variance, p.variance, rtol=1e-3)
    gpu.save(tmp_path / "model.gdkl")
    np.testing.assert_allclose(gdkl.load(tmp_path / "model.gdkl").predict(X), gpu.predict(X), rtol=1e-12)


def test_an_ensemble_trains_on_the_gpu():
    X, y = table(60)
    model = MAKERS["gdkl"](device="cuda", n_members=3, n_iter=30).fit(X, y)
    assert model.predict_distribution(X).n_components == 3
    assert model.score(X, y) > 0.3
