"""Results files: torn lines, damage, and the results that come with the project."""

from __future__ import annotations

import json
import warnings
from pathlib import Path

import pytest

from gdkl.experiments import SPECS, Cell, Results, table
from gdkl.experiments.results import check_writable
from gdkl.numerics import DataError, DataWarning

ROOT = Path(__file__).parents[2]
STORED = sorted((ROOT / "results").glob("*.jsonl"))


def test_a_torn_last_line_is_left_out_with_a_warning_and_cut_off_by_the_next(tmp_path):
    results = Results(tmp_path / "a.jsonl")
    for key in ("one", "two"):
        results.append({"key": key})
    whole = results.path.read_bytes()
    results.path.write_bytes(whole + b'{"key":"three","sco')
    with pytest.warns(DataWarning, match="incomplete"):
        assert [line["key"] for line in results.lines()] == ["one", "two"]
    results.append({"key": "four"})
    assert [line["key"] for line in results.lines()] == ["one", "two", "four"]
    assert results.path.read_bytes().startswith(whole)


def test_a_last_line_that_lacks_its_newline_alone_counts(tmp_path):
    results = Results(tmp_path / "a.jsonl")
    results.path.write_text('{"key":"one"}')
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert len(results.lines()) == 1
    results.append({"key": "one"})
    results.append({"key": "two"})
    assert [line["key"] for line in results.lines()] == ["one", "two"]


def test_a_key_is_stored_once(tmp_path):
    results = Results(tmp_path / "new" / "a.jsonl")
    assert results.lines() == []
    results.append({"key": "one", "scores": 1})
    results.append({"key": "one", "scores": 2})
    assert results.lines() == [{"key": "one", "scores": 1}]


def test_damage_elsewhere_is_an_error_that_names_the_line(tmp_path):
    path = tmp_path / "a.jsonl"
    path.write_text('{"key":"one"}\nnonsense\n{"key":"two"}\n')
    with pytest.raises(DataError, match="line 2"):
        Results(path).lines()


def test_a_folder_that_cannot_be_written_to_is_refused(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(DataError, match="cannot write to"):
        check_writable(tmp_path / "file")


def test_a_key_depends_on_every_field():
    cell = Cell("uci", "boston", "gdkl", None, 0, 0, "test", {"beta": 1.0})
    others = [
        Cell("uci", "boston", "gdkl", None, 0, 0, "test", {"beta": 1.1}),
        Cell("uci", "boston", "gdkl", None, 1, 0, "test", {"beta": 1.0}),
        Cell("uci", "boston", "gdkl", None, 0, 1, "test", {"beta": 1.0}),
        Cell("uci", "boston", "gdkl", 50, 0, 0, "test", {"beta": 1.0}),
        Cell("uci", "boston", "gdkl", None, 0, 0, "validation", {"beta": 1.0}),
        Cell("uci", "boston", "dkl", None, 0, 0, "test", {"beta": 1.0}),
    ]
    assert len({cell.key, *(other.key for other in others)}) == 7
    assert cell.key == Cell("uci", "boston", "gdkl", None, 0, 0, "test", {"beta": 1.0}).key


class TestStoredResults:
    def test_every_file_is_in_the_index(self):
        index = (ROOT / "results" / "README.md").read_text()
        assert STORED
        for path in STORED:
            assert f"`{path.name}`" in index

    @pytest.mark.parametrize("path", [path for path in STORED if path.stem != "speed"], ids=lambda path: path.stem)
    def test_lines_have_the_keys_of_their_cells_and_render(self, path):
        lines = Results(path).lines()
        spec = SPECS[path.stem]
        names = ("experiment", "dataset", "method", "size", "split", "seed", "scored", "settings")
        for line in lines:
            fields = {name: line[name] for name in names}
            fields["seed"] = tuple(line["seed"]) if isinstance(line["seed"], list) else line["seed"]
            assert Cell(**fields).key == line["key"]
            assert line["versions"]["gdkl"]
            assert line["method"] in spec.methods
        assert len({line["key"] for line in lines}) == len(lines)
        assert table(spec, lines).row_count > 0

    def test_speed_has_one_line_per_benchmark_and_version(self):
        lines = [json.loads(row) for row in (ROOT / "results" / "speed.jsonl").read_text().splitlines()]
        # Lines of 0.1.0 name their version among what was measured, or not at all.
        named = [(line["benchmark"], line.get("versions", {}).get("gdkl", "0.1.0")) for line in lines]
        assert len(set(named)) == len(named)
        for line in lines:
            assert (ROOT / line["command"].split()[1]).is_file()
