"""What the pages say is so: links lead somewhere, names exist, walks go downwards, tables are those of the files."""

from __future__ import annotations

import json
import re
import shlex
import tomllib
from collections.abc import Callable, Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from gdkl.experiments import settings_by_method, spec_named
from gdkl.experiments.tables import paper_figure

ROOT = Path(__file__).parents[1]
#: Folders of docs that building the site makes.
BUILT = {"_build", "generated", "examples"}
PAGES = sorted([*ROOT.glob("*.md"), *(path for path in (ROOT / "docs").rglob("*.md") if not BUILT & set(path.parts))])
RESULTS = ROOT / "results"


def read(page: str) -> str:
    return (ROOT / page).read_text(encoding="utf-8")


def anchors(page: Path) -> set[str]:
    """Headings as a browser names them."""
    titles = re.findall(r"^#+ (.*)$", page.read_text(encoding="utf-8"), flags=re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_somewhere(page: Path) -> None:
    for link in re.findall(r"\]\(([^)\s]+)\)", page.read_text(encoding="utf-8")):
        if "://" in link:
            continue
        path, _, anchor = link.partition("#")
        target = (page.parent / path).resolve() if path else page
        assert target.exists(), link
        assert not anchor or anchor in anchors(target), link


def test_every_picture_is_shown() -> None:
    shown = {
        (page.parent / link).resolve()
        for page in PAGES
        for link in re.findall(r"!\[[^\]]*\]\(([^)]+)\)", page.read_text(encoding="utf-8"))
    }
    assert shown == {path.resolve() for path in (ROOT / "docs").rglob("*.png") if not BUILT & set(path.parts)}


@pytest.mark.parametrize(("page", "words"), [("method", 2000), ("infinite", 1000), ("gpu", 1000), ("speed", 1000)])
def test_pages_are_short(page: str, words: int) -> None:
    assert len(read(f"docs/{page}.md").split()) < words


def test_the_map_has_every_room() -> None:
    rooms = {path.parent.name for path in (ROOT / "src" / "gdkl").glob("*/__init__.py")}
    assert rooms == set(re.findall(r"^\| `gdkl\.(\w+)`", read("docs/design.md"), flags=re.MULTILINE))


def layers() -> list[set[str]]:
    """Rooms from the top down, as import-linter holds them."""
    settings = tomllib.loads(read("pyproject.toml"))
    contract = next(one for one in settings["tool"]["importlinter"]["contracts"] if one["type"] == "layers")
    return [set(re.findall(r"\w+", layer)) for layer in contract["layers"]]


def test_the_order_of_rooms_is_import_linters() -> None:
    for page in ("docs/design.md", "CONTRIBUTING.md"):
        (drawn,) = re.findall(r"^```\n(cli → .*?)^```$", read(page), flags=re.DOTALL | re.MULTILINE)
        assert [set(re.findall(r"\w+", layer)) for layer in drawn.split("→")] == layers()


def walks() -> dict[str, list[tuple[str, list[str]]]]:
    """By title, the rooms of each walk with their functions."""
    found: dict[str, list[tuple[str, list[str]]]] = {}
    for title, body in re.findall(
        r"^### (.*?)\n(.*?)(?=^#|\Z)", read("docs/design.md"), flags=re.DOTALL | re.MULTILINE
    ):
        rows = re.findall(r"^\| `(\w+)` \| (.*?) \| ", body, flags=re.MULTILINE)
        found[title] = [(room, re.findall(r"`([\w.]+)`", functions)) for room, functions in rows]
    return found


def exists(room: str, name: str) -> bool:
    """Whether a name, relative to a room, is a module, a class, a function or a method."""
    try:
        path = f"gdkl.{room}"
        found: Any = import_module(path)
        for part in name.split("."):
            path = f"{path}.{part}"
            found = getattr(found, part) if hasattr(found, part) else import_module(path)
    except ImportError:
        return False
    return True


def test_walks_name_what_exists() -> None:
    assert len(walks()) == 5
    missing = [
        f"{room}: {name}"
        for rooms in walks().values()
        for room, names in rooms
        for name in names
        if not exists(room, name)
    ]
    assert not missing


def test_walks_cross_each_room_once_and_downwards() -> None:
    level = {room: number for number, rooms in enumerate(layers()) for room in rooms}
    for title, rooms in walks().items():
        names = [room for room, _ in rooms]
        assert len(names) == len(set(names)), title
        assert names == sorted(names, key=level.__getitem__), title


def reproduce_commands() -> list[str]:
    """Commands in the code blocks of the results, without comments."""
    text = "\n".join(page.read_text(encoding="utf-8") for page in (ROOT / "docs" / "results").glob("*.md"))
    found = re.findall(r"^gdkl reproduce .*$", text.replace("\\\n", " "), flags=re.MULTILINE)
    return [command.partition("#")[0].strip() for command in found]


def test_commands_of_the_results_are_understood() -> None:
    commands = reproduce_commands()
    assert len(commands) >= 10
    for command in commands:
        name, *options = shlex.split(command)[2:]
        given = dict(zip(options[::2], options[1::2], strict=True))
        spec = spec_named(name)
        methods = given.get("--methods", ",".join(spec.methods)).split(",")
        assert set(methods) <= set(spec.methods), command
        assert set(given.get("--datasets", spec.datasets[0]).split(",")) <= set(spec.datasets), command
        changes = [value for key, value in zip(options[::2], options[1::2], strict=True) if key == "--set"]
        settings_by_method(spec, methods, changes)


def lines(experiment: str, version: str | None = None) -> list[dict[str, Any]]:
    """Lines of a result file, all or those that one version made."""
    with (RESULTS / f"{experiment}.jsonl").open(encoding="utf-8") as file:
        stored = [json.loads(line) for line in file]
    return [line for line in stored if version is None or line["versions"]["gdkl"] == version]


def table_rows(page: str, after: str = "") -> Iterator[list[str]]:
    """Cells of the first table behind a text, without its heading; an empty first cell is that of the row above."""
    text = read(page)
    block = re.search(r"(^\|.*\n)+", text[text.index(after) :], flags=re.MULTILINE)
    assert block is not None
    first = ""
    for row in block.group().splitlines()[2:]:
        cells = [cell.strip().replace("−", "-").replace("**", "") for cell in row.strip("|").split("|")]
        first = cells[0] or first
        yield [first, *cells[1:]]


def scores(rows: list[dict[str, Any]], name: str, part: str = "test") -> np.ndarray:
    return np.array([row["scores"][part][name] for row in rows])


def shown(values: np.ndarray, digits: int, spread: Callable[[np.ndarray], float] | None = None) -> str:
    mean = f"{values.mean():.{digits}f}"
    return mean if spread is None else f"{mean} ± {spread(values):.{digits}f}"


def standard_error(values: np.ndarray) -> float:
    return float(values.std(ddof=1) / np.sqrt(len(values)))


def deviation(values: np.ndarray) -> float:
    return float(values.std(ddof=1))


def test_the_uci_table_is_that_of_its_file() -> None:
    stored = [line for line in lines("uci", "0.1.0") if "repeat" not in line["settings"]]
    uci = spec_named("uci")
    columns = {column.paper: column for column in uci.columns}
    rows = list(table_rows("docs/results/uci.md"))
    assert len(rows) == 18
    for dataset, method, ll, paper_ll, rmse, paper_rmse, coverage in rows:
        name = method.strip("`")
        own = [line for line in stored if (line["dataset"], line["method"]) == (dataset.lower(), name)]
        assert len(own) == 10
        assert ll == shown(scores(own, "log_likelihood"), 2, standard_error)
        assert rmse == shown(scores(own, "rmse"), 2, standard_error)
        assert coverage == shown(scores(own, "coverage"), 2)
        for text, score in ((paper_ll, "ll"), (paper_rmse, "rmse")):
            figure = paper_figure(uci, columns[score], dataset.lower(), None, name)
            assert not text or (figure is not None and float(text) == figure.mean)


def mean_over_splits(cells: dict[str, dict[int, list[float]]], other: dict[str, dict[int, Any]]) -> np.ndarray:
    """Means ``(tables, scores)`` over the splits of each table that another method has, too."""
    return np.array([np.mean([cells[name][split] for split in sorted(other[name])], axis=0) for name in sorted(other)])


@pytest.mark.parametrize("name", ["tables", "tables-unseen"])
@pytest.mark.parametrize("size", [100, 500, 2000])
def test_the_page_of_real_tables_is_that_of_its_file(name: str, size: int) -> None:
    names = ("scaled_log_likelihood", "scaled_crps", "scaled_rmse", "coverage")
    cells: dict[str, dict[str, dict[int, list[float]]]] = {}
    for line in lines(name):
        if line["size"] == size:
            found = [line["scores"]["test"][score] for score in names]
            cells.setdefault(line["method"], {}).setdefault(line["dataset"], {})[line["split"]] = found
    rows = list(table_rows("docs/results/tables.md", f"<!-- {name} {size} -->"))
    assert {row[0].strip("`") for row in rows} == set(cells)
    for method, count, ll, median, crps, rmse, coverage, gain, better in rows:
        stored = cells[method.strip("`")]
        own = mean_over_splits(stored, stored)
        assert len(own) == 22
        assert int(count) == sum(map(len, stored.values()))
        assert (ll, median) == (f"{own[:, 0].mean():.2f}", f"{np.median(own[:, 0]):.2f}")
        assert (crps, rmse) == (shown(own[:, 1], 3), shown(own[:, 2], 3))
        assert coverage == f"{own[:, 3].mean():.2f} ({own[:, 3].min():.2f})"
        if better:
            both = {table: set(splits) & set(cells["gdkl"][table]) for table, splits in stored.items()}
            gains = mean_over_splits(cells["gdkl"], both) - mean_over_splits(stored, both)
            assert float(gain) == pytest.approx(gains[:, 0].mean(), abs=0.006)
            assert better == f"{(gains[:, 0] > 0).sum()} / {(gains[:, 1] < 0).sum()}"


@pytest.mark.parametrize(
    ("after", "name", "tables"),
    [("chose settings:", "tables-classes", 7), ("the second:", "tables-classes-unseen", 8)],
)
def test_classification_of_real_tables_is_that_of_its_file(after: str, name: str, tables: int) -> None:
    means: dict[str, dict[str, list[float]]] = {}
    for line in lines(name):
        found = [line["scores"]["test"][score] for score in ("log_likelihood", "brier", "ece", "accuracy")]
        means.setdefault(line["method"], {}).setdefault(line["dataset"], []).append(found)
    by_method = {
        method: np.array([np.mean(found, axis=0) for _, found in sorted(own.items())]) for method, own in means.items()
    }
    rows = [row for row in table_rows("docs/results/tables.md", after) if row[0].strip("`") in by_method]
    assert {row[0].strip("`") for row in rows} == set(by_method)
    for method, nll, median, brier, ece, accuracy, better in rows:
        own = by_method[method.strip("`")]
        assert len(own) == tables
        assert (nll, median) == (f"{-own[:, 0].mean():.3f}", f"{-np.median(own[:, 0]):.3f}")
        assert (brier, ece, accuracy) == tuple(
            f"{own[:, i].mean() * f:.{d}f}" for i, f, d in ((1, 1, 3), (2, 1, 3), (3, 100, 1))
        )
        if better:
            assert int(better) == (by_method["gdkl"][:, 0] > own[:, 0]).sum()


@pytest.mark.parametrize("after", ["# Classification", "The same with a temperature"])
def test_the_tables_of_classes_are_those_of_their_file(after: str) -> None:
    stored, page = lines("classes"), "docs/results/classes.md"
    text = read(page)
    methods = re.findall(r"`(\w+)`", text[text.index("| |", text.index(after)) :].splitlines()[0])
    for name, *cells in table_rows(page, after):
        dataset, part = name.split(", ")
        for method, cell in zip(methods, cells, strict=True):
            where = (dataset, float(part.split()[0]) / 100, method)
            own = [line for line in stored if (line["dataset"], line["size"], line["method"]) == where]
            if cell == "–":
                assert not own
                continue
            assert len(own) == 5
            nll = shown(-scores(own, "log_likelihood"), 3, standard_error)
            assert cell == f"{nll} / {shown(scores(own, 'ece'), 3)}"


def test_the_table_of_large_data_is_that_of_its_file() -> None:
    stored = [line for line in lines("large") if "repeat" not in line["settings"]]
    for name, method, *cells in table_rows("docs/results/large.md"):
        where = (name.split(",")[0], method.strip("`"))
        own = [line for line in stored if (line["dataset"], line["method"]) == where]
        assert len(own) == 3
        assert cells == [shown(scores(own, score), 3) for score in ("log_likelihood", "rmse", "coverage")]


def few_shot(method: str, size: int, *, seeds: bool = True, **settings: Any) -> list[dict[str, Any]]:
    """Lines of the paper's draw, one per seed or the mean of the seeds' probabilities."""
    return [
        line
        for line in lines("fewshot")
        if (line["method"], line["size"], line["split"], line["scored"]) == (method, size, "paper", "test")
        and isinstance(line["seed"], int) is seeds
        and all(line["settings"].get(name) == value for name, value in settings.items())
    ]


def pair(rows: list[dict[str, Any]], part: str = "test") -> str:
    return f"{shown(scores(rows, 'log_likelihood', part), 3)} / {shown(100 * scores(rows, 'accuracy', part), 1)}"


def triple(rows: list[dict[str, Any]], part: str = "test") -> str:
    return f"{pair(rows, part)} / {shown(scores(rows, 'ece', part), 3)}"


def test_the_few_shot_table_is_that_of_its_file() -> None:
    rows = list(table_rows("docs/results/images.md", "### Trained on augmented images"))
    assert [int(row[0]) for row in rows] == [50, 100, 200, 400, 800]
    for size, ll, _, accuracy, _, ece, shifted, three in rows:
        own = few_shot("gdkl", int(size), augment=True)
        assert len(own) == 3
        assert ll == shown(scores(own, "log_likelihood"), 3, deviation)
        assert accuracy == shown(100 * scores(own, "accuracy"), 1, deviation)
        assert ece == shown(scores(own, "ece"), 3)
        assert shifted == pair(own, "shifted")
        assert three == pair(few_shot("gdkl", int(size), seeds=False, augment=True))


def test_the_few_shot_methods_are_those_of_their_file() -> None:
    for method, *cells in table_rows("docs/results/images.md", "| LL / accuracy / ECE | 200 images"):
        name = method.strip("`")
        found = [few_shot(name, size, seeds=seeds, augment=True) for size in (200, 800) for seeds in (True, False)]
        assert cells == [triple(rows) for rows in found]
    for images, method, *cells in table_rows("docs/results/images.md", "| LL / accuracy / ECE | | one view"):
        name, size = method.strip("`"), int(images.split()[0])
        settings = {"depth": 10} if name == "nngp" else {"depth": 10, "augment": False}
        own, mean = (few_shot(name, size, seeds=seeds, **settings) for seeds in (True, False))
        last = "" if name == "nngp" else triple(mean, "shifted")
        assert cells == [triple(own), triple(own, "shifted"), last]


def test_the_few_shot_table_without_augmentation_is_that_of_its_file() -> None:
    for size, ll, shifted, three, _, accuracy, *right in table_rows(
        "docs/results/images.md", "### Trained on the images"
    ):
        own, mean = (few_shot("gdkl", int(size), seeds=seeds, depth=10, augment=False) for seeds in (True, False))
        assert ll == shown(scores(own, "log_likelihood"), 3, deviation)
        assert accuracy == shown(100 * scores(own, "accuracy"), 1, deviation)
        assert [f"{shifted} / {right[0]}", f"{three} / {right[1]}"] == [pair(own, "shifted"), pair(mean, "shifted")]


def test_the_few_shot_table_of_the_papers_network_is_that_of_its_file() -> None:
    for name, ll, three, _, accuracy, three_accuracy, _ in table_rows(
        "docs/results/images.md", "### The paper's network"
    ):
        size, symmetric = int(name.split()[0]), "one half" not in name
        settings = {"depth": 28, "symmetric_splits": symmetric}
        own, mean = (few_shot("gdkl", size, seeds=seeds, **settings) for seeds in (True, False))
        assert ll == shown(scores(own, "log_likelihood"), 3, deviation)
        assert accuracy == shown(100 * scores(own, "accuracy"), 1, deviation)
        assert f"{three} / {three_accuracy}" == pair(mean, "mirrored")


def test_the_table_of_all_of_cifar_is_that_of_its_file() -> None:
    stored = [line for line in lines("full", "0.1.0") if line["scored"] == "test"]

    def of(line: dict[str, Any], part: str) -> list[str]:
        if part not in line["scores"]:
            return [""]
        found = line["scores"][part]
        return [f"{100 * found['accuracy']:.2f}", f"{found['log_likelihood']:.3f}", f"{found['ece']:.3f}"]

    for name, method, *cells in table_rows("docs/results/images.md", "## All of CIFAR"):
        where = (name.lower().replace("-", ""), method.strip("`"))
        (own,) = [
            line
            for line in stored
            if (line["dataset"], line["method"]) == where and line["settings"].get("beta", 0.09) == 0.09
        ]
        assert cells[:5] == [*of(own, "test"), *(" / ".join(of(own, part)) for part in ("mirrored", "shifted"))]


def test_the_timings_of_a_step_are_those_of_their_file() -> None:
    (step,) = [line["measured"] for line in lines("speed") if line["benchmark"] == "exact_step"]
    names = ("gdkl", "dkl", "published gdkl", "gpytorch dkl")
    for n, *cells, ratio in table_rows("docs/speed.md", "## One exact step"):
        found = step[n]
        assert cells == [f"{found[name]:.1f}" if name in found else "" for name in names]
        assert ratio == f"{found['gdkl'] / found['dkl']:.2f}"
