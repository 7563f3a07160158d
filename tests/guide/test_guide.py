"""The guide: evidence to convergence, split posteriors against the textbook, any kernel as guide."""

from __future__ import annotations

import gpytorch
import numpy as np
import pytest
import torch
from hypothesis import example, given
from hypothesis import strategies as st
from scipy.optimize import minimize

import dense
from gdkl import infinite
from gdkl.gp import Split
from gdkl.guide import as_kernel_function, fit_by_evidence, fit_guide
from gdkl.numerics import DataError, OptionError
from gdkl.training import SplitSampler

FLOOR = 1e-4


def _data(members=1, outputs=1, n=20, d=3, seed=0):
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(members, n, d, dtype=torch.float64, generator=generator)
    y = torch.sin(2 * x[..., :1]) + 0.3 * torch.randn(members, n, outputs, dtype=torch.float64, generator=generator)
    return x, y.mT.contiguous()


def _guide(x, y):
    return fit_guide(as_kernel_function(infinite.mlp()), x, y)


@given(seed=st.integers(0, 10_000), noise=st.sampled_from([0.0, 0.05, 0.5, 5.0]))
@example(seed=642, noise=0.05).via("two basins, the deeper one narrow")
def test_evidence_fit_is_at_least_as_good_as_any_search_finds(seed, noise):
    rng = np.random.default_rng(seed)
    x = rng.standard_normal((25, 2))
    K = dense.rbf(x, x)
    y = np.linalg.cholesky(K + 1e-9 * np.eye(25)) @ rng.standard_normal(25) + noise * rng.standard_normal(25)
    fit = fit_by_evidence(torch.as_tensor(K)[None], torch.as_tensor(y)[None, None], FLOOR)

    def negative(log_parameters):
        scale, variance = np.exp(log_parameters)
        return -dense.log_evidence(scale * K, y, variance) / 25

    bounds = [(np.log(1e-8), np.log(1e8)), (np.log(FLOOR), np.log(1e4))]
    found = min(
        minimize(negative, start, method="L-BFGS-B", bounds=bounds).fun
        for start in ([0.0, -4.0], [0.0, 0.0], [-3.0, 1.0], [2.0, np.log(FLOOR)])
    )
    ours = negative(np.log([float(fit.scale), float(fit.noise)]))
    np.testing.assert_allclose(ours, -float(fit.log_evidence), rtol=1e-7, atol=1e-7)
    assert float(fit.noise) >= FLOOR
    assert ours <= found + 1e-6


def test_a_prior_on_the_noise_keeps_few_rows_from_being_all_noise():
    # The evidence of these rows is highest where nothing is signal, and the prior's weight falls with their number.
    x = torch.rand(12, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    y = torch.sin(3 * x).sum(dim=-1)
    y = (y - y.mean()) / y.std(unbiased=False)
    gram = infinite.mlp().kernel(2 * x - 1)[None]
    alone, believed = (fit_by_evidence(gram, y[None, None], 1e-6, little_noise=little) for little in (False, True))
    assert alone.noise > 0.9
    assert believed.noise < 0.1
    assert alone.log_evidence > believed.log_evidence
    many = torch.randn(1, 1, 2000, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    exact, prior = (fit_by_evidence(torch.eye(2000)[None].double(), many, 1e-6, little_noise=k) for k in (False, True))
    total = [float(fit.scale + fit.noise) for fit in (exact, prior)]
    np.testing.assert_allclose(total, float(many.square().mean()), rtol=1e-2)


def test_evidence_fit_of_a_batch_is_the_fit_of_each():
    x, y = _data(members=3, outputs=2)
    gram = as_kernel_function(infinite.mlp()).gram(x)
    together = fit_by_evidence(gram, y, FLOOR)
    for i in range(3):
        for o in range(2):
            alone = fit_by_evidence(gram[i : i + 1], y[i : i + 1, o : o + 1], FLOOR)
            for a, b in zip(together, alone, strict=True):
                torch.testing.assert_close(a[i, o], b[0, 0], rtol=1e-6, atol=1e-9)


def test_split_posteriors_are_the_textbook_ones():
    x, y = _data(members=2, outputs=2, n=17)
    x[:, 5] = x[:, 2]  # duplicates among the rows
    guide = _guide(x, y)
    splits = SplitSampler(17, members=2, seed=1).draw(4)
    p = guide.posterior(splits)
    assert p.mean.shape == (4, 2, 2, 9)
    for s in range(4):
        for i in range(2):
            one, two = splits.observed[s, i], splits.held_out[s, i]
            for o in range(2):
                K = float(guide.scale[i, o]) * guide.gram[i].numpy()
                mean, covariance = dense.posterior(
                    K[np.ix_(one, one)],
                    K[np.ix_(two, one)],
                    K[np.ix_(two, two)],
                    y[i, o, one].numpy(),
                    float(guide.noise[i, o]),
                )
                np.testing.assert_allclose(p.mean[s, i, o], mean, atol=1e-9)
                np.testing.assert_allclose(p.variance[s, i, o], np.diag(covariance), atol=1e-9)


def test_a_guide_shared_by_members_gives_each_its_own_split():
    x, y = _data(outputs=2, n=12)
    guide = _guide(x, y)
    splits = SplitSampler(12, members=3, seed=0).draw(2)
    shared = guide.posterior(splits)
    for m in range(3):
        alone = guide.posterior(Split(splits.observed[:, m : m + 1], splits.held_out[:, m : m + 1]))
        torch.testing.assert_close(shared.mean[:, m], alone.mean[:, 0])
        torch.testing.assert_close(shared.variance[:, m], alone.variance[:, 0])


def test_gram_is_normalised_and_the_scale_undoes_it():
    x, y = _data()
    network = infinite.mlp(hidden_layers=2, weight_var=50.0, bias_var=0.0)
    guide = fit_guide(as_kernel_function(network), x, y)
    np.testing.assert_allclose(guide.gram.diagonal(dim1=-2, dim2=-1).mean(), 1)
    predictor = guide.predictor(x)
    K = float(guide.scale / guide.normaliser) * network.kernel(x[0]).numpy()
    mean, covariance = dense.posterior(K, K, K, y[0, 0].numpy(), float(guide.noise))
    q = predictor.marginals(x)
    np.testing.assert_allclose(q.mean[0, 0], mean, atol=1e-8)
    np.testing.assert_allclose(q.variance[0, 0], np.diag(covariance), atol=1e-8)


def _plain(a, b):
    return torch.exp(-0.5 * torch.cdist(a, b).square())


def test_any_kernel_can_guide():
    x, y = _data()
    rbf = gpytorch.kernels.RBFKernel().double()
    rbf.lengthscale = 1.0
    from_gpytorch = fit_guide(as_kernel_function(rbf), x, y)
    from_function = fit_guide(as_kernel_function(_plain), x, y)
    torch.testing.assert_close(from_gpytorch.gram, from_function.gram)
    torch.testing.assert_close(from_gpytorch.noise, from_function.noise, rtol=1e-5, atol=1e-7)
    kernel = as_kernel_function(_plain)
    torch.testing.assert_close(kernel.diagonal(x), torch.ones(1, 20, dtype=torch.float64))


def test_what_cannot_guide_is_refused():
    x, y = _data()
    with pytest.raises(OptionError, match="cannot guide"):
        as_kernel_function("nngp")  # pyright: ignore
    with pytest.raises(DataError, match="shape"):
        as_kernel_function(lambda a, b: torch.zeros(3)).gram(x)
    with pytest.raises(DataError, match="positive finite variance"):
        fit_guide(as_kernel_function(lambda a, b: torch.zeros(len(a), len(b))), x, y)
    with pytest.raises(DataError, match="not finite"):
        fit_guide(as_kernel_function(lambda a, b: torch.full((len(a), len(b)), torch.nan).fill_diagonal_(1)), x, y)


@pytest.mark.parametrize(("members", "outputs"), [(1, 1), (3, 2)])
def test_an_answer_does_not_depend_on_the_threads(members, outputs):
    """One by one or shared by torch's threads: triangular solves run in another order."""
    guide = _guide(*_data(members=members, outputs=outputs, n=140))
    split = SplitSampler(140, members, seed=0).draw(2)
    before, answers = torch.get_num_threads(), []
    try:
        for threads in (1, 2):
            torch.set_num_threads(threads)
            answers.append(guide.posterior(split))
    finally:
        torch.set_num_threads(before)
    assert answers[0].mean.shape == (2, members, outputs, 70)
    for one, other in zip(*answers, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-10, atol=1e-12)
