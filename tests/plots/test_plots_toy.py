"""What the paper says of its illustrative example, checked on the numbers behind the picture."""

from __future__ import annotations

import numpy as np
import pytest

from gdkl.numerics import DataError, OptionError
from gdkl.plots import NOISE_VARIANCE, ToyExample, in_region, label_informed, toy_example

NOISE_STD = NOISE_VARIANCE**0.5


@pytest.fixture(scope="module", params=[0, 1])
def example(request: pytest.FixtureRequest) -> ToyExample:
    return toy_example(seed=request.param)


def rms(values: np.ndarray) -> float:
    return float(np.sqrt(np.mean(values**2)))


def test_the_data_is_the_papers(example: ToyExample) -> None:
    assert len(example.x2) == 400
    # 10 of the 14 units of the domain are left to the 400 points of D1.
    assert 250 < len(example.x1) < 320
    assert not in_region(example.x1, (4, 8)).any()
    assert 80 < in_region(example.x2, example.gap).sum() < 150
    assert min(example.x1.min(), example.x2.min()) < -1.8
    assert max(example.x1.max(), example.x2.max()) > 11.8
    assert rms(example.y2 - example.truth2) == pytest.approx(NOISE_STD, rel=0.15)
    assert example.noise_variance == pytest.approx(NOISE_VARIANCE, rel=0.25)


def test_the_posterior_knows_where_it_has_no_data(example: ToyExample) -> None:
    deep, outside = in_region(example.grid, (5, 7)), ~in_region(example.grid, (3.5, 8.5))
    latent = np.sqrt(example.posterior.latent_variance)
    assert latent[deep].min() > 5 * np.median(latent[outside])


def test_outside_the_gap_the_target_is_tight_and_near_the_truth(example: ToyExample) -> None:
    outside = ~in_region(example.x2, example.gap)
    std = np.sqrt(example.target_variance[outside])
    assert std.max() < 0.5 * NOISE_STD
    assert np.median(std) < 0.25 * NOISE_STD
    to_truth = rms((example.target_mean - example.truth2)[outside])
    to_label = rms((example.target_mean - example.y2)[outside])
    assert to_truth < 0.4 * to_label
    assert to_truth < 0.4 * NOISE_STD


def test_inside_the_gap_the_target_is_wide_and_near_the_label(example: ToyExample) -> None:
    deep = in_region(example.x2, (5, 7))
    std = np.sqrt(example.target_variance[deep])
    assert std.min() > 0.65 * NOISE_STD
    assert std.min() > 3 * np.median(np.sqrt(example.target_variance[~in_region(example.x2, example.gap)]))
    to_label = rms((example.target_mean - example.y2)[deep])
    # The label moves the belief most of the way from where it stood without it ...
    assert to_label < 0.45 * rms((example.marginal_mean - example.y2)[deep])
    # ... so that it lies nearer to the label than to the function.
    assert to_label < rms((example.target_mean - example.truth2)[deep])


def test_seeing_a_label_is_conditioning_the_joint_gaussian() -> None:
    rng = np.random.default_rng(0)
    mean, variance, y, noise = rng.normal(size=6), rng.uniform(0.1, 3, size=6), rng.normal(size=6), 0.3
    got_mean, got_variance = label_informed(mean, variance, y, noise)
    # f given y = f + e, from the precisions that the paper writes.
    expected_variance = 1 / (1 / variance + 1 / noise)
    assert got_variance == pytest.approx(expected_variance, rel=1e-13)
    assert got_mean == pytest.approx(expected_variance * (mean / variance + y / noise), rel=1e-12)


def test_seeing_a_label_at_the_limits() -> None:
    mean, variance = label_informed([1.0, 1.0], [0.0, 1e12], [5.0, 5.0], 0.5)
    assert mean == pytest.approx([1.0, 5.0])
    assert variance == pytest.approx([0.0, 0.5])


@pytest.mark.parametrize(("variance", "noise"), [([-1.0], 1.0), ([1.0], 0.0)])
def test_impossible_variances_are_refused(variance: list[float], noise: float) -> None:
    with pytest.raises(DataError, match="positive noise_variance"):
        label_informed([0.0], variance, [0.0], noise)


def test_one_seed_gives_one_example_and_another_another() -> None:
    first, again, other = (toy_example(100, seed=seed) for seed in (3, 3, 4))
    assert np.array_equal(first.target_mean, again.target_mean)
    assert not np.array_equal(first.x2, other.x2)


def test_too_few_points_are_refused() -> None:
    with pytest.raises(OptionError, match="at least 20"):
        toy_example(10)
