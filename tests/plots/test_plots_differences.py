"""The picture of a benchmark."""

from __future__ import annotations

import numpy as np
import pytest

from gdkl.numerics import DataError
from gdkl.plots import difference_figure


def test_a_dot_per_method_and_table_far_ones_at_the_edge():
    far = {f"t{number}": 0.1 * number for number in range(19)} | {"last": -50.0}
    figure = difference_figure({"LL": {"ours": far, "theirs": {"t3": -0.5}}, "CRPS": {"ours": {"t3": 0.01}}}, "peer")
    left, right = figure.axes
    assert [label.get_text() for label in left.get_yticklabels()][:3] == ["last", "t0", "t1"]
    ours, theirs, zero = left.get_lines()
    edge = np.quantile(np.abs([*far.values(), -0.5]), 0.9)
    expected = [np.clip(far[label.get_text()], -edge, edge) for label in left.get_yticklabels()]
    np.testing.assert_allclose(sorted(ours.get_xdata()), sorted(expected))
    assert theirs.get_ydata().tolist() == [4]
    assert ours.get_color() != theirs.get_color()
    assert set(zero.get_xdata()) == {0.0}
    assert right.get_title(loc="left") == "CRPS: better than peer by"


def test_nothing_to_draw_is_an_error():
    with pytest.raises(DataError, match="nothing to draw"):
        difference_figure({"LL": {"ours": {}}}, "peer")
