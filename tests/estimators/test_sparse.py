"""Estimators with inducing points: any array, file or loader in, the same promises out."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
import torch
from preset_options import make
from sklearn.datasets import load_digits
from torch.utils.data import DataLoader, Dataset, TensorDataset

import gdkl
from gdkl import DKLClassifier, DKLRegressor, GDKLClassifier, GDKLRegressor, NNGPRegressor
from gdkl.numerics import DataError, DataWarning, OptionError
from gdkl.training import Problem, prefers_exact

REGRESSORS = {"gdkl": GDKLRegressor, "dkl": DKLRegressor}
CLASSIFIERS = {"gdkl": GDKLClassifier, "dkl": DKLClassifier}
FEW = {"n_iter": 60, "inference": "sparse", "n_inducing": 20, "batch_size": 64, "random_state": 0}


def table(n=1200, d=4, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, d)) * np.linspace(1, 50, d) + 7
    y = 20 * np.sin(X[:, 0]) + X[:, 1] / 10 + rng.normal(size=n) + 100
    return X, y


@pytest.fixture(scope="module")
def digits():
    X, y = load_digits(return_X_y=True)
    return X[:, X.std(axis=0) > 0.5][:600], y[:600]


def same(one, other, X, rtol=1e-6):
    p, q = one.predict_distribution(X), other.predict_distribution(X)
    np.testing.assert_allclose(p.mean, q.mean, rtol=rtol)
    np.testing.assert_allclose(p.variance, q.variance, rtol=rtol)


@pytest.mark.parametrize("kind", REGRESSORS)
def test_a_sparse_regressor_learns_and_predicts(kind):
    X, y = table(700)
    model = make(REGRESSORS[kind], **{**FEW, "n_iter": 300}).fit(X[:500], y[:500])
    assert model.inference_ == "sparse"
    assert model.score(X[500:], y[500:]) > 0.8
    p = model.predict_distribution(X[500:])
    assert bool((p.variance > p.latent_variance).all())
    mean, covariance = model.predict(X[:5], return_cov=True)
    np.testing.assert_allclose(np.diag(covariance), model.predict_distribution(X[:5]).variance)
    np.testing.assert_allclose(mean, model.predict(X[:5]))
    assert model.sample_y(X[:3], 4).shape == (3, 4)
    assert {"objective", "ell", "epoch"} <= set(model.history_.columns)


# A quicker one: test_the_deviation_is_that_of_new_rows in test_loaders.py.
@pytest.mark.long
def test_coverage_is_honest_where_a_network_overfits():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(1600, 6))
    y = X[:, 0] + rng.normal(size=1600)
    model = make(GDKLRegressor, inference="sparse", n_iter=800, n_inducing=30, batch_size=256, random_state=0)
    model.fit(X[:1100], y[:1100])
    low, high = model.predict_distribution(X[1100:]).interval(0.9)
    assert 0.84 < ((low < y[1100:]) & (y[1100:] < high)).mean() < 0.96


def test_several_outputs_and_members():
    X, y = table(400)
    both = np.stack([y, -3 * y], axis=1)
    model = make(GDKLRegressor, **FEW, n_members=2).fit(X, both)
    p = model.predict_distribution(X[:10])
    assert p.n_components == 2
    assert p.mean.shape == (10, 2)
    assert not np.allclose(p.component_means[0], p.component_means[1])
    assert model.relevance_.shape == (4,)
    for preset in ("paper", gdkl.Preset(calibrate=False)):
        plain = GDKLRegressor(n_iter=2, inference="sparse", n_inducing=20, preset=preset).fit(X, y)
        assert not hasattr(plain, "relevance_")
        assert "kl_unlabelled" not in plain.history_


@pytest.mark.parametrize("kind", REGRESSORS)
def test_two_fits_with_one_seed_are_equal_and_files_remember(kind, tmp_path):
    X, y = table(300)
    one, other = (make(REGRESSORS[kind], **FEW).fit(X, y) for _ in range(2))
    np.testing.assert_array_equal(one.predict(X), other.predict(X))
    one.save(tmp_path / "model.gdkl")
    loaded = gdkl.load(tmp_path / "model.gdkl")
    assert loaded.inference_ == "sparse"
    if kind == "gdkl":
        assert one.relevance_.argmax() == 0
        np.testing.assert_array_equal(loaded.relevance_, one.relevance_)
    p, q = one.predict_distribution(X), loaded.predict_distribution(X)
    np.testing.assert_array_equal(p.mean, q.mean)
    np.testing.assert_array_equal(p.variance, q.variance)


def test_memory_mapped_and_long_arrays_are_not_copied(tmp_path, monkeypatch):
    X, y = table(300)
    whole = make(GDKLRegressor, **FEW).fit(X, y)
    np.save(tmp_path / "X.npy", X)
    mapped = np.load(tmp_path / "X.npy", mmap_mode="r")
    same(make(GDKLRegressor, **FEW).fit(mapped, y), whole, X)
    # A table too long to keep is fetched a batch at a time, and gives the same.
    monkeypatch.setattr("gdkl.estimators.sources._IN_MEMORY_BYTES", 100)
    monkeypatch.setattr("gdkl.inputs.tables._LONG_BYTES", 100)
    same(make(GDKLRegressor, **FEW).fit(mapped, y), whole, X)


def test_a_long_table_is_predicted_in_parts_and_its_rows_are_named_rightly(monkeypatch):
    X, y = table(300)
    model = make(GDKLRegressor, **FEW).fit(X, y)
    expected = model.predict_distribution(X)
    monkeypatch.setattr(
        "gdkl.estimators.regression.row_parts",
        lambda table: [(at, table[at : at + 7]) for at in range(0, len(table), 7)],
    )
    p = model.predict_distribution(X)
    np.testing.assert_allclose(p.mean, expected.mean, rtol=1e-6)
    np.testing.assert_allclose(p.variance, expected.variance, rtol=1e-5)
    X[100, 2] = np.nan
    with pytest.raises(DataError, match="row 100, column 2"):
        model.predict(X)


class Rows(Dataset):
    def __init__(self, X, y):
        self.X, self.y = torch.as_tensor(X, dtype=torch.float32), torch.as_tensor(y, dtype=torch.float32)

    def __len__(self):
        return len(self.X)

    def __getitem__(self, index):
        return self.X[index], self.y[index]


@pytest.mark.parametrize("kind", REGRESSORS)
@pytest.mark.parametrize("wrap", ["dataset", "loader"])
def test_a_dataset_or_loader_takes_no_y(kind, wrap):
    X, y = table(500)
    data = Rows(X, y)
    if wrap == "loader":
        data = DataLoader(data, batch_size=64, shuffle=True, generator=torch.Generator().manual_seed(0))
    options = {**FEW, "n_iter": 250} if wrap == "dataset" else {**FEW, "n_iter": 250, "batch_size": None}
    model = make(REGRESSORS[kind], **options).fit(data)
    assert model.n_features_in_ == 4
    assert model.score(X, y) > 0.8


def test_a_loader_of_wrong_shapes_is_refused():
    X, y = (torch.as_tensor(value, dtype=torch.float32) for value in table(100))
    model = make(GDKLRegressor, **{**FEW, "batch_size": None})

    def loader(*tensors, size=20):
        return DataLoader(TensorDataset(*tensors), batch_size=size)

    with pytest.raises(DataError, match=r"has 1 part: it must be a pair \(x, y\)"):
        model.fit(loader(X))
    with pytest.raises(DataError, match=r"x of shape \(20, 2, 2\)"):
        model.fit(loader(X.reshape(100, 2, 2), y))
    with pytest.raises(DataError, match="one y per row"):
        model.fit(_loader_of([(X[:5], y[:4])]))
    with pytest.raises(
        DataError, match=r"batch 1 .* x of shape \(5, 3\), where the first batch had rows of shape \(4,\)"
    ):
        model.fit(_loader_of([(X[:5], y[:5]), (X[:5, :3], y[:5])]))
    broken = X.clone()
    broken[30, 0] = torch.nan
    with pytest.raises(DataError, match="batch 1 of the loader has NaN"):
        model.fit(loader(broken, y))
    with pytest.raises(DataError, match="no batch of two rows"):
        model.fit(loader(X, y, size=1))
    with pytest.raises(DataError, match="without y"):
        model.fit(loader(X, y), y)
    with pytest.raises(OptionError, match="batch_size=7 is for arrays and Datasets"):
        make(GDKLRegressor, **{**FEW, "batch_size": 7}).fit(loader(X, y))
    with pytest.raises(OptionError, match="inference='exact' needs all rows"):
        make(GDKLRegressor, inference="exact").fit(loader(X, y))
    with pytest.raises(OptionError, match="NNGPRegressor cannot be fitted to a Dataset"):
        NNGPRegressor().fit(loader(X, y))


class _Batches(torch.utils.data.IterableDataset):
    """A Dataset that yields batches as they are."""

    def __init__(self, batches):
        self.batches = batches

    def __iter__(self):
        return iter(self.batches)


def _loader_of(batches):
    return DataLoader(_Batches(batches), batch_size=None)


@pytest.mark.parametrize(
    ("options", "error", "match"),
    [
        ({"batch_size": 1}, OptionError, "batch_size=1 cannot be split.*at least 2"),
        ({"batch_size": 0}, OptionError, "batch_size=0 cannot be split"),
        ({"n_inducing": 500}, DataError, "n_inducing=500 is more than the 80 rows that are trained on"),
        ({"n_inducing": 0}, OptionError, "n_inducing=0"),
        ({"inference": "dense"}, OptionError, "auto, exact, sparse"),
    ],
)
def test_bad_options_are_refused(options, error, match):
    X, y = table(100)
    with pytest.raises(error, match=match):
        make(GDKLRegressor, **{**FEW, **options}).fit(X, y)


def test_auto_is_exact_for_small_tables_and_sparse_beyond_memory():
    assert prefers_exact(Problem(2000, 1, 1, guided=True), 10**6, 2**34)
    assert not prefers_exact(Problem(2_000_000, 1, 1, guided=True), 1, 2**34)
    assert not prefers_exact(Problem(30_000, 1, 1, guided=True), 10**6, 2**34)
    X, y = table(80)
    assert make(GDKLRegressor, n_iter=3).fit(X, y).inference_ == "exact"


def test_auto_knows_that_exact_classes_see_few_rows_per_step(monkeypatch):
    asked = []

    def remembered(problem, n_iter, memory):
        asked.append(problem.rows_per_step)
        return True

    monkeypatch.setattr("gdkl.estimators.base.prefers_exact", remembered)
    X, y = table(80)
    for model in (
        make(GDKLClassifier, n_iter=1),
        make(GDKLClassifier, n_iter=1, batch_size=40),
        make(DKLClassifier, n_iter=1),
    ):
        model.fit(X, (y > 100).astype(int))
    # DKL's evidence is that of all rows, whatever the size of a batch.
    assert asked == [256, 40, None]


@pytest.mark.parametrize(
    ("kind", "likelihood"),
    [
        ("gdkl", "dirichlet"),
        ("dkl", "dirichlet"),
        ("gdkl", "gaussian"),
        pytest.param("dkl", "gaussian", marks=pytest.mark.long),
    ],
)
def test_a_sparse_classifier_learns_and_is_saved(kind, likelihood, digits, tmp_path):
    X, y = digits
    steps = 200 if likelihood == "dirichlet" else 800
    model = make(CLASSIFIERS[kind], **{**FEW, "n_iter": steps}, likelihood=likelihood).fit(X[:500], y[:500])
    assert model.inference_ == "sparse"
    assert model.score(X[500:], y[500:]) > (0.7 if likelihood == "dirichlet" else 0.3)
    model.save(tmp_path / "model.gdkl")
    np.testing.assert_array_equal(gdkl.load(tmp_path / "model.gdkl").predict_proba(X), model.predict_proba(X))


def test_a_classifier_takes_a_loader_of_rows_or_images(digits):
    X, y = digits
    loader = DataLoader(Rows(X, y), batch_size=64, shuffle=True, generator=torch.Generator().manual_seed(0))
    labels = TensorDataset(torch.as_tensor(X), torch.as_tensor(y))
    with pytest.raises(DataError, match="labels of type float32"):
        make(GDKLClassifier, **{**FEW, "batch_size": None}).fit(loader)
    model = make(GDKLClassifier, **{**FEW, "n_iter": 200}).fit(labels)
    assert model.score(X, y) > 0.8
    images = torch.randint(0, 256, (40, 1, 6, 6), generator=torch.Generator().manual_seed(0)).to(torch.uint8)
    bright = (images.float().mean(dim=(1, 2, 3)) > 127).long()
    net = torch.nn.Sequential(torch.nn.Conv2d(1, 4, 3), torch.nn.Flatten(), torch.nn.LazyLinear(5))
    net(torch.zeros(1, 1, 6, 6))
    pictures = make(GDKLClassifier, **{**FEW, "n_iter": 20, "batch_size": 16, "feature_net": net})
    pictures.fit(TensorDataset(images, bright))
    assert pictures.image_shape_ == (1, 6, 6)
    assert pictures.predict_proba(images.numpy()).shape == (40, 2)


def test_images_in_memory_use_ten_points():
    rng = np.random.default_rng(0)
    images = rng.integers(0, 256, (60, 1, 6, 6)).astype(np.uint8)
    y = (images.mean(axis=(1, 2, 3)) > 127).astype(int)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DataWarning)
        model = make(
            GDKLClassifier, inference="sparse", n_iter=5, batch_size=16, feature_net=[8, 4], random_state=0
        ).fit(images, y)
    assert model.model_.posterior.features.shape[1] == 10


@pytest.mark.parametrize("kind", ["gdkl", pytest.param("dkl", marks=pytest.mark.long)])
def test_held_out_rows_set_the_temperature_with_inducing_points(kind):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(2000, 4))
    # A third of the labels are wrong: probabilities beyond two thirds are too sure.
    y = np.where(rng.random(2000) < 1 / 3, rng.integers(2, size=2000), X[:, 0] > 0)
    options = {**FEW, "n_iter": 1000, "learning_rate": 0.03, "feature_net": [100, 100]}
    model = make(CLASSIFIERS[kind], **options, calibrate=True).fit(X[:1200], y[:1200])
    calibrated = model.predict_distribution(X[1200:]).log_prob(y[1200:]).mean()
    assert model.history_["epoch"].iloc[-1] == pytest.approx(1000 / (1000 / 64))
    # DKL's bound holds on to its prior, and there is little for a temperature to mend.
    assert model.temperature_ > 1.1 if kind == "gdkl" else 0.8 < model.temperature_ < 1.2
    assert model.temperature_ != 1.0
    model.temperature_ = 1.0
    assert calibrated > model.predict_distribution(X[1200:]).log_prob(y[1200:]).mean() - 0.005 * (kind == "dkl")
    # Too few to spare any; and no class is kept from training as a whole.
    assert make(CLASSIFIERS[kind], **FEW, calibrate=True).fit(X[:900], y[:900]).temperature_ == 1.0
    rare = y[:1200].astype(int)
    rare[:3] = [7, 8, 9]
    model = make(CLASSIFIERS[kind], **{**FEW, "n_iter": 2}, calibrate=True).fit(X[:1200], rare)
    assert model.classes_.tolist() == [0, 1, 7, 8, 9]
