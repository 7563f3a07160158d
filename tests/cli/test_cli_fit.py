"""From a CSV file to predictions, scores and a description; what comes out is what Python computes."""

from __future__ import annotations

import hashlib
import io
import json
import os
import shutil
import signal
import subprocess
import sys
import time
import tomllib
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from scipy.stats import norm
from sklearn.metrics import brier_score_loss, log_loss, root_mean_squared_error
from typer.testing import CliRunner, Result

import gdkl
from gdkl.cli import app, table_files, table_model
from gdkl.cli.target import Target
from gdkl.cli.training_table import held_out_rows
from mixed_table import mixed

FRAME, Y = mixed(80)
#: What a CSV file can hold of it; the target stands between the columns.
TABLE = FRAME.drop(columns=["tax", "grade", "zone", "empty"]).astype({"heating": object})
TABLE.insert(3, "price", Y)
RISK = TABLE.rename(columns={"price": "risk"}).assign(risk=np.where(np.median(Y) < Y, "dear", "cheap"))
#: What the model learns from, and how it is read.
LEARNED = TABLE.drop(columns=["price", "name"])
AS_READ = LEARNED.assign(garden=LEARNED["garden"].astype(float), sold=LEARNED["sold"].dt.tz_localize("UTC"))


def run(*arguments: object, stdin: bytes | None = None) -> Result:
    return CliRunner().invoke(app, [str(argument) for argument in arguments], input=stdin)


def done(*arguments: object, stdin: bytes | None = None) -> Result:
    result = run(*arguments, stdin=stdin)
    assert result.exit_code == 0, result.output
    return result


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with tables and two models that the commands fitted."""
    path = tmp_path_factory.mktemp("tables")
    TABLE.to_csv(path / "houses.csv", index=False)
    RISK.to_csv(path / "risk.csv.gz", index=False)
    done(
        "fit", path / "houses.csv", "--target", "price", "--drop", "name", "-o", path / "p.gdkl", "--estimator", "nngp"
    )
    done(
        *("fit", path / "risk.csv.gz", "--target", "risk", "-o", path / "r.gdkl", "--estimator", "nngp"),
        *("--drop", "name", "--no-picture", "--no-refit", "--holdout", "0.25"),
    )
    return path


def predicted(folder: Path, data: object, model: str = "p.gdkl", *options: object) -> pd.DataFrame:
    return pd.read_csv(io.StringIO(done("predict", folder / model, data, *options).stdout))


class TestFit:
    def test_it_says_what_it_does_and_writes_model_and_picture(self, tmp_path: Path) -> None:
        TABLE.to_csv(tmp_path / "a.csv", index=False)
        result = done("fit", tmp_path / "a.csv", "--target", "price", "-o", tmp_path / "m.gdkl", "--estimator", "nngp")
        for told in (
            "80 rows",
            "Task: regression, as 'price' has numbers",
            "to 72 rows, to score it on the other 8",
            "to all 80 rows, for the model that is saved",
            "Columns left out: 'name' (values that hardly ever occur twice)",
            "Dates and durations are read as numbers of days: 'sold'",
        ):
            assert told in result.stderr
        assert "log-likelihood" in result.stdout
        assert {path.name for path in tmp_path.iterdir()} == {"a.csv", "m.gdkl", "m.png"}
        assert (tmp_path / "m.png").read_bytes().startswith(b"\x89PNG")

    def test_json_scores_are_those_of_a_model_of_the_other_rows(self, folder: Path, tmp_path: Path) -> None:
        arguments = (
            "--target",
            "price",
            "--estimator",
            "nngp",
            "--drop",
            "name",
            "--seed",
            5,
            "--no-picture",
            "--json",
        )
        result = done("fit", folder / "houses.csv", "-o", tmp_path / "m.gdkl", *arguments)
        answer = json.loads(result.stdout)
        model = gdkl.load(tmp_path / "m.gdkl")
        assert (answer["task"], answer["estimator"], answer["rows"]) == ("regression", "NNGPRegressor", 80)
        kept = done("fit", folder / "houses.csv", "-o", tmp_path / "k.gdkl", *arguments, "--no-refit")
        partial = gdkl.load(tmp_path / "k.gdkl")
        assert json.loads(kept.stdout)["rows"] == 72
        assert json.loads(kept.stdout)["held_out"] == answer["held_out"]
        # The scores are those of the model without the held-out rows, on these rows.
        rows = held_out_rows(Target("regression", "", TABLE["price"]), 0.1, 5)
        assert len(rows) == 8
        p = partial.predict_distribution(AS_READ.iloc[rows])
        scores = {name: score["value"] for name, score in answer["held_out"]["scores"].items()}
        assert scores == pytest.approx(gdkl.metrics.summary(p, Y[rows]))
        alone = gdkl.NNGPRegressor(relevance=True).fit(AS_READ.drop(index=rows), np.delete(Y, rows))
        np.testing.assert_allclose(partial.predict(AS_READ), alone.predict(AS_READ), rtol=1e-9)
        assert np.abs(model.predict(AS_READ) - partial.predict(AS_READ)).max() > 1e-3
        assert model.target_names_ == [model.provenance_["target"]] == ["price"]
        digest = hashlib.sha256((folder / "houses.csv").read_bytes()).hexdigest()
        assert model.provenance_["sha256"] == digest

    def test_the_model_is_the_one_that_python_fits(self, folder: Path) -> None:
        model = gdkl.NNGPRegressor(relevance=True).fit(AS_READ, Y)
        np.testing.assert_allclose(gdkl.load(folder / "p.gdkl").predict(AS_READ), model.predict(AS_READ), rtol=1e-9)

    def test_settings_come_from_a_file_and_options_come_first(self, folder: Path, tmp_path: Path) -> None:
        written = done("init", folder / "houses.csv", "--target", "price").stdout
        settings = tomllib.loads(written)
        assert settings["columns"] == {
            **dict.fromkeys(("size", "garden", "rooms"), "number"),
            **{"city": "category", "heating": "category", "sold": "date", "name": "drop"},
        }
        assert "3 levels" in next(line for line in written.splitlines() if line.startswith('"city"'))
        text = written.replace('"model.gdkl"', json.dumps(str(tmp_path / "m.gdkl"))).replace('"gdkl"', '"gp"')
        text = text.replace('"rooms" = "number"', '"rooms" = "category"').replace(
            "[options]", "[options]\nard = true\n#"
        )
        (tmp_path / "fit.toml").write_text(text)
        done("fit", "--config", tmp_path / "fit.toml", "--holdout", 0, "--drop", "city")
        model = gdkl.load(tmp_path / "m.gdkl")
        assert (type(model), model.ard) == (gdkl.GPRegressor, True)
        kinds = {code.name: code.kind for code in model.kind_.input.encoder.columns}
        assert kinds["rooms"] == "category"
        assert "city" not in kinds

    def test_missing_targets_are_counted_and_left_out_where_asked(self, tmp_path: Path) -> None:
        TABLE.assign(price=TABLE["price"].mask(TABLE.index < 7)).to_csv(tmp_path / "a.csv", index=False)
        options = ("--target", "price", "-o", tmp_path / "m.gdkl", "--estimator", "gp", "--holdout", 0, "--no-picture")
        result = run("fit", tmp_path / "a.csv", *options)
        assert result.exit_code == 2
        assert "7 of 80 rows have no 'price' (first: row 1): leave them out with --drop-missing-target" in result.stderr
        answer = json.loads(done("fit", tmp_path / "a.csv", *options, "--drop-missing-target", "--json").stdout)
        assert (answer["rows"], answer["rows_without_target"]) == (73, 7)

    def test_european_files_and_parquet_give_the_same_model(self, folder: Path, tmp_path: Path) -> None:
        TABLE.to_csv(tmp_path / "e.csv", index=False, sep=";", decimal=",")
        TABLE.to_parquet(tmp_path / "p.parquet")
        for name in ("e.csv", "p.parquet"):
            done(
                *("fit", tmp_path / name, "--target", "price", "--drop", "name", "-o", tmp_path / "m.gdkl"),
                *("--estimator", "nngp", "--holdout", 0, "--no-picture"),
            )
            p = predicted(tmp_path, folder / "houses.csv", "m.gdkl")["price_mean"]
            np.testing.assert_allclose(p, predicted(folder, folder / "houses.csv")["price_mean"], rtol=1e-9)

    def test_standard_input_is_read(self, folder: Path, tmp_path: Path) -> None:
        content = (folder / "risk.csv.gz").read_bytes()
        arguments = ("--target", "risk", "--estimator", "nngp", "--no-picture", "-o", tmp_path / "m.gdkl", "--json")
        answer = json.loads(done("fit", "-", *arguments, "--drop", "name", stdin=content).stdout)
        assert (answer["task"], answer["rows"]) == ("classification", 80)


class TestPredict:
    def test_predictions_are_pythons_to_the_last_bit(self, folder: Path) -> None:
        found = predicted(folder, folder / "houses.csv")
        assert list(found) == [*TABLE, "price_mean", "price_std", "price_lower_90", "price_upper_90"]
        model = gdkl.load(folder / "p.gdkl")
        mean, std = model.predict(AS_READ, return_std=True)
        np.testing.assert_array_equal(found["price_mean"], mean)
        np.testing.assert_array_equal(found["price_std"], std)
        np.testing.assert_allclose(found["price_lower_90"], norm.ppf(0.05, mean, std), rtol=1e-12)
        ninety_five = predicted(folder, folder / "houses.csv", "p.gdkl", "--coverage", 0.95)
        np.testing.assert_allclose(ninety_five["price_upper_95"], norm.ppf(0.975, mean, std), rtol=1e-12)

    def test_the_columns_of_the_input_are_kept_as_they_are(self, folder: Path, tmp_path: Path) -> None:
        text = (folder / "houses.csv").read_text()
        found = done("predict", folder / "p.gdkl", folder / "houses.csv").stdout
        assert [line.rsplit(",", 4)[0] for line in found.splitlines()] == text.splitlines()

    def test_columns_in_another_order_and_further_ones_change_nothing(self, folder: Path, tmp_path: Path) -> None:
        other = TABLE.drop(columns=["price", "name"])[LEARNED.columns[::-1]].assign(note='said "no", twice;\nthen yes')
        other.to_csv(tmp_path / "a.csv", index=False)
        found = predicted(folder, tmp_path / "a.csv")
        assert found["note"].tolist() == other["note"].tolist()
        expected = predicted(folder, folder / "houses.csv")
        np.testing.assert_array_equal(found["price_mean"], expected["price_mean"])

    def test_parts_of_any_size_give_the_same_predictions(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        whole = predicted(folder, folder / "houses.csv")
        monkeypatch.setattr(table_files, "_BLOCK", 700)
        monkeypatch.setattr(table_model, "PART_ROWS", 7)
        pd.testing.assert_frame_equal(predicted(folder, folder / "houses.csv"), whole, rtol=1e-9)

    def test_classes_have_a_label_and_probabilities(self, folder: Path, tmp_path: Path) -> None:
        out = tmp_path / "out.parquet"
        answer = json.loads(done("predict", folder / "r.gdkl", folder / "risk.csv.gz", "-o", out, "--json").stdout)
        assert answer["rows"] == 80
        found = pd.read_parquet(out)
        assert list(found) == [*RISK, "risk_predicted", "p_cheap", "p_dear"]
        np.testing.assert_allclose(found["p_cheap"] + found["p_dear"], 1, rtol=1e-12)
        assert (found["risk_predicted"] == np.where(found["p_dear"] > 0.5, "dear", "cheap")).all()
        # Text that the model reads as numbers is numbers in Parquet.
        np.testing.assert_array_equal(found["size"], TABLE["size"])

    def test_truth_values_are_labels(self, tmp_path: Path) -> None:
        gdkl.NNGPClassifier(random_state=0).fit(LEARNED[["size", "city"]], TABLE["garden"]).save(tmp_path / "m.gdkl")
        TABLE.to_csv(tmp_path / "a.csv", index=False)
        text = done("predict", tmp_path / "m.gdkl", tmp_path / "a.csv").stdout
        assert text.splitlines()[0].endswith(",garden_predicted,p_False,p_True")
        assert {line.rsplit(",", 3)[1] for line in text.splitlines()[1:]} <= {"False", "True"}
        answer = json.loads(done("evaluate", tmp_path / "m.gdkl", tmp_path / "a.csv", "--json").stdout)
        assert (answer["target"], answer["rows"]) == ("garden", 80)

    def test_unseen_levels_and_missing_cells_are_predicted(self, folder: Path, tmp_path: Path) -> None:
        LEARNED.assign(city="Lima", size=None, heating="?", sold="").to_csv(tmp_path / "a.csv", index=False)
        assert np.isfinite(predicted(folder, tmp_path / "a.csv")["price_mean"]).all()

    def test_an_error_in_the_last_row_leaves_the_old_output(
        self, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(table_model, "PART_ROWS", 10)
        (tmp_path / "out.csv").write_text("old")
        LEARNED.assign(size=[*TABLE["size"][:-1], "large"]).to_csv(tmp_path / "a.csv", index=False)
        result = run("predict", folder / "p.gdkl", tmp_path / "a.csv", "-o", tmp_path / "out.csv")
        assert result.exit_code == 2
        assert "column 'size' has text in row 80 ('large')" in result.stderr
        assert (tmp_path / "out.csv").read_text() == "old"
        assert {path.name for path in tmp_path.iterdir()} == {"a.csv", "out.csv"}

    def test_a_model_of_an_array_takes_columns_in_their_order(self, tmp_path: Path) -> None:
        X = np.random.default_rng(0).normal(size=(30, 2))
        gdkl.GPRegressor().fit(X, np.stack([X[:, 0], X[:, 1] ** 2], axis=1)).save(tmp_path / "m.gdkl")
        pd.DataFrame(X, columns=["a", "b"]).to_csv(tmp_path / "a.csv", index=False)
        found = predicted(tmp_path, tmp_path / "a.csv", "m.gdkl")
        assert list(found)[2:4] == ["y0_mean", "y0_std"]
        np.testing.assert_array_equal(found[["y0_mean", "y1_mean"]], gdkl.load(tmp_path / "m.gdkl").predict(X))

    @pytest.mark.skipif(os.name != "posix", reason="signals of POSIX")
    @pytest.mark.long
    def test_a_kill_half_way_leaves_nothing_under_the_name(self, folder: Path, tmp_path: Path) -> None:
        pd.concat([LEARNED] * 4000).to_csv(tmp_path / "a.csv", index=False)
        command = [sys.executable, "-m", "gdkl", "predict", folder / "p.gdkl", tmp_path / "a.csv"]
        out = tmp_path / "out"
        out.mkdir()
        with subprocess.Popen([*map(str, command), "-o", str(out / "p.csv")], stderr=subprocess.DEVNULL) as process:
            while process.poll() is None and sum(path.stat().st_size for path in out.iterdir()) < 10_000_000:
                time.sleep(0.01)
            process.send_signal(signal.SIGKILL)
        assert process.returncode == -signal.SIGKILL
        assert not (out / "p.csv").exists()


class TestEvaluate:
    def test_scores_of_numbers_are_those_of_other_libraries(self, folder: Path) -> None:
        answer = json.loads(done("evaluate", folder / "p.gdkl", folder / "houses.csv", "--json").stdout)
        p = predicted(folder, folder / "houses.csv")
        scores = {name: score["value"] for name, score in answer["scores"].items()}
        density = norm.logpdf(Y, p["price_mean"], p["price_std"])
        inside = (p["price_lower_90"] <= Y) & (p["price_upper_90"] >= Y)
        assert scores["rmse"] == pytest.approx(root_mean_squared_error(Y, p["price_mean"]))
        assert scores["log_likelihood"] == pytest.approx(density.mean())
        assert scores["coverage"] == pytest.approx(inside.mean())
        assert answer["scores"]["log_likelihood"]["error"] == pytest.approx(density.std(ddof=1) / np.sqrt(80))
        assert answer["scores"]["rmse"]["baseline"] == pytest.approx(Y.std())
        distances = np.abs(Y[:, None] - Y[None])
        assert answer["scores"]["crps"]["baseline"] == pytest.approx(distances.mean() / 2)

    def test_scores_of_classes_are_those_of_other_libraries(self, folder: Path) -> None:
        answer = json.loads(done("evaluate", folder / "r.gdkl", folder / "risk.csv.gz", "--json").stdout)
        scores = {name: score["value"] for name, score in answer["scores"].items()}
        p = predicted(folder, folder / "risk.csv.gz", "r.gdkl")
        assert scores["nll"] == pytest.approx(log_loss(RISK["risk"], p[["p_cheap", "p_dear"]]))
        # Ours sums over both classes.
        assert scores["brier"] == pytest.approx(2 * brier_score_loss(RISK["risk"] == "dear", p["p_dear"]))
        assert scores["accuracy"] == pytest.approx((RISK["risk"] == p["risk_predicted"]).mean())

    def test_rows_without_a_target_are_left_out_where_asked(self, folder: Path, tmp_path: Path) -> None:
        TABLE.assign(price=TABLE["price"].mask(TABLE.index % 2 == 0)).to_csv(tmp_path / "a.csv", index=False)
        assert "40 of 80 rows have no 'price'" in run("evaluate", folder / "p.gdkl", tmp_path / "a.csv").stderr
        half = done("evaluate", folder / "p.gdkl", tmp_path / "a.csv", "--drop-missing-target", "--json").stdout
        TABLE[1::2].to_csv(tmp_path / "b.csv", index=False)
        expected = done("evaluate", folder / "p.gdkl", tmp_path / "b.csv", "--json").stdout
        assert json.loads(half)["scores"] == json.loads(expected)["scores"]


def test_inspect_tells_what_the_model_is(folder: Path) -> None:
    found = json.loads(done("inspect", folder / "p.gdkl", "--json").stdout)
    assert (found["estimator"], found["task"], found["targets"]) == ("NNGPRegressor", "regression", ["price"])
    assert found["bytes"] == (folder / "p.gdkl").stat().st_size
    assert [column["name"] for column in found["columns"]] == list(LEARNED.columns)
    relevance = gdkl.load(folder / "p.gdkl").relevance_["relevance"]
    assert [column["relevance"] for column in found["columns"]] == relevance.tolist()
    assert found["weights"] == {"student": 1.0}
    assert found["options"] == {"relevance": True, "random_state": 0, "verbose": 1}
    text = done("inspect", folder / "r.gdkl").stdout
    for told in ("NNGPClassifier, classification of 'risk'", "cheap, dear", "category of 3", "60 rows of", "date"):
        assert told in text


def test_doctor_finds_this_installation_well() -> None:
    found = json.loads(done("doctor", "--json").stdout)
    assert found["problems"] == []
    assert found["versions"]["gdkl"] == gdkl.__version__
    assert found["versions"]["numpy"] == np.__version__


WRONG = {
    "wrong column": (("fit", "houses.csv", "--target", "pirce"), "no column 'pirce': did you mean 'price'"),
    "no target": (("fit", "houses.csv"), "--target"),
    "no data": (("fit",), "there is no table"),
    "missing file": (("fit", "housse.csv", "--target", "price"), "did you mean 'houses.csv'"),
    "empty file": (("fit", "empty.csv", "--target", "price"), "empty.csv is empty"),
    "no rows": (("fit", "header.csv", "--target", "price"), "has a header and no rows"),
    "no header": (("fit", "numbers.csv", "--target", "price"), "has numbers in its first line"),
    "one value": (("fit", "constant.csv", "--target", "price"), "has one value only"),
    "no folder": (("fit", "houses.csv", "--target", "price", "-o", "no/m.gdkl"), "the folder no does not exist"),
    "picture": (("fit", "houses.csv", "--target", "price", "--picture", "a.doc"), "use .png, .pdf, .svg"),
    "over the data": (("fit", "houses.csv", "--target", "price", "-o", "houses.csv"), "cannot be written"),
    "over the table": (("predict", "p.gdkl", "houses.csv", "-o", "./houses.csv"), "is the table itself"),
    "no table out": (("predict", "p.gdkl", "houses.csv", "-o", "out.xlsx"), "use .csv, .csv.gz or .parquet"),
    "over the model": (("predict", "p.gdkl", "houses.csv", "-o", "p.gdkl"), "p.gdkl is the model"),
    "two in one": (("fit", "houses.csv", "--target", "price", "-o", "m.png"), "both the model and its picture"),
    "infinite": (("predict", "p.gdkl", "infinite.csv"), "column 'size' has an infinite number in row 2"),
    "estimator": (("fit", "houses.csv", "--target", "price", "--estimator", "svm"), "use gdkl, nngp"),
    "other task": (("fit", "houses.csv", "--target", "price", "--estimator", "nn"), "not for regression"),
    "option": (("fit", "houses.csv", "--target", "price", "--set", "n_itr=3"), "did you mean 'n_iter'"),
    "text target": (("fit", "houses.csv", "--target", "city", "--task", "regression"), "is no number in row 1"),
    "many classes": (("fit", "houses.csv", "--target", "name"), "too many for classes"),
    "category": (("fit", "houses.csv", "--target", "price", "--category", "cty"), "did you mean 'city'"),
    "config": (("fit", "--config", "bad.toml"), "unknown setting 'estimater': did you mean 'estimator'"),
    "config value": (("fit", "--config", "worse.toml"), "seed = 'one' is not allowed"),
    "no config": (("fit", "--config", "no.toml"), "cannot read no.toml"),
    "no model": (("predict", "q.gdkl", "houses.csv"), "there is no file q.gdkl"),
    "no model file": (("predict", "houses.csv", "houses.csv"), "not a GDKL model file"),
    "swapped": (("predict", "houses.csv", "p.gdkl"), "the model comes first"),
    "missing columns": (("predict", "p.gdkl", "missing.csv"), "no columns 'size', 'city'"),
    "text for numbers": (("predict", "p.gdkl", "text.csv"), "text.csv: column 'rooms' has text in row 3 ('many')"),
    "text for dates": (("predict", "p.gdkl", "dates.csv"), "the model was fitted to a date"),
    "name taken": (("predict", "p.gdkl", "taken.csv"), "has a column 'price_mean' already"),
    "coverage": (("predict", "p.gdkl", "houses.csv", "--coverage", "90"), "use 0.9"),
    "output folder": (("predict", "p.gdkl", "houses.csv", "-o", "no/out.csv"), "the folder no does not exist"),
    "json to nowhere": (("predict", "p.gdkl", "houses.csv", "--json"), "needs -o"),
    "other kind": (("evaluate", "p.gdkl", "risk.csv.gz", "--target", "risk"), "the model is one of regression"),
    "other labels": (("evaluate", "r.gdkl", "houses.csv", "--target", "city"), "no classes of the model: "),
    "no truth": (("evaluate", "p.gdkl", "missing.csv"), "no column 'price'"),
}


@pytest.fixture(scope="module")
def wrong(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("wrong")
    for name in ("houses.csv", "risk.csv.gz", "p.gdkl", "r.gdkl"):
        shutil.copy(folder / name, path)
    (path / "empty.csv").write_text("")
    (path / "header.csv").write_text("a,price\n")
    (path / "numbers.csv").write_text("1,2\n3,4\n")
    (path / "constant.csv").write_text("a,price\n1,3\n2,3\n")
    (path / "bad.toml").write_text('data = "houses.csv"\nestimater = "gp"\n')
    (path / "worse.toml").write_text('data = "houses.csv"\nseed = "one"\n')
    LEARNED.drop(columns=["size", "city"]).to_csv(path / "missing.csv", index=False)
    LEARNED.assign(rooms=["1", "2", "many", *["3"] * 77]).to_csv(path / "text.csv", index=False)
    LEARNED.assign(size=[1.0, np.inf, *[2.0] * 78]).to_csv(path / "infinite.csv", index=False)
    LEARNED.assign(sold="soon").to_csv(path / "dates.csv", index=False)
    LEARNED.assign(price_mean=1).to_csv(path / "taken.csv", index=False)
    return path


@pytest.mark.parametrize("turn", WRONG)
def test_a_wrong_turn_is_one_line_that_helps(turn: str, wrong: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(wrong)
    before = {path.name: path.stat().st_mtime_ns for path in wrong.iterdir()}
    arguments, told = WRONG[turn]
    result = run(*arguments)
    assert (result.exit_code, result.stdout) == (2, "")
    # Progress may stand before it.
    assert told in result.stderr.splitlines()[-1], result.stderr
    assert result.stderr.splitlines()[-1].startswith("gdkl: ")
    assert {path.name: path.stat().st_mtime_ns for path in wrong.iterdir()} == before
