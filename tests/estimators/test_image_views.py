"""Images looked at from several sides: means of predictions over views, and crops and mirror images in training."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from preset_options import with_preset
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import gdkl
from gdkl import DKLClassifier, GDKLClassifier, NNClassifier, NNGPClassifier
from gdkl.estimators.base import to_numpy
from gdkl.numerics import OptionError
from gdkl.predictive import Views, image_views

CLASSIFIERS = (GDKLClassifier, DKLClassifier, NNClassifier, NNGPClassifier)


def images(n, seed=0):
    """Two classes: a bright spot in the upper or in the lower half, to the left of the middle."""
    rng = np.random.default_rng(seed)
    y = np.arange(n) % 2
    X = rng.normal(0, 0.3, (n, 1, 8, 8))
    for image, label in zip(X, y, strict=True):
        image[0, 1 + 4 * label + rng.integers(2), 1 + rng.integers(2)] += 3
    return X.astype(np.float32), y


def net(channels):
    return nn.Sequential(nn.Conv2d(channels, 8, 3), nn.ReLU(), nn.Flatten(), nn.Linear(8 * 36, 6))


def make(kind, **options):
    if kind is not NNGPClassifier:
        options = {"n_iter": 15, "feature_net": net, **options}
    return kind(random_state=0, device="cpu", **with_preset(**{"calibrate": False, **options}))


@pytest.mark.parametrize("kind", CLASSIFIERS)
@pytest.mark.parametrize("views", [Views.MIRRORED, Views.SHIFTED])
def test_probabilities_are_the_mean_over_the_views(kind, views):
    X, y = images(24)
    new, _ = images(7, seed=1)
    model = make(kind).fit(X, y)
    expected = np.mean([model.predict_proba(view) for view in image_views(new, views)], axis=0)
    several = make(kind, views=views.value).fit(X, y)
    np.testing.assert_allclose(several.predict_proba(new), expected, atol=1e-10)
    assert np.abs(expected - model.predict_proba(new)).max() > 1e-4
    # A choice for predictions: a fitted model may change it.
    np.testing.assert_array_equal(model.set_params(views=views.value).predict_proba(new), several.predict_proba(new))
    np.testing.assert_allclose(model.predict_proba(new), model.predict_proba(new[..., ::-1]), atol=1e-10)


def test_views_that_disagree_add_to_the_latent_variance():
    X, y = images(24)
    model = make(GDKLClassifier).fit(X, y)
    apart = [model.predict_distribution(view) for view in image_views(X, Views.MIRRORED)]
    together = model.set_params(views="mirrored").predict_distribution(X)
    means = np.stack([p.latent_mean for p in apart])
    np.testing.assert_allclose(together.latent_mean, means.mean(axis=0))
    expected = np.mean([p.latent_variance for p in apart], axis=0) + means.var(axis=0)
    np.testing.assert_allclose(together.latent_variance, expected)


def test_views_are_saved_with_a_model(tmp_path):
    X, y = images(24)
    model = make(GDKLClassifier, views="mirrored").fit(X, y)
    model.save(tmp_path / "model.gdkl")
    again = gdkl.load(tmp_path / "model.gdkl", factories={"feature_net": net})
    assert again.views == "mirrored"
    np.testing.assert_array_equal(again.predict_proba(X), model.predict_proba(X))


@pytest.mark.parametrize("kind", CLASSIFIERS)
def test_tables_have_one_view_and_words_are_checked(kind):
    X, y = images(12)
    options = {} if kind is NNGPClassifier else {"feature_net": None}
    with pytest.raises(OptionError, match="views='mirrored' is for images"):
        make(kind, views="mirrored", **options).fit(X.reshape(12, -1), y)
    with pytest.raises(OptionError, match="views='behind' is not known: use one of plain, mirrored, shifted"):
        make(kind, views="behind").fit(X, y)


@pytest.mark.parametrize("kind", [GDKLClassifier, DKLClassifier])
@pytest.mark.parametrize("inference", ["exact", "sparse"])
class TestAugment:
    def test_training_sees_other_images_and_is_repeatable(self, kind, inference):
        X, _ = images(9, seed=1)

        def found(augment):
            return make(kind, augment=augment, inference=inference).fit(*images(24)).predict_proba(X)

        plain, cropped, mirrored = (found(augment) for augment in (False, "crop", True))
        np.testing.assert_array_equal(mirrored, found(True))
        assert min(np.abs(plain - cropped).max(), np.abs(plain - mirrored).max()) > 1e-5
        assert np.abs(cropped - mirrored).max() > 1e-5

    def test_inference_is_the_users_choice(self, kind, inference):
        assert make(kind, augment=True, inference=inference).fit(*images(24)).inference_ == inference


def test_members_see_images_altered_in_different_ways_and_a_model_survives_a_file(tmp_path):
    X, y = images(24)
    model = make(GDKLClassifier, augment=True, n_members=2).fit(X, y)
    members = model._member_log_probs(model.model_, model._scaled_views(X)[0], 0)[0]
    assert np.abs(to_numpy(members[0] - members[1])).max() > 1e-5
    model.save(tmp_path / "model.gdkl")
    loaded = gdkl.load(tmp_path / "model.gdkl", factories={"feature_net": net})
    np.testing.assert_array_equal(loaded.predict_proba(X), model.predict_proba(X))


@pytest.mark.parametrize("kind", [GDKLClassifier, DKLClassifier, NNClassifier])
def test_truth_values_of_numpy_are_truth_values_and_numbers_are_none(kind):
    X, y = images(24)
    for value in (True, False):
        own, theirs = (make(kind, augment=augment).fit(X, y).predict_proba(X) for augment in (value, np.bool_(value)))
        np.testing.assert_array_equal(own, theirs)
    with pytest.raises(OptionError, match="augment=1 is not known: use True, False"):
        make(kind, augment=1).fit(X, y)


def test_few_images_are_moved_by_default_and_many_are_not():
    X, y = images(24)
    for inference, usual in (("exact", "crop"), ("sparse", False)):
        found = [
            make(GDKLClassifier, inference=inference, **options).fit(X, y).predict_proba(X)
            for options in ({}, {"augment": usual})
        ]
        np.testing.assert_array_equal(*found)


def test_the_plain_network_sees_altered_images_too():
    X, y = images(24)
    plain, altered = (make(NNClassifier, augment=augment).fit(X, y).predict_proba(X) for augment in (False, True))
    assert np.abs(plain - altered).max() > 1e-5


def test_a_perceptron_over_pixels_sees_altered_images():
    X, y = images(24)
    found = [
        make(DKLClassifier, augment=augment, feature_net=[8, 4]).fit(X, y).predict_proba(X) for augment in (False, True)
    ]
    assert np.abs(found[0] - found[1]).max() > 1e-5


@pytest.mark.parametrize("kind", [GDKLClassifier, DKLClassifier])
class TestAugmentIsRefused:
    def test_loaders_alter_their_own(self, kind):
        X, y = images(24)
        loader = DataLoader(TensorDataset(torch.as_tensor(X), torch.as_tensor(y)), batch_size=8)
        with pytest.raises(OptionError, match="let the Dataset or DataLoader augment its own"):
            make(kind, augment=True).fit(loader)


@pytest.mark.parametrize("kind", [GDKLClassifier, DKLClassifier, NNClassifier])
def test_tables_are_not_cropped(kind):
    X, y = images(24)
    with pytest.raises(OptionError, match="augment='crop' is for images"):
        make(kind, augment="crop", feature_net=None).fit(X.reshape(24, -1), y)


@pytest.mark.parametrize(
    "options",
    [
        pytest.param({"inference": "exact", "guide_share": 0}, marks=pytest.mark.long, id="exact"),
        pytest.param({"inference": "sparse", "batch_size": 32}, id="sparse"),
    ],
)
def test_a_network_learns_from_crops_and_mirror_images(options):
    X, y = images(200)
    new, labels = images(100, seed=1)
    model = make(GDKLClassifier, augment=True, n_iter=150, **options).fit(X, y)
    assert model.score(new, labels) > 0.9
    # It has seen mirror images, and knows spots on the other side.
    assert model.score(new[..., ::-1], labels) > 0.9


@pytest.mark.parametrize("kind", [GDKLClassifier, DKLClassifier, NNClassifier])
def test_few_images_are_learned_by_gradient_descent_and_the_rest_by_adam(kind):
    X, y = images(24)
    flat = X.reshape(24, -1)

    def found(rows, **options):
        return make(kind, **options).fit(rows, y).predict_proba(rows)

    np.testing.assert_array_equal(found(X), found(X, optimizer="sgd"))
    table = {"feature_net": [12, 4]}
    np.testing.assert_array_equal(found(flat, **table), found(flat, optimizer="adam", **table))
    assert np.abs(found(X) - found(X, optimizer="adam")).max() > 1e-6
    if kind is not NNClassifier:
        sparse = {"inference": "sparse", "batch_size": 8}
        np.testing.assert_array_equal(found(X, **sparse), found(X, optimizer="adam", **sparse))
