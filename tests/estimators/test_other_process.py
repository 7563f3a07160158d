"""A model of a mixed table, saved here and loaded in another process, predicts the same to the last bit."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import classifier_cases
import numpy as np
import pandas as pd
import pytest
import regressor_cases

import gdkl
from mixed_table import mixed

FRAME, Y = mixed(80)
LABELS = np.where(np.median(Y) < Y, "dear", "cheap")

#: What the other process runs: it makes the same table and predicts it with every model of the folder.
PROGRAM = """
import sys
from pathlib import Path

import numpy as np
import torch

import gdkl
from mixed_table import mixed

torch.set_num_threads(1)
frame, _ = mixed(80)
for path in Path(sys.argv[1]).glob("*.gdkl"):
    model = gdkl.load(path)
    predicted = model.predict_proba(frame) if hasattr(model, "classes_") else model.predict(frame)
    np.save(path.with_suffix(".npy"), predicted)
"""


@pytest.mark.filterwarnings("ignore::gdkl.numerics.DataWarning")
def test_every_estimator_predicts_the_same_in_another_process(tmp_path: Path) -> None:
    expected = {}
    for name, make in regressor_cases.MAKERS.items():
        model = make().fit(FRAME[:60], Y[:60])
        model.save(tmp_path / f"{name}.gdkl")
        expected[name] = model.predict(FRAME)
    for name, make in classifier_cases.MAKERS.items():
        model = make().fit(FRAME[:60], LABELS[:60])
        model.save(tmp_path / f"{name} of classes.gdkl")
        expected[f"{name} of classes"] = model.predict_proba(FRAME)
    paths = [str(Path(gdkl.__file__).parents[1]), str(Path(__file__).parents[1])]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(paths)}
    subprocess.run([sys.executable, "-c", PROGRAM, str(tmp_path)], check=True, env=environment)
    for name, values in expected.items():
        np.testing.assert_array_equal(np.load(tmp_path / f"{name}.npy"), values, err_msg=name)


def test_names_of_targets_and_notes_are_kept_in_the_file(tmp_path: Path) -> None:
    X, y = regressor_cases.table(20, outputs=2)
    model = gdkl.GPRegressor().fit(X, pd.DataFrame(y, columns=["low", "high"]))
    model.provenance_ = {"source": "a rig", "rows": [1, 2.5, None]}
    model.save(tmp_path / "model.gdkl")
    again = gdkl.load(tmp_path / "model.gdkl")
    assert (again.target_names_, again.provenance_) == (["low", "high"], model.provenance_)
    again.fit(X, y)
    assert not hasattr(again, "target_names_")
    assert not hasattr(again, "provenance_")
    assert gdkl.GPRegressor().fit(X, pd.Series(y[:, 0], name="yield")).target_names_ == ["yield"]
