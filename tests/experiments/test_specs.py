"""The declared experiments, settings that a user replaces, and tables from lines."""

from __future__ import annotations

import json
from collections import Counter
from importlib.resources import files
from itertools import product

import pytest
from experiments_helpers import CLASSES, SMALL, cells
from rich.console import Console

from gdkl import GdklError
from gdkl.experiments import SPECS, paired_lines, searched_settings, settings_by_method, table
from gdkl.experiments.tables import Published, flat, paper_figure
from gdkl.experiments.trial import Place, build, estimator_class, exists, known_options, steps

PAPER = json.loads(files("gdkl.experiments").joinpath("published.json").read_text())


def shown(spec, lines):
    console = Console(width=250, record=True, file=None, quiet=True)
    with console.capture() as capture:
        console.quiet = False
        console.print(table(spec, lines))
    return capture.get()


def line(cell, **scores):
    return {
        **cell.identity(),
        "key": cell.key,
        "scores": {"test": scores, "train": scores},
        "seconds": {"fit": 1.5},
        "versions": {},
    }


class TestSpecs:
    @pytest.mark.parametrize("name", SPECS)
    def test_every_method_builds_with_its_declared_settings(self, name, tmp_path):
        spec = SPECS[name]
        for method, declared in spec.methods.items():
            if not exists(declared):
                continue
            known = known_options(declared)
            settings = spec.settings(method, {})
            if "relevance" in {*settings} - {*known}:
                continue  # declared ahead of the option
            preset = settings.get("preset", {})
            assert {key for key in settings if key != "preset"} <= {*known}
            assert {f"preset.{key}" for key in preset} <= {*known}
            [cell, *_] = spec.cells(spec.datasets, {method: settings})
            model = build(spec, cell, 1000, Place(None, "cpu", tmp_path))
            assert isinstance(model, estimator_class(declared))

    @pytest.mark.parametrize("name", [name for name, spec in SPECS.items() if spec.paper])
    def test_every_figure_of_a_table_is_beside_a_cell_of_ours(self, name):
        """From the paper's side: what its tables have for our datasets and methods, some cell of ours finds."""
        spec = SPECS[name]
        found = [
            figure
            for dataset, size, method, column in product(
                spec.datasets, spec.sizes or (None,), spec.methods, spec.columns
            )
            if (figure := paper_figure(spec, column, dataset, size, method)) is not None
        ]
        rows = {spec.paper.rows[method] for method in spec.methods if method in spec.paper.rows}
        wanted = [
            Published(*values)
            for part, labels in spec.paper.tables.items()
            # Of several tables for one part the first that has a cell is taken: the others only fill in.
            for label in labels[:1]
            for size in spec.sizes or (None,)
            for row, cells in PAPER[label.format(size=size)].items()
            for cell, values in cells.items()
            if row in rows and cell.partition(".")[0] in spec.datasets
            if size is None or f".n{size}." in cell
        ]
        assert bool(wanted) == bool(spec.paper.tables)
        assert not Counter(wanted) - Counter(found)

    def test_no_table_of_the_paper_is_forgotten(self):
        named = {
            label.format(size=size)
            for spec in SPECS.values()
            if spec.paper
            for labels in spec.paper.tables.values()
            for label in labels
            for size in spec.sizes or (None,)
        }
        assert named == set(PAPER)

    def test_a_figure_of_the_paper_by_our_names(self):
        def mean(name, score, dataset, size, method):
            spec = SPECS[name]
            [column] = [
                one for one in spec.columns if one.paper == score and (not one.methods or method in one.methods)
            ]
            return paper_figure(spec, column, dataset, size, method).mean

        assert mean("uci", "train_ll", "concrete", None, "gp_rbf") == -2.15
        assert mean("objectives", "rmse", "energy", None, "predictive") == 0.28
        assert mean("highdim", "ll", "ctslice", 200, "gdkl") == -3.45
        assert mean("fewshot", "acc", "cifar10", 400, "gdkl") == 42.97
        assert mean("shallow-guide", "acc", "cifar10", 800, "gdkl_1") == 49.34
        assert mean("timing", "seconds_per_iteration", "cifar10", 50, "nngp") == 5.44
        assert mean("full", "mce", "cifar100", None, "gdkl") == 0.18
        assert paper_figure(SPECS["highdim"], SPECS["highdim"].columns[0], "gas", 50, "gdkl") is None

    def test_tables_of_the_same_runs_share_their_cells(self):
        def keys(name, methods):
            spec = SPECS[name]
            return {cell.key for cell in spec.cells(spec.datasets, {one: spec.settings(one, {}) for one in methods})}

        assert keys("nn", ("nn", "gdkl")) == keys("reliability", ("nn", "gdkl")) == keys("fewshot", ("nn", "gdkl"))
        assert keys("objectives", ("gdkl", "predictive")) == keys("uci", ("gdkl", "predictive"))

    @pytest.mark.parametrize("name", SPECS)
    def test_the_quick_part_is_smaller_and_says_so(self, name):
        spec = SPECS[name]
        settings = settings_by_method(spec, list(spec.methods), [], quick=True)
        assert all(one["quick"] is True for one in settings.values())
        keys = {change.partition("=")[0] for change in spec.quick.changes}
        assert keys <= {key for method in settings for key in flat(settings[method])}
        steps = {one["preset"]["n_iter"] for one in settings.values() if "n_iter" in one.get("preset", {})}
        assert all(
            "n_iter" not in settings[method].get("preset", {}) for method in settings if method.startswith("nngp")
        )
        assert max(steps, default=0) <= 500
        whole = spec.cells(spec.datasets, {method: spec.settings(method, {}) for method in settings})
        part = spec.cells(spec.datasets, settings, sizes=spec.quick.sizes, seeds=spec.quick.seeds)
        assert not {cell.key for cell in part} & {cell.key for cell in whole}
        assert spec.quick.seeds < spec.seeds or keys
        assert set(spec.quick.sizes) < set(spec.sizes) or not spec.quick.sizes

    def test_seeds_count_splits_or_networks(self):
        assert [(cell.split, cell.seed) for cell in cells(SMALL, ["flat"], ["mean"])] == [(0, 0), (1, 1)]
        assert [(cell.split, cell.seed) for cell in cells(CLASSES)] == [("paper", 0), ("paper", 1), ("paper", 2)]
        uci = SPECS["uci"].cells(["boston"], {"gdkl": {}}, seeds=2)
        assert [(cell.split, cell.seed) for cell in uci] == [(0, 0), (1, 0)]
        large = SPECS["large"].cells(["power"], {"linear": {}})
        assert [(cell.split, cell.seed) for cell in large] == [(3, 3), (4, 4), (5, 5)]

    def test_epochs_are_steps_of_a_batch(self):
        assert steps(200, 256, 50_000) == 39_062
        with pytest.raises(GdklError, match=r"preset\.batch_size"):
            steps(2, None, 100)
        with pytest.raises(GdklError, match="epochs=0"):
            steps(0, 64, 100)


class TestOverrides:
    def test_a_key_goes_to_every_method_that_has_it(self):
        found = settings_by_method(SMALL, ["mean", "off"], ["shift=0.5", "preset.n_iter=7", "off:train_rows=3"])
        assert found["mean"] == {"shift": 0.5, "preset": {"n_iter": 7}}
        assert found["off"] == {"shift": 0.5, "train_rows": 3, "preset": {"n_iter": 7}}

    def test_without_changes_settings_are_the_declared_ones(self):
        assert settings_by_method(SMALL, ["off"], []) == {"off": {"shift": 1.0, "preset": {"n_iter": 5}}}
        assert settings_by_method(SMALL, ["mean"], [], 20) == {"mean": {"validation": 20}}

    @pytest.mark.parametrize(
        ("text", "message"),
        [
            ("slope=1", r"--set slope is not known: use .*shift, .*train_rows, .*preset\.learning_rate"),
            ("preset.slope=1", r"--set preset\.slope is not known"),
            ("random_state=1", "not known"),
            ("shift", "not of the form key=value"),
            ("=1", "not of the form key=value"),
            ("median:shift=1", "names no method of this run: use mean, off"),
        ],
    )
    def test_a_wrong_one_is_one_line_that_lists_the_known(self, text, message):
        with pytest.raises(GdklError, match=message) as error:
            settings_by_method(SMALL, ["mean", "off"], [text])
        assert "\n" not in str(error.value)

    def test_a_search_is_every_combination_of_what_the_user_does_not_set(self):
        search = {"preset.spectral_coefficient": (1, 3), "preset.power_iterations": (1, 3)}
        due = SPECS["fewshot"].methods["due"]
        assert due.search == search
        found = searched_settings(SPECS["fewshot"], ["due", "nn"], [], 400)
        tried = [own["due"]["preset"] for own in found if "due" in own]
        assert [(one["spectral_coefficient"], one["power_iterations"]) for one in tried] == [
            (1, 1),
            (1, 3),
            (3, 1),
            (3, 3),
        ]
        assert all({**due.preset, **one} == one for one in tried)
        # A method without a search is run as it is.
        assert [own["nn"] for own in found if "nn" in own] == [SPECS["fewshot"].settings("nn", {}, 400)]
        fixed = searched_settings(SPECS["fewshot"], ["due"], ["preset.power_iterations=1"], 400)
        assert [own["due"]["preset"]["spectral_coefficient"] for own in fixed] == [1, 3]
        assert {own["due"]["validation"] for own in fixed} == {400}
        # Every key is one that --set takes.
        for spec in SPECS.values():
            for method in spec.methods.values():
                assert set(method.search) <= set(known_options(method))
        with pytest.raises(GdklError, match="add --holdout N"):
            searched_settings(SPECS["fewshot"], ["due"], [], 0)

    def test_preset_values_are_checked_before_training(self, tmp_path):
        [cell, *_] = cells(changes={"preset.n_iter": -1}, methods=["off"])
        with pytest.raises(GdklError, match="n_iter=-1"):
            build(SMALL, cell, 10, Place(None, "cpu", tmp_path))


class TestTables:
    def test_ours_beside_the_papers(self):
        wanted = cells(SMALL, ["flat"], ["mean"])
        lines = [line(cell, log_likelihood=value, rmse=1.0) for cell, value in zip(wanted, (-2.0, -3.0), strict=True)]
        text = shown(SMALL, lines)
        assert "-2.50 ± 0.71" in text
        assert "1.00 ± 0.00" in text
        # The paper has no method of this name.
        assert "paper's LL" not in text
        for renamed in lines:
            renamed["method"] = "gdkl"
        assert "-2.47 ± 0.14" in shown(SMALL, lines)

    def test_other_settings_have_a_row_that_names_them(self):
        usual = [line(cell, log_likelihood=-1.0, rmse=1.0) for cell in cells(SMALL, ["flat"], ["off"])]
        other = cells(SMALL, ["flat"], ["off"], changes={"shift": 2.0, "preset.n_iter": 9})
        text = shown(SMALL, usual + [line(cell, log_likelihood=-2.0, rmse=1.0) for cell in other])
        assert "shift=2.0, preset.n_iter=9" in text
        assert table(SMALL, usual).row_count == 1

    def test_validation_is_named(self):
        [cell, *_] = cells(SMALL, ["flat"], ["off"], validation=5, scored="validation")
        assert "validation" in shown(SMALL, [line(cell, log_likelihood=-1.0, rmse=1.0)])

    def test_a_score_that_some_lack_is_a_dash_and_one_run_has_no_deviation(self):
        [cell] = cells(SMALL, ["flat"], ["off"], seeds=1)
        text = shown(SMALL, [line(cell, log_likelihood=-1.0)])
        assert "±" not in text.split("┏")[1]
        assert "RMSE" not in text

    def test_paired_differences_by_split(self):
        ours = cells(SMALL, ["flat"], ["mean"], seeds=3)
        theirs = cells(SMALL, ["flat"], ["off"], seeds=3)
        lines = [line(cell, log_likelihood=-float(cell.split)) for cell in ours]
        lines += [line(cell, log_likelihood=-float(cell.split) - 0.5 - 0.1 * cell.split) for cell in theirs]
        assert paired_lines(SMALL, lines) == ["flat: mean is 0.600 ± 0.058 better than off in LL, by split."]
