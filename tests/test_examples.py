"""Examples run, and show what they say."""

from __future__ import annotations

import runpy
from pathlib import Path

EXAMPLES = Path(__file__).parents[1] / "examples"


def test_the_guided_objective_in_a_loop_of_gpytorch(capsys):
    names = runpy.run_path(str(EXAMPLES / "gpytorch_loop.py"))
    added = [line for line in (EXAMPLES / "gpytorch_loop.py").read_text().splitlines() if line.endswith("# +")]
    assert 0 < len(added) < 15
    found = names["main"]()
    assert found["guided"][0] > found["marginal likelihood"][0] + 0.5
    assert 0.8 < found["guided"][1] < 0.97
    assert capsys.readouterr().out.count("log-likelihood") == 2
