"""Help is fast: what models, plots and files need is imported when it is used."""

from __future__ import annotations

import subprocess
import sys

import pytest

SLOW = ("torch", "gpytorch", "sklearn", "pandas", "matplotlib", "scipy", "pooch", "joblib")


@pytest.mark.parametrize("room", ["cli", "datasets", "experiments", "metrics", "plots", "predictive"])
def test_a_room_is_cheap_to_import(room: str) -> None:
    code = f"import sys, gdkl.{room}; print(*[name for name in {SLOW} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == []


def test_help_needs_no_models() -> None:
    code = (
        "import sys; from gdkl.cli.app import app\n"
        "try: app(['--help'])\n"
        f"finally: print(*[name for name in {SLOW} if name in sys.modules], file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0
    assert "reproduce" in done.stdout
    assert done.stderr.split() == []
