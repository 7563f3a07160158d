"""BoTorch models: what BoTorch's own tests ask of its models, acquisition functions, fits and wrong input."""

from __future__ import annotations

import sys
from copy import deepcopy
from importlib import import_module

import numpy as np
import pytest
import torch

pytest.importorskip("botorch")

from botorch.acquisition import LogExpectedImprovement, qKnowledgeGradient, qLogNoisyExpectedImprovement
from botorch.acquisition.objective import ScalarizedPosteriorTransform
from botorch.fit import fit_gpytorch_mll
from botorch.models import ModelListGP
from botorch.models.transforms.input import InputPerturbation, Normalize
from botorch.models.transforms.outcome import Log, Standardize
from botorch.optim import optimize_acqf
from botorch.posteriors import GPyTorchPosterior, TransformedPosterior
from botorch.sampling import SobolQMCNormalSampler
from botorch.utils.datasets import SupervisedDataset
from gpytorch.mlls import ExactMarginalLogLikelihood

from gdkl import GdklError, GDKLRegressor, NNGPRegressor, NNRegressor
from gdkl.integrations.botorch import GDKLModel, default_estimator, to_botorch

UNIT = torch.tensor([[0.0, 0.0], [1.0, 1.0]], dtype=torch.float64)


def data(n=10, outputs=1, dtype=torch.float64, seed=0):
    generator = torch.Generator().manual_seed(seed)
    X = torch.rand(n, 2, generator=generator, dtype=torch.float64)
    Y = torch.stack([torch.sin((4 + k) * X).sum(dim=-1) + k for k in range(outputs)], dim=-1)
    return X.to(dtype), Y.to(dtype)


def quick(outputs=1, dtype=torch.float64, **options):
    """A model of one Gaussian process, which fits in milliseconds."""
    X, Y = data(outputs=outputs, dtype=dtype)
    return GDKLModel(X, Y, estimator=NNGPRegressor(), **options)


@pytest.fixture(scope="module")
def stack():
    X, Y = data()
    model = GDKLModel(X, Y, estimator=default_estimator().set_params(n_iter=2))
    fit_gpytorch_mll(ExactMarginalLogLikelihood(model.likelihood, model))
    return model


@pytest.mark.filterwarnings("ignore:The model inputs are of type torch.float32")
class TestPosterior:
    @pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
    @pytest.mark.parametrize("outputs", [1, 2])
    @pytest.mark.parametrize("shape", [(3,), (4, 3), (2, 4, 1)])
    def test_has_the_shapes_of_botorch(self, dtype, outputs, shape):
        model, X = quick(outputs, dtype), torch.rand(*shape, 2, dtype=dtype)
        posterior = model.posterior(X)
        assert isinstance(posterior, GPyTorchPosterior)
        assert posterior.mean.shape == posterior.variance.shape == (*shape, outputs)
        assert posterior.mean.dtype == dtype
        assert posterior.rsample(torch.Size([5])).shape == (5, *shape, outputs)
        assert model.num_outputs == outputs
        assert model.batch_shape == torch.Size()
        noisy = model.posterior(X, observation_noise=True).variance - posterior.variance
        noise = torch.as_tensor(np.atleast_1d(model.estimator.noise_)).to(dtype).expand_as(noisy)
        torch.testing.assert_close(noisy, noise, rtol=1e-3, atol=1e-6)
        given = model.posterior(X, observation_noise=torch.full((*shape, outputs), 0.25, dtype=dtype))
        torch.testing.assert_close(given.variance - posterior.variance, torch.full_like(noisy, 0.25))
        weights = torch.arange(1.0, outputs + 1, dtype=dtype)
        scalar = model.posterior(X, posterior_transform=ScalarizedPosteriorTransform(weights))
        torch.testing.assert_close(scalar.mean.squeeze(-1), posterior.mean @ weights)
        torch.testing.assert_close(scalar.variance.squeeze(-1), posterior.variance @ weights**2)

    def test_samples_have_its_mean_and_covariance(self, stack):
        posterior = stack.posterior(torch.rand(2, 2, dtype=torch.float64, generator=torch.Generator().manual_seed(1)))
        samples = SobolQMCNormalSampler(torch.Size([2048]), seed=0)(posterior).squeeze(-1)
        deviation = posterior.variance.sqrt().squeeze(-1)
        assert ((samples.mean(dim=0) - posterior.mean.squeeze(-1)).abs() < 0.02 * deviation).all()
        scaled = np.cov(((samples - posterior.mean.squeeze(-1)) / deviation).detach().T.numpy())
        covariance = posterior.distribution.covariance_matrix / deviation / deviation.unsqueeze(-1)
        np.testing.assert_allclose(scaled, covariance.detach(), atol=0.05)

    def test_some_outputs(self):
        model, X = quick(3), torch.rand(4, 2, 2, dtype=torch.float64)
        whole, part = model.posterior(X), model.subset_output([2, 0])
        assert isinstance(part, GDKLModel)
        assert part.num_outputs == 2
        assert part.train_targets.shape == (2, 10)
        for found in (part.posterior(X), model.posterior(X, output_indices=[2, 0])):
            torch.testing.assert_close(found.mean, whole.mean[..., [2, 0]])
            torch.testing.assert_close(found.variance, whole.variance[..., [2, 0]])
        assert model.num_outputs == 3
        assert model.subset_output([1]).posterior(X).mean.shape == (4, 2, 1)

    def test_gradients_reach_the_rows(self, stack):
        X = torch.full((3, 2, 2), 0.4, dtype=torch.float64, requires_grad=True)
        posterior = stack.posterior(X)
        (posterior.mean.sum() + posterior.variance.sum()).backward()
        assert X.grad is not None
        assert (X.grad != 0).all()

    def test_a_fitted_estimator_is_a_model(self):
        X, Y = data(outputs=2)
        estimator = NNGPRegressor(relevance=True).fit(X, Y)
        model = to_botorch(estimator)
        mean, std = estimator.predict(X[:3], return_std=True)
        posterior = model.posterior(X[:3], observation_noise=True)
        np.testing.assert_allclose(posterior.mean.detach(), mean)
        np.testing.assert_allclose(posterior.variance.detach(), std**2)
        conditioned = model.condition_on_observations(X[:2] + 0.1, Y[:2])
        assert conditioned.posterior(X[:3]).mean.shape == (3, 2)


class TestConditioning:
    @pytest.mark.parametrize("outputs", [1, 2])
    def test_shapes_over_batches(self, outputs):
        model = quick(outputs)
        new_X, new_Y = torch.rand(3, 4, 2).double(), torch.rand(5, 3, 4, outputs).double()
        found = model.condition_on_observations(new_X, new_Y)
        assert isinstance(found, GDKLModel)
        assert found.batch_shape == (5, 3)
        assert found.train_inputs[0].shape == (5, 3, 14, 2)
        assert found.train_targets.shape == ((5, 3, 14) if outputs == 1 else (5, 3, outputs, 14))
        assert model.batch_shape == torch.Size()
        assert model.train_inputs[0].shape == (10, 2)
        for shape in ((2,), (3, 2), (5, 3, 2), (7, 1, 1, 2)):
            posterior = found.posterior(torch.rand(*shape, 2).double())
            assert posterior.mean.shape == (*torch.broadcast_shapes(shape[:-1], (5, 3)), 2, outputs)
            assert posterior.rsample(torch.Size([2])).shape == (2, *posterior.mean.shape)

    def test_is_a_fit_to_all_rows_with_the_same_hyperparameters(self, stack):
        # An observation that is as good as exact is met, its variance is gone.
        X = torch.tensor([[0.35, 0.65]], dtype=torch.float64)
        Y = stack.posterior(X).mean + 0.2
        found = stack.condition_on_observations(X, Y, noise=torch.full_like(Y, 1e-9))
        torch.testing.assert_close(found.posterior(X).mean, Y, atol=1e-5, rtol=0)
        assert found.posterior(X).variance < 1e-6

    @pytest.mark.parametrize("observation_noise", [None, 0.1])
    def test_fantasies_average_to_what_is_believed(self, stack, observation_noise):
        generator = torch.Generator().manual_seed(3)
        X, new = (torch.rand(*shape, 2, generator=generator, dtype=torch.float64) for shape in ((2, 3), (2, 2)))
        noise = None if observation_noise is None else torch.full((1, 1), observation_noise, dtype=torch.float64)
        fantasies = stack.fantasize(new, SobolQMCNormalSampler(torch.Size([512]), seed=0), observation_noise=noise)
        assert fantasies.batch_shape == (512, 2)
        before, after = stack.posterior(X), fantasies.posterior(X)
        assert after.mean.shape == (512, 2, 3, 1)
        torch.testing.assert_close(after.mean.mean(dim=0), before.mean, atol=0.01, rtol=0.01)

    def test_nothing_to_observe(self):
        model, X = quick(2), torch.rand(3, 2).double()
        fantasies = model.fantasize(torch.empty(0, 2).double(), SobolQMCNormalSampler(torch.Size([4])))
        assert fantasies.posterior(X).mean.shape == (4, 3, 2)
        torch.testing.assert_close(fantasies.posterior(X).mean[0], model.posterior(X).mean)


class TestTransforms:
    def test_normalise_and_standardise_change_nothing(self):
        X, Y = data(outputs=2)
        stretched = X * 100 - 7
        plain = GDKLModel(X, Y, estimator=NNGPRegressor())
        changed = GDKLModel(
            stretched,
            Y,
            estimator=NNGPRegressor(),
            input_transform=Normalize(2, bounds=torch.tensor([[-7.0, -7.0], [93.0, 93.0]]).double()),
            outcome_transform=Standardize(2),
        )
        new = torch.rand(3, 4, 2).double()
        Y_new = torch.full((4, 2), 0.7, dtype=torch.float64)
        for change in (
            lambda model, rows: model,
            lambda model, rows: model.subset_output([1]),
            lambda model, rows: model.condition_on_observations(rows[0], Y_new),
            lambda model, rows: model.condition_on_observations(rows[0], Y_new).subset_output([1]),
        ):
            pairs = ((plain, new), (changed, new * 100 - 7))
            one, other = (change(model, rows).posterior(rows, observation_noise=True) for model, rows in pairs)
            torch.testing.assert_close(one.mean, other.mean, rtol=1e-6, atol=1e-8)
            torch.testing.assert_close(one.variance, other.variance, rtol=1e-6, atol=1e-8)
        # As for BoTorch's models: original rows while the model trains, transformed ones when it predicts.
        assert torch.equal(changed.train().train_inputs[0], stretched)
        torch.testing.assert_close(changed.eval().train_inputs[0], X)

    def test_log_outcomes_and_perturbed_inputs(self):
        X, Y = data()
        model = GDKLModel(
            X,
            Y.exp(),
            estimator=NNGPRegressor(),
            outcome_transform=Log(),
            input_transform=InputPerturbation(torch.zeros(3, 2, dtype=torch.float64)),
        )
        posterior = model.posterior(X[:2].unsqueeze(0))
        assert isinstance(posterior, TransformedPosterior)
        assert posterior.mean.shape == (1, 6, 1)
        plain = GDKLModel(X, Y, estimator=NNGPRegressor()).posterior(X[:2])
        torch.testing.assert_close(posterior.mean[0, ::3], (plain.mean + plain.variance / 2).exp())


class TestFit:
    def test_fits_by_itself(self):
        X, Y = data()
        for make in (lambda m: fit_gpytorch_mll(ExactMarginalLogLikelihood(m.likelihood, m)), lambda m: m.posterior(X)):
            model = quick()
            make(model)
            assert not model.training
            expected = NNGPRegressor().fit(X, Y[:, 0])
            np.testing.assert_allclose(model.posterior(X).mean[:, 0].detach(), expected.predict(X))
            np.testing.assert_allclose(model.likelihood.noise.item(), expected.noise_, rtol=1e-6)
        mll = ExactMarginalLogLikelihood(model.likelihood, model)
        assert fit_gpytorch_mll(mll) is mll

    def test_other_data_are_fitted_anew(self):
        model, (X, Y) = quick(), data()
        before = model.posterior(X).mean
        model.set_train_data(X[:6], Y[:6, 0])
        expected = NNGPRegressor().fit(X[:6], Y[:6, 0]).predict(X)
        np.testing.assert_allclose(model.posterior(X).mean[:, 0].detach(), expected)
        assert not torch.allclose(before, model.posterior(X).mean)

    def test_what_ax_does(self):
        X, Y = data()
        dataset = SupervisedDataset(X, Y, feature_names=["a", "b"], outcome_names=["y"], Yvar=0.01 * torch.ones_like(Y))
        model = GDKLModel(**GDKLModel.construct_inputs(dataset), estimator=NNGPRegressor())
        added = model.posterior(X, observation_noise=True).variance - model.posterior(X).variance
        torch.testing.assert_close(added, torch.full_like(added, model.likelihood.noise.item()))
        assert model.likelihood.noise.item() >= 0.01
        fresh = quick(outcome_transform=Standardize(1))
        fresh.load_state_dict(quick(outcome_transform=Standardize(1)).eval().state_dict())
        torch.testing.assert_close(fresh.posterior(X).mean, quick().posterior(X).mean, rtol=1e-5, atol=1e-7)
        twin = deepcopy(model)
        torch.testing.assert_close(twin.posterior(X).mean, model.posterior(X).mean)

    def test_a_list_of_models(self):
        X, Y = data(outputs=2)
        models = [GDKLModel(X, Y[:, [k]], estimator=NNGPRegressor()) for k in range(2)]
        both = ModelListGP(*models)
        assert both.posterior(X).mean.shape == (10, 2)
        torch.testing.assert_close(both.posterior(X).mean[:, :1], models[0].posterior(X).mean)
        fantasies = both.fantasize(X[:1] + 0.1, SobolQMCNormalSampler(torch.Size([4]), seed=0))
        assert fantasies.posterior(X).mean.shape == (4, 10, 2)


class TestAcquisition:
    def test_one_step(self, stack):
        torch.manual_seed(0)  # starts of the search are drawn
        X, Y = data()
        noisy = qLogNoisyExpectedImprovement(
            stack, X_baseline=X, sampler=SobolQMCNormalSampler(torch.Size([32]), seed=0)
        )
        for function, q in ((LogExpectedImprovement(stack, best_f=Y.max()), 1), (noisy, 2)):
            rows, value = optimize_acqf(
                function, bounds=UNIT, q=q, num_restarts=2, raw_samples=64, options={"maxiter": 30, "seed": 0}
            )
            assert rows.shape == (q, 2)
            assert ((rows >= 0) & (rows <= 1)).all()
            tried = function(torch.rand(50, q, 2, dtype=torch.float64, generator=torch.Generator().manual_seed(5)))
            assert value >= tried.detach().max() - 0.1

    def test_knowledge_gradient_goes_through_fantasies(self, stack):
        function = qKnowledgeGradient(stack, num_fantasies=4)
        X = torch.rand(2, 1 + 4, 2, dtype=torch.float64, generator=torch.Generator().manual_seed(6)).requires_grad_()
        value = function(X)
        (gradient,) = torch.autograd.grad(value.sum(), X)
        step = 1e-6 * torch.zeros_like(X).index_fill(-2, torch.tensor([0]), 1.0)
        with torch.no_grad():
            numeric = (function(X + step) - function(X - step)).sum() / 2e-6
        torch.testing.assert_close((gradient * step / 1e-6).sum(), numeric, rtol=1e-3, atol=1e-6)

    def test_ax_runs_with_it(self):
        pytest.importorskip("ax")
        from ax.api.client import Client  # noqa: PLC0415
        from ax.api.configs import RangeParameterConfig  # noqa: PLC0415
        from ax.api.utils.generation_strategy_dispatch import choose_generation_strategy  # noqa: PLC0415
        from ax.api.utils.structs import GenerationStrategyDispatchStruct  # noqa: PLC0415
        from ax.generators.torch.botorch_modular.surrogate import ModelConfig  # noqa: PLC0415

        config = ModelConfig(botorch_model_class=GDKLModel, model_options={"estimator": NNGPRegressor(relevance=True)})
        custom = GenerationStrategyDispatchStruct(method="custom", initialization_random_seed=0)
        client = Client(random_seed=0)
        columns = [RangeParameterConfig(name=name, parameter_type="float", bounds=(-1, 1)) for name in "ab"]
        client.configure_experiment(columns)
        client.configure_optimization(objective="-loss")
        client.set_generation_strategy(choose_generation_strategy(custom, config))
        for _ in range(10):
            for index, row in client.get_next_trials(max_trials=1).items():
                client.complete_trial(index, raw_data={"loss": (row["a"] - 0.3) ** 2 + (row["b"] + 0.2) ** 2})
        assert client.get_best_parameterization()[1]["loss"][0] < 0.05


class TestErrors:
    @pytest.mark.parametrize(
        ("build", "message"),
        [
            (lambda X, Y: to_botorch(NNGPRegressor()), "not fitted"),
            (lambda X, Y: to_botorch(NNGPRegressor), "no regressor of gdkl"),
            (lambda X, Y: to_botorch(GDKLRegressor(inference="sparse", n_iter=1).fit(X, Y[:, 0])), "inference='exact'"),
            (lambda X, Y: to_botorch(NNRegressor(n_iter=1).fit(X, Y[:, 0])), "no Gaussian process"),
            (lambda X, Y: GDKLModel(X[None], Y[None]), r"train_X has shape \(1, 10, 2\)"),
            (lambda X, Y: GDKLModel(X, Y, estimator="gp"), "estimator='gp'"),
            (lambda X, Y: GDKLModel(X, torch.cat([Y, Y], -1), torch.ones(10, 2).double()), "ModelListGP"),
            (lambda X, Y: quick().posterior(X[:, :1]), r"X has shape \(10, 1\): give \(..., q, 2\)"),
            (lambda X, Y: quick().condition_on_observations(X, Y[:4]), r"give \(..., 10, 1\)"),
        ],
    )
    def test_is_one_line_that_says_what_to_do(self, build, message):
        with pytest.raises(GdklError, match=message) as error:
            build(*data())
        assert "\n" not in str(error.value)

    def test_without_botorch_the_extra_is_named(self, monkeypatch):
        monkeypatch.delitem(sys.modules, "gdkl.integrations.botorch")
        monkeypatch.setitem(sys.modules, "botorch.models.gpytorch", None)
        with pytest.raises(ImportError, match=r"^BoTorch is not installed: pip install 'gdkl\[botorch\]'\.$"):
            import_module("gdkl.integrations.botorch")
