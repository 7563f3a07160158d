"""The report: what it computes from lines, and that nothing is claimed that was not run."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest
from experiments_helpers import SMALL

from gdkl.experiments import SPECS, spec_named
from gdkl.experiments.report import (
    compared_with_paper,
    differences,
    overview_rows,
    read_folder,
    section,
    sections,
    text,
)
from gdkl.experiments.report_pictures import pictures, pooled_bins
from gdkl.experiments.tables import Published
from gdkl.metrics import calibration_bins, ece
from gdkl.numerics import DataError

UCI = spec_named("uci")


def lines_of(spec, dataset, method, values, *, size=None, quick=False, changes=None, **more):
    """Lines of the first splits, whose log-likelihoods are the values."""
    settings = {method: spec.settings(method, changes or {}, quick=quick)}
    sizes = [size] if size else ()
    found = []
    for cell, value in zip(spec.cells([dataset], settings, sizes=sizes, seeds=len(values)), values, strict=True):
        scores = {"log_likelihood": value, "rmse": -value, "coverage": 0.9, "accuracy": 0.5, "ece": 0.1}
        line = {"scores": {"test": scores, "train": scores}, "seconds": {"fit": 2.0}, "details": {}}
        found.append({**cell.identity(), "key": cell.key, **line, "versions": {"gdkl": "0.2.0"}, **more})
    return found


def sheet_of(found, title):
    [sheet] = [one for one in found.sheets if one.title == title]
    return {name: dict(zip(sheet.columns, entries, strict=True)) for name, _, entries in sheet.rows}


class TestSections:
    def test_means_and_deviations_beside_the_papers_with_the_best_marked(self):
        lines = lines_of(UCI, "energy", "gdkl", [-0.2, -0.4, -0.3]) + lines_of(UCI, "energy", "nngp", [-1.0, -1.2])
        rows = sheet_of(section(UCI, lines), "energy")
        gdkl, nngp = rows["gdkl"]["LL"], rows["nngp"]["LL"]
        np.testing.assert_allclose(gdkl.found, (-0.3, 0.1))
        np.testing.assert_allclose(nngp.found, (-1.1, math.sqrt(0.02)))
        assert (gdkl.paper, nngp.paper) == (Published(-0.31, 0.06), Published(-1.07, 0.04))
        assert (gdkl.best, nngp.best) == (True, False)
        assert (gdkl.runs, gdkl.wanted) == (3, 10)
        # Less error is better; neither is the coverage, nor who fits the training rows best.
        assert (rows["gdkl"]["RMSE"].best, rows["nngp"]["RMSE"].best) == (True, False)
        assert not any(rows[name][title].best for name in rows for title in ("90 % coverage", "train LL"))

    def test_what_was_not_run_says_so_and_keeps_the_papers_figure(self):
        rows = sheet_of(section(UCI, []), "boston")
        assert rows["dkl"]["LL"].found is None
        assert rows["dkl"]["LL"].runs == 0
        assert rows["dkl"]["LL"].paper == Published(-553.0, 265.0)

    def test_more_splits_than_declared_count_and_other_settings_do_not(self):
        lines = lines_of(UCI, "boston", "gdkl", [-2.0] * 12)
        lines += lines_of(UCI, "boston", "gdkl", [-9.0], changes={"preset.n_iter": 5})
        lines += [{**line, "scored": "validation", "key": "x"} for line in lines_of(UCI, "boston", "gdkl", [-8.0])]
        found = section(UCI, lines)
        assert sheet_of(found, "boston")["gdkl"]["LL"].runs == 12
        others = list(found.others.values())
        assert [row["LL"] for row in others] == ["−9.00", "−8.00"]
        assert "preset.n_iter 5" in others[0]["settings"]
        assert "validation rows" in others[1]["settings"]
        assert others[0]["paper's LL"] == "−2.47 ± 0.14"
        assert others[1]["paper's LL"] == ""

    def test_quick_lines_stand_apart(self):
        found = section(UCI, lines_of(UCI, "energy", "gdkl", [-0.5, -0.6], quick=True))
        assert found.lines == []
        assert sheet_of(found, "energy")["gdkl"]["LL"].found is None
        [quick] = found.quick_sheets
        assert quick.rows[0][2][0].runs == 2
        cells = len(UCI.datasets) * len(UCI.methods) * UCI.seeds
        assert overview_rows([found])["uci"]["cells run"] == f"0 of {cells}"

    def test_sizes_are_columns_and_tables_of_the_same_runs_read_one_file(self):
        fewshot = spec_named("fewshot")
        lines = lines_of(fewshot, "cifar10", "gdkl", [-1.8, -1.9, -2.0], size=200)
        by_name = {one.spec.name: one for one in sections({"fewshot": lines})}
        for name, paper in (("fewshot", Published(-1.83, 0.01)), ("nn", Published(-1.83, 0.01))):
            entry = sheet_of(by_name[name], "cifar10: LL")["gdkl"]["200"]
            np.testing.assert_allclose(entry.found, (-1.9, 0.1))
            assert entry.paper == paper
        assert sheet_of(by_name["reliability"], "cifar10: ECE")["gdkl"]["200"].found.mean == pytest.approx(0.1)

    def test_paper_experiments_are_listed_run_or_not_and_ours_only_if_run(self):
        found = {one.spec.name for one in sections({})}
        assert found == {name for name, spec in SPECS.items() if spec.paper}
        highdim = next(one for one in sections({}) if one.spec.name == "highdim")
        how, command = highdim.absent["buzz"]
        assert "Twitter.data" in how
        assert "GDKL_DATA" in how
        assert command == "gdkl reproduce highdim --datasets buzz"
        assert highdim.absent["pol"][0] == ""

    def test_as_good_as_the_paper_is_counted_for_gdkl_alone(self):
        good = lines_of(UCI, "energy", "gdkl", [-0.37, -0.37])  # the paper's is −0.31 ± 0.06
        bad = lines_of(UCI, "boston", "gdkl", [-2.63, -2.63])  # −2.47 ± 0.14; but its error is 2.63, not 3.03
        other = lines_of(UCI, "concrete", "nngp", [-1.0, -1.0])
        assert compared_with_paper(section(UCI, good + bad + other)) == (6, 4, 2)

    def test_differences_are_of_experiments_that_exist(self):
        assert set(differences()) <= {*SPECS, "all"}
        assert all(name in differences() for name, spec in SPECS.items() if spec.paper)


class TestFolder:
    def test_files_without_experiments_are_named(self, tmp_path):
        [line] = lines_of(UCI, "energy", "gdkl", [-0.3])
        (tmp_path / "uci.jsonl").write_text(json.dumps(line) + "\n")
        (tmp_path / "speed.jsonl").write_text('{"experiment":"speed","seconds":1}\n')
        lines, foreign = read_folder(tmp_path)
        assert lines == {"uci": [line]}
        assert foreign == ["speed.jsonl"]

    def test_no_folder_and_no_results_are_one_line(self, tmp_path):
        with pytest.raises(DataError, match="is not a folder: give the one that 'gdkl reproduce' wrote to"):
            read_folder(tmp_path / "none")
        with pytest.raises(DataError, match="holds no results: run 'gdkl reproduce NAME"):
            read_folder(tmp_path)


class TestPictures:
    def test_dots_and_curves_of_what_was_run_and_none_of_what_was_not(self):
        uci = section(UCI, lines_of(UCI, "energy", "gdkl", [-0.2, -0.4]))
        assert [one.caption for one in pictures(uci)] == ["energy: LL of each method", "energy: RMSE of each method"]
        fewshot = spec_named("fewshot")
        one = section(fewshot, lines_of(fewshot, "cifar10", "gdkl", [-1.8], size=200))
        assert [picture.caption for picture in pictures(one)] == [
            "cifar10: LL against the number of rows, the paper's dashed",
            "cifar10: accuracy against the number of rows, the paper's dashed",
        ]
        assert list(pictures(section(UCI, []))) == []
        assert list(pictures(section(SMALL, []))) == []

    def test_reliability_is_that_of_all_predictions_together(self):
        rng = np.random.default_rng(0)
        probs = rng.dirichlet([1.0, 1.0, 1.0], size=(2, 40))
        labels = rng.integers(0, 3, size=(2, 40))
        held = []
        for p, y in zip(probs, labels, strict=True):
            bins = calibration_bins(p, y)
            means = {
                name: [None if np.isnan(x) else float(x) for x in getattr(bins, name)]
                for name in ("confidence", "accuracy")
            }
            held.append({"counts": bins.counts.tolist(), **means})
        pooled = pooled_bins(held)
        filled = pooled.counts > 0
        gap = np.abs(pooled.confidence[filled] - pooled.accuracy[filled])
        expected = ece(probs.reshape(-1, 3), labels.reshape(-1))
        assert float((gap * pooled.counts[filled]).sum() / 80) == pytest.approx(expected, abs=1e-6)


@pytest.mark.parametrize(
    ("value", "digits", "shown"),
    [
        (Published(-380.13, 33.9), 2, "−380 ± 34"),
        (Published(0.0349, math.nan), 3, "0.035"),
        (Published(math.nan, math.nan), 2, "nan"),
        (None, 2, "–"),
    ],
)
def test_figures_as_text(value, digits, shown):
    assert text(value, digits) == shown
