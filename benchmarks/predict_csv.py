"""``gdkl predict`` of a CSV file that is longer than what memory should hold.

    python benchmarks/predict_csv.py [--rows 1000000]

A model of 100 rows and four columns predicts files of a hundredth of the rows and of all; prints rows a second and the
memory of both processes, which must not grow with the file, and checks that one killed half-way leaves no output.
"""

from __future__ import annotations

import argparse
import json
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from gdkl import NNGPRegressor

COLUMNS = ["a", "b", "c", "d"]
#: Rows that are written at a time.
PART = 100_000


def table(path: Path, rows: int) -> Path:
    """Write a file of so many rows."""
    rng = np.random.default_rng(0)
    for start in range(0, rows, PART):
        frame = pd.DataFrame(rng.standard_normal((min(PART, rows - start), 4)), columns=COLUMNS)
        frame.to_csv(path, mode="a", index=False, header=not start, float_format="%.5f")
    return path


def command(model: Path, data: Path, output: Path) -> list[str]:
    """The command line."""
    return [sys.executable, "-m", "gdkl", "predict", str(model), str(data), "-o", str(output), "--json"]


def predicted(model: Path, data: Path, output: Path) -> dict[str, Any]:
    """What the command says of itself."""
    done = subprocess.run(command(model, data, output), capture_output=True, text=True, check=True)
    return json.loads(done.stdout)


def killed(model: Path, data: Path, folder: Path, size: int) -> list[str]:
    """Names of what a process leaves that is killed when half of its output is written."""
    folder.mkdir()
    with subprocess.Popen(command(model, data, folder / "out.csv"), stdout=subprocess.PIPE) as process:
        while sum(path.stat().st_size for path in folder.iterdir()) < size / 2:
            if process.poll() is not None:
                raise SystemExit("the command ended before it was killed: give more --rows")
            time.sleep(0.01)
        process.send_signal(signal.SIGKILL)
    return sorted(path.name for path in folder.iterdir())


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=1_000_000)
    rows = parser.parse_args().rows
    frame = pd.DataFrame(np.random.default_rng(1).standard_normal((100, 4)), columns=COLUMNS)
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        model = folder / "model.gdkl"
        NNGPRegressor().fit(frame, np.sin(frame["a"]) + frame["b"]).save(model)
        few = predicted(model, table(folder / "few.csv", rows // 100), folder / "few_out.csv")
        data = table(folder / "data.csv", rows)
        many = predicted(model, data, folder / "out.csv")
        size = (folder / "out.csv").stat().st_size
        with (folder / "out.csv").open() as file:
            assert sum(1 for _ in file) == rows + 1
        left = killed(model, data, folder / "killed", size)
        assert "out.csv" not in left, left
        print(
            json.dumps(
                {
                    "rows": rows,
                    "input_mb": round(data.stat().st_size / 1e6, 1),
                    "output_mb": round(size / 1e6, 1),
                    "seconds": many["seconds"],
                    "rows_per_second": many["rows_per_second"],
                    "peak_memory_mb": round(many["peak_memory_bytes"] / 1e6),
                    "peak_memory_mb_of_a_hundredth": round(few["peak_memory_bytes"] / 1e6),
                    "left_by_a_kill": left,
                },
                indent=1,
            )
        )


if __name__ == "__main__":
    main()
