"""Cells that cannot be run are passed over with a line; backends; the small part of an experiment."""

from __future__ import annotations

import json
import sys
from dataclasses import replace

import numpy as np
import pytest
from experiments_helpers import SMALL, cells, line_data
from typer.testing import CliRunner

from gdkl import datasets
from gdkl.cli.app import app
from gdkl.datasets import MissingDatasetError
from gdkl.experiments import Method, Quick, settings_by_method
from gdkl.experiments.data import Part
from gdkl.experiments.highdim import few_rows, load_rows
from gdkl.experiments.illustration import halves
from gdkl.experiments.parallel import in_parallel
from gdkl.experiments.runner import run
from gdkl.numerics import OptionError
from gdkl.plots import GAP


def steep_is_missing(cell, data_dir, validation) -> Part:
    if cell.dataset == "steep":
        raise MissingDatasetError("put steep.data somewhere.")
    return line_data(cell, data_dir, validation)


class TestPassedOver:
    def test_a_dataset_without_a_copy_costs_a_line_and_not_the_run(self, tmp_path):
        said: list[str] = []
        spec = replace(SMALL, data=steep_is_missing)
        lines = run(spec, cells(spec), tmp_path, device="cpu", say=said.append)
        assert {line["dataset"] for line in lines} == {"flat"}
        assert "steep: mean, off: not run: put steep.data somewhere." in said

    def test_it_is_an_error_where_nothing_else_can_be_run(self, tmp_path):
        spec = replace(SMALL, data=steep_is_missing)
        with pytest.raises(ValueError, match=r"put steep\.data somewhere"):
            run(spec, cells(spec, ["steep"]), tmp_path, device="cpu")
        assert not list(tmp_path.glob("*.jsonl"))

    def test_an_estimator_that_does_not_exist_leaves_the_others(self, tmp_path):
        said: list[str] = []
        spec = replace(SMALL, methods={"mean": SMALL.methods["mean"], "later": Method("to come", "LaterRegressor")})
        settings = settings_by_method(spec, list(spec.methods), ["shift=0.5"])
        wanted = list(spec.cells(["flat"], settings))
        lines = run(spec, wanted, tmp_path, device="cpu", say=said.append)
        assert [line["method"] for line in lines] == ["mean", "mean"]
        assert any("flat: later: not run: this version has no LaterRegressor" in line for line in said)

    def test_a_folder_of_data_is_found_by_workers_wherever_they_are(self, tmp_path, monkeypatch):
        seen = []

        def data(cell, data_dir, validation):
            seen.append(data_dir)
            return line_data(cell, data_dir, validation)

        monkeypatch.chdir(tmp_path)
        monkeypatch.setenv("GDKL_DATA", "tables")
        run(replace(SMALL, data=data), cells(datasets=["flat"], methods=["mean"], seeds=1), tmp_path, device="cpu")
        assert set(seen) == {tmp_path / "tables"}


class TestTogether:
    def test_splits_in_which_other_columns_vary_are_fitted_one_by_one(self, tmp_path):
        def data(cell, data_dir, validation):
            part = line_data(cell, data_dir, validation)
            return replace(part, X=part.X * [1.0, float(cell.split)])

        guides = {"nngp": Method("a guide", "NNGPRegressor", together=True)}
        spec = replace(SMALL, data=data, methods=guides, model_seed=0)
        said: list[str] = []
        lines = run(spec, cells(spec, ["flat"], seeds=3), tmp_path, device="cpu", say=said.append)
        assert [line["split"] for line in lines] == [0, 1, 2]
        assert "flat nngp, 3 splits: one by one, for other columns vary in each split" in said
        alone = run(spec, cells(spec, ["flat"], seeds=1), tmp_path / "alone", device="cpu")
        assert lines[0]["scores"] == alone[0]["scores"]


class TestBackends:
    def test_the_default_and_a_named_one_give_the_same(self, tmp_path):
        wanted = cells(seeds=1)
        alone = run(SMALL, wanted, tmp_path / "a", device="cpu")
        named = run(SMALL, wanted, tmp_path / "b", device="cpu", backend="threading", jobs=2)
        assert [(line["key"], line["scores"]) for line in named] == [(line["key"], line["scores"]) for line in alone]

    @pytest.mark.parametrize(("name", "package"), [("ray", "ray"), ("dask", "distributed")])
    def test_a_package_that_is_missing_is_named_with_its_extra(self, name, package, monkeypatch):
        monkeypatch.setitem(sys.modules, package, None)
        with pytest.raises(OptionError, match=rf"--backend {name} needs \w+: pip install 'gdkl\[{name}\]'"):
            in_parallel([], name, None)

    def test_an_unknown_name_lists_the_known(self):
        with pytest.raises(OptionError, match="--backend moon is not known to joblib: use loky, ray or dask"):
            in_parallel([], "moon", 2)

    def test_an_error_of_a_task_is_what_the_task_raised(self, tmp_path):
        wanted = cells(datasets=["flat"], methods=["off"], changes={"preset.n_iter": 0})
        with pytest.raises(OptionError, match="n_iter=0"):
            run(SMALL, wanted, tmp_path, device="cpu", backend="threading", jobs=2)


class TestQuick:
    def test_only_settings_that_a_method_has_are_replaced_and_the_users_come_last(self):
        spec = replace(SMALL, quick=Quick("less", changes=("shift=3", "preset.n_iter=2")))
        found = settings_by_method(spec, ["mean", "off"], ["off:shift=4"], quick=True)
        assert found["off"] == {"shift": 4, "preset": {"n_iter": 2}, "quick": True}
        assert found["mean"]["quick"] is True
        assert settings_by_method(spec, ["off"], [])["off"] == {"shift": 1.0, "preset": {"n_iter": 5}}

    def test_the_command_says_so_everywhere(self, tmp_path):
        words = ["reproduce", "toy", "--quick", "--methods", "nngp", "--seeds", "1", "--device", "cpu"]
        done = CliRunner().invoke(app, [*words, "--output", str(tmp_path)])
        assert done.exit_code == 0, done.output
        assert "quick: 2 of 5 draws" in done.stderr
        assert "quick=True" in done.stdout
        assert "which is not the protocol" in " ".join(done.stdout.split())
        [line] = [json.loads(row) for row in (tmp_path / "toy.jsonl").read_text().splitlines()]
        assert line["settings"]["quick"] is True


class TestRows:
    def test_the_gap_is_taken_from_what_is_learned_and_scored_on_its_own(self):
        [cell] = cells(datasets=["flat"], methods=["mean"], seeds=1)
        part = halves(cell, None, 0)
        X, y = part.others["gap"]
        assert len(part.y) < len(part.y_test) == 400
        assert not ((GAP[0] <= part.X) & (GAP[1] >= part.X)).any()
        assert ((GAP[0] <= X) & (GAP[1] >= X)).all()
        assert set(y) <= set(part.y_test)
        assert not set(part.y) & set(part.y_test)

    def test_few_rows_are_nested_and_validation_rows_are_neither_trained_on_nor_the_tests(self, monkeypatch):
        X = np.arange(100.0)[:, None]
        monkeypatch.setattr(datasets, "load", lambda name, data_dir: (X, X[:, 0], ("x",), "y"))
        load_rows.cache_clear()
        [cell] = cells(datasets=["flat"], methods=["mean"], seeds=1)
        small, large = (few_rows(replace(cell, dataset="blog", size=size), None, 0) for size in (20, 40))
        np.testing.assert_array_equal(small.X, large.X[:20])
        np.testing.assert_array_equal(small.y, np.log1p(small.X[:, 0]))
        np.testing.assert_array_equal(np.sort(small.X_test[:, 0]), np.sort(large.X_test[:, 0]))
        held = few_rows(replace(cell, dataset="gas", size=20), None, 10)
        np.testing.assert_array_equal(held.X_test, large.X[20:30])
        assert held.y.tolist() == held.X[:, 0].tolist()
        with pytest.raises(OptionError, match="90 rows to draw from, and 91 are asked"):
            few_rows(replace(cell, dataset="gas", size=91), None, 0)
        load_rows.cache_clear()
