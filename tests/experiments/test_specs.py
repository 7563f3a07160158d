"""The declared experiments, settings that a user replaces, and tables from lines."""

from __future__ import annotations

import pytest
from experiments_helpers import CLASSES, SMALL, cells
from rich.console import Console

from gdkl import GdklError
from gdkl.experiments import SPECS, paired_lines, published, searched_settings, settings_by_method, table
from gdkl.experiments.trial import Place, build, estimator_class, known_options, steps


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

    @pytest.mark.parametrize("name", ["uci", "fewshot", "full"])
    def test_the_papers_figures_are_found(self, name):
        spec = SPECS[name]
        assert spec.paper is not None
        for dataset in spec.datasets:
            for size in spec.sizes or (None,):
                for column in spec.columns:
                    if column.paper not in ("ll", "acc", "rmse"):
                        continue
                    cell = spec.paper.cell.format(dataset=dataset, size=size, score=column.paper)
                    methods = ("gdkl",) if name == "uci" else ("gdkl", "due", "dlvkl")
                    assert all(published(spec.paper.tables["test"][0], one, cell) is not None for one in methods)

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
