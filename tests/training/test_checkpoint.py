"""A run that was killed goes on as if it had not been."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from gdkl.gp import ClassLikelihood
from gdkl.guide import as_kernel_function, fit_class_guide
from gdkl.infinite import mlp
from gdkl.methods import fit_dkl_classes, fit_gdkl_classes, fit_nn_classes
from gdkl.nets import MLP
from gdkl.numerics import OptionError
from gdkl.training import Callback, Checkpoint, ClassData, RunCheckpoint, Schedule, StudentOptions

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
    options = StudentOptions(
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
        return RunCheckpoint(tmp_path / "run", run="this one", every_seconds=0)

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
        fit("nn", data, RunCheckpoint(tmp_path / "run", run="one", every_seconds=0), [KillAt(5)])
    other = fit("nn", data, RunCheckpoint(tmp_path / "run", run="another", every_seconds=1000))
    assert other.history[0]["step"] == 1
    RunCheckpoint(tmp_path / "run", run="one").remove()
    assert not list(tmp_path.iterdir())


def test_saving_waits_for_its_time(data, tmp_path):
    fit("nn", data, RunCheckpoint(tmp_path / "run", run="one", every_seconds=1000))
    assert not list(tmp_path.iterdir())


def test_a_users_checkpoint_names_its_files_after_the_run(data, tmp_path):
    chosen = Checkpoint(tmp_path / "runs", every_seconds=0)
    with pytest.raises(KilledError):
        fit("nn", data, chosen.for_run("a-run"), [KillAt(5)])
    assert sorted(file.name for file in (tmp_path / "runs").iterdir()) == [
        "a-run.00000004.checkpoint",
        "a-run.00000005.checkpoint",
    ]
    assert fit("nn", data, chosen.for_run("a-run")).history[0]["step"] == 6
    assert chosen.for_run("no name / of a file").path.name != chosen.for_run("nor / this").path.name
    with pytest.raises(OptionError, match="folder=3"):
        Checkpoint(3)
    with pytest.raises(OptionError, match="every_seconds"):
        Checkpoint(tmp_path, every_seconds=-1)


def test_as_a_callback_it_does_nothing(data, tmp_path):
    fit("nn", data, callbacks=[Checkpoint(tmp_path / "none")])
    assert not list(tmp_path.iterdir())
