"""A run that was killed goes on as if it had not been."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from gdkl.gp import ClassLikelihood
from gdkl.guide import as_kernel_function, fit_class_guide
from gdkl.infinite import mlp
from gdkl.methods import ClassData, DeepKernelOptions, fit_dkl_classes, fit_gdkl_classes, fit_nn_classes
from gdkl.nets import MLP
from gdkl.numerics import DataError
from gdkl.training import Callback, Checkpoint, Schedule

STEPS = 80


class KilledError(Exception):
    pass


class KillAt(Callback):
    def __init__(self, step):
        self.step = step

    def on_step(self, report):
        if report.step == self.step:
            raise KilledError


def network(columns):
    return nn.Sequential(MLP(columns, (16,)), nn.BatchNorm1d(16, dtype=torch.float32), nn.Dropout(0.3), nn.ReLU())


@pytest.fixture
def data():
    generator = torch.Generator().manual_seed(0)
    rows = torch.randn(1, 24, 3, generator=generator, dtype=torch.float64)
    labels = (rows[..., 0] > 0).long() + (rows[..., 1] > 0.5).long()
    return ClassData.make(rows, labels, 3, ClassLikelihood.DIRICHLET, torch.float64)


def fit(method, data, checkpoint=None, callbacks=()):
    options = DeepKernelOptions(
        Schedule(STEPS), feature_net=network, momentum=0.9, callbacks=callbacks, checkpoint=checkpoint
    )
    if method == "gdkl":
        guide = fit_class_guide(as_kernel_function(mlp(1)), data.rows, data.labels, 3)
        return fit_gdkl_classes(data, guide, options)
    return (fit_dkl_classes if method == "dkl" else fit_nn_classes)(data, options)


@pytest.mark.parametrize("method", ["gdkl", "dkl", "nn"])
@pytest.mark.parametrize("killed_at", [1, 70])
def test_a_resumed_run_ends_where_an_unbroken_one_does(method, killed_at, data, tmp_path):
    whole = fit(method, data)

    def kept():
        return Checkpoint(tmp_path / "run.pt", run="this one", every_seconds=0)

    with pytest.raises(KilledError):
        fit(method, data, kept(), [KillAt(killed_at)])
    torch.manual_seed(9)
    before = torch.get_rng_state()
    resumed = fit(method, data, kept())
    assert torch.equal(torch.get_rng_state(), before)
    assert resumed.history[0]["step"] == killed_at + 1
    for mine, other in zip(resumed.marginals(data.rows), whole.marginals(data.rows), strict=True):
        torch.testing.assert_close(mine, other, rtol=1e-12, atol=1e-12)


def test_a_checkpoint_of_another_run_is_not_gone_on_from(data, tmp_path):
    with pytest.raises(KilledError):
        fit("nn", data, Checkpoint(tmp_path / "run.pt", run="one", every_seconds=0), [KillAt(5)])
    other = fit("nn", data, Checkpoint(tmp_path / "run.pt", run="another", every_seconds=1000))
    assert other.history[0]["step"] == 1
    Checkpoint(tmp_path / "run.pt", run="one").remove()
    assert not list(tmp_path.iterdir())


def test_saving_waits_for_its_time(data, tmp_path):
    fit("nn", data, Checkpoint(tmp_path / "run.pt", run="one", every_seconds=1000))
    assert not list(tmp_path.iterdir())


def test_a_damaged_file_is_named(data, tmp_path):
    (tmp_path / "run.pt").write_bytes(b"PK damaged")
    with pytest.raises(DataError, match=r"run\.pt is not a checkpoint .* remove it"):
        fit("nn", data, Checkpoint(tmp_path / "run.pt", run="one"))
