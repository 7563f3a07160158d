"""``gdkl report``: one file that needs no other, and one line for a wrong input."""

from __future__ import annotations

import json
import re
from html.parser import HTMLParser
from itertools import pairwise

import pytest
from typer.testing import CliRunner

from gdkl.cli.app import app
from gdkl.experiments import spec_named

UCI = spec_named("uci")
#: Elements without an end.
VOID = {"meta", "link", "img", "br"}


class Page(HTMLParser):
    """Tables of a page by their caption, addresses, and whether every element is closed."""

    def __init__(self, content: str) -> None:
        super().__init__()
        self.addresses: list[str] = []
        self.open: list[str] = []
        self.values: list[str] = []
        self.ids: list[str] = []
        self.feed(content)

    def handle_starttag(self, tag, attrs):
        found = dict(attrs)
        self.addresses += [value for name, value in attrs if name in ("src", "href")]
        self.values += [found["data-v"]] if "data-v" in found else []
        self.ids += [found["id"]] if "id" in found else []
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag


@pytest.fixture
def runs(tmp_path):
    folder = tmp_path / "runs"
    folder.mkdir()
    rows = []
    for method, ll in (("gdkl", -0.3), ("nngp", -1.1)):
        for quick in (False, True):
            settings = {method: UCI.settings(method, {}, quick=quick)}
            for cell in UCI.cells(["energy"], settings, seeds=2):
                scores = {"log_likelihood": ll + 0.1 * int(cell.split or 0), "rmse": 0.5, "coverage": 0.9}
                extra = {"scores": {"test": scores, "train": scores}, "seconds": {"fit": 2.0, "per_step": 0.01}}
                rows.append(
                    {**cell.identity(), "key": cell.key, **extra, "versions": {"gdkl": "<b>0.2</b>", "device": "cpu"}}
                )
    (folder / "uci.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return folder


def _report(*words):
    return CliRunner().invoke(app, ["report", *map(str, words)])


def test_a_page_that_needs_nothing_else(runs, tmp_path):
    output = tmp_path / "report.html"
    done = _report(runs, "-o", output)
    assert (done.exit_code, done.stdout) == (0, f"Written: {output}\n")
    content = output.read_text(encoding="utf-8")
    page = Page(content)
    assert page.open == []
    assert all(address.startswith(("data:", "#")) for address in page.addresses)
    assert {address[1:] for address in page.addresses if address.startswith("#")} <= set(page.ids)
    assert "@import" not in content
    assert 'name="viewport"' in content
    # Both tables, the quick one marked; the paper's figure and what was not run beside ours.
    assert content.count("−0.25 ± 0.07") >= 2
    assert "Quick, not the protocol: 2 of 10 splits" in content
    assert "paper −0.31 ± 0.06" in content
    assert "not run" in content
    assert "-0.25" in page.values
    # What lines say is text, whatever they say.
    assert "<b>0.2</b>" not in content
    assert "&lt;b&gt;0.2&lt;/b&gt;" in content
    assert not list(tmp_path.glob("*.md"))


def test_equal_results_give_an_equal_page(runs, tmp_path):
    first, second = tmp_path / "a.html", tmp_path / "b.html"
    _report(runs, "-o", first)
    _report(runs, "-o", second)
    assert first.read_bytes() == second.read_bytes()


def test_markdown_has_the_same_tables(runs, tmp_path):
    output = tmp_path / "report.html"
    done = _report(runs, "-o", output, "--markdown")
    assert done.exit_code == 0, done.output
    rows = (tmp_path / "report.md").read_text(encoding="utf-8").splitlines()
    [gdkl] = [row for row in rows if row.startswith("| `gdkl` | **−0.25 ± 0.07** (−0.31 ± 0.06)") and "2 of 10" in row][
        -1:
    ]
    assert "| `dkl` | not run (−3.59 ± 2.09) |" in "\n".join(rows)
    for head, rule in pairwise(rows):
        if re.fullmatch(r"(\|---)+\|", rule):
            assert head.count("|") == rule.count("|")
    assert gdkl.count("|") == 8


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["{runs}/none"], "none is not a folder: give the one that"),
        (["{runs}", "-o", "{runs}"], "is a folder: give the name of a file"),
        (["{runs}", "-o", "{runs}/none/report.html"], "which is no folder"),
        (["{runs}", "-o", "{runs}/report.md", "--markdown"], "give a name that ends in .html"),
        ([], "Missing argument 'RUNS'"),
    ],
)
def test_a_wrong_input_is_one_line(runs, words, message):
    done = _report(*(word.format(runs=runs) for word in words))
    assert done.exit_code == 2
    assert message in done.stderr
    assert done.stderr.count("\n") == 1


def test_a_damaged_file_is_named(runs, tmp_path):
    (runs / "large.jsonl").write_text('{"key"\n{"key":"x"}\n')
    done = _report(runs, "-o", tmp_path / "report.html")
    assert done.exit_code == 2
    assert "large.jsonl, line 1 is not a result" in done.stderr
    assert not (tmp_path / "report.html").exists()
