"""The study of Bayesian optimisation: problems, runs, table and picture."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from test_specs import shown

from gdkl import GdklError
from gdkl.experiments import SPECS, Results, settings_by_method, write_pictures
from gdkl.experiments.problems import PROBLEMS, problem
from gdkl.experiments.runner import run
from gdkl.integrations.botorch import default_estimator

STUDY = SPECS["bayesopt"]


@pytest.mark.parametrize("name", PROBLEMS)
def test_no_row_is_below_the_minimum(name):
    task = problem(name)
    X = torch.rand(3000, task.dim, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    assert (task.function(X) >= task.optimum).all()
    assert task.function(X).shape == (3000,)


@pytest.mark.parametrize(
    ("name", "row"),
    [
        ("branin", [0.5427728, 0.151667]),
        ("hartmann6", [0.20169, 0.150011, 0.476874, 0.275332, 0.311652, 0.6573]),
        ("ackley10", [1 / 3] * 10),
        ("levy20", [0.55] * 20),
        ("gated5", [0.85, 0.65, 0.65, 0.4, 0.6]),
    ],
)
def test_the_minimum_is_reached(name, row):
    assert problem(name).regret(torch.tensor([row], dtype=torch.float64)) < 1e-5


def test_the_helix_has_its_minimum_inside():
    from gdkl.experiments.problems import _directions  # noqa: PLC0415

    directions = _directions()
    torch.testing.assert_close(directions.T @ directions, torch.eye(3, dtype=torch.float64))
    p = torch.tensor([0.6 * np.cos(2.0), 0.6 * np.sin(2.0), 0.5], dtype=torch.float64)
    row = (directions @ p + 1) / 2
    assert ((row > 0) & (row < 1)).all()
    assert problem("helix8").regret(row[None]) < 1e-12


def test_runs_are_stored_shown_and_drawn(tmp_path):
    settings = settings_by_method(STUDY, ["gdkl", "botorch", "random"], ["gdkl:n_iter=1"])
    cells = list(STUDY.cells(["branin"], settings, sizes=[8], seeds=1))
    lines = run(STUDY, cells, tmp_path)
    assert Results(tmp_path / "bayesopt.jsonl").lines() == lines
    for line in lines:
        regret = line["details"]["regret"]
        assert len(regret) == 8 - line["details"]["initial"] + 1
        assert all(np.diff(regret) <= 0)
        np.testing.assert_allclose(line["scores"]["test"]["regret"], regret[-1], rtol=1e-4)
        np.testing.assert_allclose(10 ** -line["scores"]["test"]["digits"], regret[-1], rtol=1e-4)
    # All begin with the same rows.
    assert len({line["details"]["regret"][0] for line in lines}) == 1
    (path,) = write_pictures(STUDY, lines, tmp_path)
    assert path.read_bytes().startswith(b"\x89PNG")
    assert "simple regret" in shown(STUDY, lines)
    # Nothing is run again.
    assert run(STUDY, cells, tmp_path, say=lambda line: pytest.fail(line) if "kept" not in line else None) == lines


def test_gdkl_is_what_the_model_fits_by_default():
    default, declared = default_estimator(), STUDY.methods["gdkl"]
    assert default.preset.set_fields() == dict(declared.preset)
    usual = type(default)(preset=default.preset, random_state=default.random_state, **declared.options)
    assert default.get_params(deep=False) == usual.get_params(deep=False)


@pytest.mark.parametrize(("size", "validation", "message"), [(5, 0, "above 5"), (9, 3, "--validation")])
def test_wrong_sizes_are_refused(size, validation, message, tmp_path):
    settings = settings_by_method(STUDY, ["random"], [], validation)
    with pytest.raises(GdklError, match=message):
        run(STUDY, list(STUDY.cells(["branin"], settings, sizes=[size], seeds=1)), tmp_path)
