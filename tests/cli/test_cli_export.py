"""``gdkl export``: a file that onnxruntime runs, and wrong turns."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import onnxruntime
import pandas as pd
import pytest
from typer.testing import CliRunner

from gdkl import NNGPClassifier, NNGPRegressor
from gdkl.cli.app import app


def run(*arguments: object):
    return CliRunner().invoke(app, [str(argument) for argument in arguments])


def test_export(tmp_path: Path) -> None:
    frame = pd.DataFrame({"size": np.linspace(1, 9, 30), "city": ["Bonn", "Oslo", "Ghent"] * 10})
    risk = pd.Series(["low", "high", "low"] * 10, name="risk")
    model = NNGPClassifier(random_state=0).fit(frame, risk)
    model.save(tmp_path / "model.gdkl")
    done = run("export", tmp_path / "model.gdkl", "-o", tmp_path / "model.onnx", "--json")
    assert done.exit_code == 0, done.output
    found = json.loads(done.stdout)
    assert found["inputs"] == ["size", "city"]
    assert found["bytes"] == (tmp_path / "model.onnx").stat().st_size
    session = onnxruntime.InferenceSession(found["output"])
    label, probs = session.run(None, {name: frame[name].to_numpy(dtype=None) for name in frame})
    np.testing.assert_allclose(probs, model.predict_proba(frame), atol=1e-9)
    assert label.tolist() == model.predict(frame).tolist()


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("model.gdkl", "-o", "model.gdkl"), "does not end with .onnx"),
        (("nothing.gdkl", "-o", "model.onnx"), "there is no file"),
        (("model.gdkl", "-o", "nowhere/model.onnx"), "nowhere does not exist"),
        (("model.gdkl",), "Missing option"),
        (("model.onnx", "-o", "other.onnx"), "model.onnx"),
    ],
)
def test_wrong_turns(arguments: tuple[str, ...], words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    x = np.linspace(-1, 1, 10)[:, None]
    NNGPRegressor().fit(x, x[:, 0]).save("model.gdkl")
    Path("model.onnx").write_bytes(b"\x08\x08\x12\x04gdkl" * 10)
    done = run("export", *arguments)
    assert done.exit_code == 2
    assert words in done.stderr
    assert done.stderr.count("\n") == 1
    assert sorted(entry.name for entry in tmp_path.iterdir()) == ["model.gdkl", "model.onnx"]
