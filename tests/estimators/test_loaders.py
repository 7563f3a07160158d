"""Data in batches, however they come: the noise from rows that are not trained on, errors that say what is wrong."""

from __future__ import annotations

import random
import warnings
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from torch.utils.data import (
    BatchSampler,
    DataLoader,
    Dataset,
    IterableDataset,
    SubsetRandomSampler,
    TensorDataset,
    WeightedRandomSampler,
)

from gdkl import DKLRegressor, GDKLClassifier, GDKLRegressor, Preset, metrics
from gdkl.estimators.kinds import Augmentation, TableKind
from gdkl.estimators.loader_passes import content_keys
from gdkl.estimators.loader_source import LoaderSource, read_loader
from gdkl.estimators.loaders import as_loader
from gdkl.inputs import TableInput
from gdkl.numerics import DataError, DataWarning, OptionError

FEW = {"n_iter": 3, "inference": "sparse", "n_inducing": 5, "random_state": 0}


def table(n=2000, noise=0.1, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 4))
    return X, np.sin(X[:, 0]) + X[:, 1] + noise * rng.normal(size=n)


class Shuffled(IterableDataset):
    """Batches in another order at every pass, without numbers; ``jitter`` alters the rows themselves."""

    def __init__(self, X, y, jitter=0.0):
        self.X, self.y, self.jitter = X, y, jitter
        self.generator = np.random.default_rng(0)

    def __iter__(self):
        order = self.generator.permutation(len(self.X))
        for start in range(0, len(order), 200):
            rows = order[start : start + 200]
            yield self.X[rows] + self.jitter * self.generator.normal(size=(len(rows), 1)), self.y[rows]


class Jittered(Dataset):
    """Rows that never come out twice alike, with the row's number as the first of two targets."""

    def __init__(self, X):
        self.X = X

    def __len__(self):
        return len(self.X)

    def __getitem__(self, index):
        return self.X[index] + torch.randn(4), torch.tensor([index, self.X[index, 0]])


def dataset(X, y):
    return TensorDataset(torch.as_tensor(X), torch.as_tensor(y))


def wrapped(kind, X, y):
    data = dataset(X, y)
    if kind == "dataset":
        return data
    if kind == "loader":
        return DataLoader(data, batch_size=200, shuffle=True, generator=torch.Generator().manual_seed(0))
    if kind == "list":
        return [(X[start : start + 200], y[start : start + 200]) for start in range(0, len(X), 200)]
    return DataLoader(Shuffled(X, y), batch_size=None)


KINDS = ["dataset", "loader", "list", "iterable"]


# That every kind holds rows out alike is the next test's; here one is enough.
@pytest.mark.parametrize("kind", [pytest.param(k, marks=[] if k == "loader" else pytest.mark.long) for k in KINDS])
def test_the_deviation_is_that_of_new_rows(kind):
    X, y = table(3000)
    # So few steps leave the learned noise far above the true one: its deviation is 0.7.
    model = GDKLRegressor(n_iter=150, n_inducing=30, random_state=0).fit(wrapped(kind, X[:2000], y[:2000]))
    assert model.inference_ == "sparse"
    p = model.predict_distribution(X[2000:])
    error = np.abs(p.mean - y[2000:])
    assert np.median(error / p.std) == pytest.approx(0.6745, rel=0.2)
    low, high = p.interval(0.9)
    assert 0.86 < ((low < y[2000:]) & (y[2000:] < high)).mean() < 0.94
    assert 0.08 < np.sqrt(model.noise_) < 0.14


def batches_of(loader, seed=3, hold_out=True):
    """What training would see of a loader in one epoch, and what it would not, in the loader's own units."""
    read = read_loader(loader, None, seed, labels=False, hold_out=hold_out, fingerprint=False)
    columns = read.first.row_shape[0]
    plain = TableKind(TableInput(np.zeros(columns), np.ones(columns), np.ones(columns, bool)))
    source = LoaderSource(
        plain, 1, read.loader, read.first, lambda y: y.reshape(len(y), -1).T, read.held_out, read.filter
    )
    plan = SimpleNamespace(
        device=torch.device("cpu"), network_dtype=torch.float64, algebra=torch.float64, augmentation=Augmentation()
    )
    batches, held = source.batches(plan, 0)
    steps = -(-read.first.rows // read.first.batch_size)
    return batches, [batches.batch(step) for step in range(steps)], held


@pytest.mark.parametrize("kind", KINDS)
def test_rows_that_are_held_out_are_not_trained_on_and_no_others_are_missed(kind):
    X, y = table()
    loader = as_loader(wrapped(kind, X, y), None, seed=0)
    source, epoch, held = batches_of(loader)
    assert len(held.rows) == 200
    assert source.rows == 1800
    trained = {float(value) for batch in epoch for value in batch.targets[0]}
    kept = {float(value) for value in held.targets[0]}
    assert not trained & kept
    # An odd row of a batch is left out.
    assert len(trained) >= 1800 - len(epoch)
    assert trained | kept <= set(y.tolist())
    # The rows that guide and inducing points start from are not those that are held out either.
    start = {float(value) for value in source.sample(4000, 0).targets[0]}
    assert len(start) == 1800
    assert not start & kept
    # Another seed keeps others; without the wish none are kept.
    assert len(kept & {float(value) for value in batches_of(loader, seed=4)[2].targets[0]}) < 60
    assert batches_of(loader, hold_out=False)[2] is None


def test_rows_of_a_dataset_are_kept_apart_though_they_are_altered_each_time():
    torch.manual_seed(0)
    data = Jittered(torch.randn(1200, 4))
    _, epoch, held = batches_of(DataLoader(data, batch_size=100, shuffle=True))
    trained = {int(value) for batch in epoch for value in batch.targets[0]}
    kept = {int(value) for value in held.targets[0]}
    assert len(kept) == 200
    assert not trained & kept
    assert len(trained) == 1000


@pytest.mark.parametrize("kind", ["subset", "weighted", "own batches", "workers"])
def test_any_sampler_keeps_its_way_of_drawing(kind):
    X, y = table(3000)
    data, generator = dataset(X, y), torch.Generator().manual_seed(0)
    among = set(y.tolist())
    if kind == "subset":
        loader = DataLoader(data, batch_size=100, sampler=SubsetRandomSampler(range(1500), generator=generator))
        among = set(y[:1500].tolist())
    elif kind == "weighted":
        weights = np.where(np.arange(3000) < 2500, 1.0, 0.0)
        loader = DataLoader(data, batch_size=100, sampler=WeightedRandomSampler(weights, 3000, generator=generator))
        among = set(y[:2500].tolist())
    elif kind == "own batches":
        batches = [list(range(start, start + 50)) for start in range(0, 3000, 50)]
        loader = DataLoader(data, batch_sampler=batches)
    else:
        loader = DataLoader(data, batch_size=100, num_workers=1)
    _, epoch, held = batches_of(loader)
    trained = {float(value) for batch in epoch for value in batch.targets[0]}
    kept = {float(value) for value in held.targets[0]}
    assert 50 < len(kept) <= 200
    assert not trained & kept
    assert trained | kept <= among


def test_rows_that_change_at_every_pass_are_told_of():
    X, y = table(600)
    model = GDKLRegressor(**{**FEW, "n_iter": 12})
    with pytest.warns(DataWarning, match="yields other rows each time"):
        model.fit(DataLoader(Shuffled(X, y, jitter=0.1), batch_size=None))
    with warnings.catch_warnings():
        warnings.simplefilter("error", DataWarning)
        model.fit(DataLoader(Shuffled(X, y), batch_size=None))


def test_equal_rows_go_one_way_together():
    X, y = table(1000)
    twice = [(np.concatenate([X, X]), np.concatenate([y, y]))]
    _, (batch,), held = batches_of(twice)
    trained, kept = set(batch.targets[0].tolist()), held.targets[0].tolist()
    assert 200 <= len(kept) <= 202
    assert len(set(kept)) * 2 == len(kept)
    assert not trained & set(kept)
    # All alike: there are none to spare.
    same = [(np.tile(X[:2], (1000, 1)), np.tile(y[:2], 1000))]
    source, _, held = batches_of(same)
    assert held is None
    assert source.rows == 2000


def test_few_rows_are_all_trained_on_and_dkl_trains_on_all():
    X, y = table(40)
    assert batches_of(as_loader(dataset(X, y), None, 0))[2] is None
    assert batches_of([(X, y)])[2] is None
    X, y = table(1000)
    learned = DKLRegressor(**FEW).fit([(X, y)])
    assert learned.history_["epoch"].iloc[-1] == pytest.approx(3)


def test_keys_follow_the_content_alone():
    X, y = table(50)
    keys = content_keys(X, y, 1)
    assert len(content_keys(X[:0], y[:0], 1)) == 0
    order = np.random.default_rng(0).permutation(50)
    np.testing.assert_array_equal(content_keys(X[order], y[order], 1), keys[order])
    assert len(set(keys.tolist())) == 50
    assert not np.array_equal(keys, content_keys(X, y, 2))
    moved = y.copy()
    moved[7] = np.nextafter(moved[7], 9)
    assert np.flatnonzero(content_keys(X, moved, 1) != keys).tolist() == [7]
    np.testing.assert_array_equal(content_keys(np.zeros((1, 2)), y[:1]), content_keys(-np.zeros((1, 2)), y[:1]))


def test_a_list_of_batches_may_hold_lists_tensors_and_arrays():
    X, y = table(90)
    batches = [
        (X[:30].tolist(), y[:30].tolist()),
        [torch.as_tensor(X[30:60]), torch.as_tensor(y[30:60])],
        (X[60:], y[60:]),
    ]
    model = GDKLRegressor(**FEW).fit(batches)
    np.testing.assert_array_equal(model.predict(X), GDKLRegressor(**FEW).fit(tuple(batches)).predict(X))
    halves = [(torch.as_tensor(X).bfloat16(), torch.as_tensor(y))]
    assert np.isfinite(GDKLRegressor(**FEW).fit(halves).predict(X)).all()
    labels = (y > 0).astype(int)
    assert GDKLClassifier(**FEW).fit([(X, labels)]).predict_proba(X).shape == (90, 2)


class Noisy(Dataset):
    """Alters its rows by each of the random numbers that one uses without a thought."""

    def __init__(self, X, y):
        self.X, self.y = torch.as_tensor(X), torch.as_tensor(y)

    def __len__(self):
        return len(self.X)

    def __getitem__(self, index):
        shift = torch.randn(()) + np.random.normal() + random.gauss(0, 1)  # noqa: NPY002
        return self.X[index] + 0.01 * shift, self.y[index]


def shuffling(kind, X, y):
    """Loaders that shuffle, or draw otherwise, without a generator of their own."""
    data = dataset(X, y)
    if kind == "weighted":
        return DataLoader(data, batch_size=100, sampler=WeightedRandomSampler(np.ones(len(X)), len(X)))
    if kind == "subset":
        return DataLoader(data, batch_size=100, sampler=SubsetRandomSampler(range(len(X))))
    if kind == "altered":
        return DataLoader(Noisy(X, y), batch_size=100, shuffle=True)
    return DataLoader(data, batch_size=100, shuffle=True, num_workers=int(kind == "workers"))


@pytest.mark.parametrize("kind", ["shuffled", "weighted", "subset", "altered", "workers"])
@pytest.mark.parametrize("make", [GDKLRegressor, DKLRegressor, GDKLClassifier])
def test_a_fit_to_a_loader_that_shuffles_is_repeatable(kind, make):
    X, y = table(300)
    targets = (y > 0).astype(int) if make is GDKLClassifier else y
    loader = shuffling(kind, X, targets)
    found = []
    # The first two go on with the same loader, the third has one of its own: none may tell.
    for given in (loader, loader, shuffling(kind, X, targets)):
        # As if the user had drawn any number of random numbers before.
        torch.manual_seed(len(found))
        np.random.seed(len(found))  # noqa: NPY002
        random.seed(len(found))
        model = make(**{**FEW, "n_iter": 8}).fit(given)
        found.append(model.predict_proba(X) if make is GDKLClassifier else model.predict(X))
    np.testing.assert_array_equal(found[0], found[1])
    np.testing.assert_array_equal(found[0], found[2])
    other = make(**{**FEW, "n_iter": 8, "random_state": 1}).fit(loader)
    assert not np.array_equal(found[0], other.predict_proba(X) if make is GDKLClassifier else other.predict(X))


def test_every_pass_has_an_order_of_its_own_and_the_users_random_numbers_are_left_alone():
    X, y = table(1200)
    torch.manual_seed(5)
    np.random.seed(5)  # noqa: NPY002
    # The second normal number of two is waiting.
    np.random.normal()  # noqa: NPY002
    before = torch.get_rng_state(), np.random.get_state(), random.getstate()  # noqa: NPY002
    loader = shuffling("altered", X, y)
    stream = read_loader(loader, None, 3, labels=False, hold_out=True, fingerprint=False)
    first, second = ([pair[1] for pair in stream.loader] for _ in range(2))
    assert not torch.equal(first[0], second[0])
    assert torch.equal(torch.cat(first).sort().values, torch.cat(second).sort().values)
    assert torch.equal(before[0], torch.get_rng_state())
    np.testing.assert_equal(before[1], np.random.get_state())  # noqa: NPY002
    assert before[2] == random.getstate()
    # A pass that is broken off leaves them alone too.
    running = iter(stream.loader)
    next(running)
    assert torch.equal(before[0], torch.get_rng_state())
    assert loader.sampler.generator is None
    assert loader.generator is None


def test_the_same_rows_are_kept_whatever_the_order():
    X, y = table()
    kept = []
    for seed in (1, 2):
        generator = torch.Generator().manual_seed(seed)
        loader = DataLoader(dataset(X, y), batch_size=100, shuffle=True, generator=generator)
        kept.append(set(batches_of(loader)[2].targets[0].tolist()))
    assert kept[0] == kept[1]


class OneWay(IterableDataset):
    def __init__(self, batches):
        self.batches = iter(batches)

    def __iter__(self):
        return self.batches


class NoLength(Dataset):
    def __getitem__(self, index):
        return torch.zeros(3), torch.zeros(())


class Uneven(Dataset):
    def __len__(self):
        return 20

    def __getitem__(self, index):
        return torch.zeros(3 + index % 2), torch.zeros(())


class Texts(Dataset):
    def __len__(self):
        return 20

    def __getitem__(self, index):
        return torch.randn(3), "abc"[index % 3]


class Again:
    """Can be gone through again and again, and nothing else."""

    def __init__(self, batches):
        self.batches = batches

    def __iter__(self):
        return iter(self.batches)


X, Y = table(40)

BAD = {
    "text from a Dataset": (Texts(), "batch 0 of the loader has y that is not numeric: a regressor needs numbers"),
    "text in a list": ([(X, np.array(["a"] * 40))], "a regressor needs numbers; for classes use a classifier"),
    "objects": ([(X, np.array([None, "b"] * 20))], "y that is not numeric"),
    "complex": ([(X, Y * 1j)], "y that is not numeric"),
    "dates": ([(X, np.array(["2020-01-01"] * 40, dtype="datetime64[D]"))], "y that is not numeric"),
    "other widths": ([(X, Y), (X[:, :3], Y)], r"batch 1 .* x of shape \(40, 3\), where .* had rows of shape \(4,\)"),
    "other targets": (
        [(X, Y), (X, Y[:, None])],
        r"batch 1 .* has y of shape \(40, 1\), where the first batch had rows of shape \(\)",
    ),
    "more targets": ([(X, Y[:, None]), (X, np.stack([Y, Y], 1))], r"y of shape \(40, 2\), .* had rows of shape \(1,\)"),
    "deep targets": ([(X, Y[:, None, None])], r"y of shape \(40, 1, 1\): expected \(b,\)"),
    "no targets": ([(X, Y[:, None][:, :0])], r"y of shape \(40, 0\)"),
    "ragged rows": ([([[1.0, 2.0], [3.0]], [1.0, 2.0])], "batch 0 .* x that is not an array of numbers: its rows have"),
    "ragged targets": ([(X[:2], [[1.0, 2.0], [3.0]])], "batch 0 .* y that is not an array of numbers"),
    "words as rows": ([([["a", "b"]], [1.0])], "x of shape"),
    "one y": ([(X, Y[0])], r"y of shape \(\): one y per row"),
    "one y too few": ([(X, Y), (X, Y[1:])], "batch 1 .* one y per row"),
    "not a pair": ([(X, Y), X], r"batch 1 of the loader is ndarray: it must be a pair \(x, y\)"),
    "three parts": (DataLoader(TensorDataset(*[torch.zeros(9, 2)] * 3)), r"has 3 parts: it must be a pair \(x, y\)"),
    "dicts from a Dataset": (
        DataLoader([{"x": row, "y": target} for row, target in zip(X, Y, strict=True)]),
        r"batch 0 of the loader is a dict of 'x', 'y': it must be a pair \(x, y\)",
    ),
    "triples": ([(X, Y, Y)] * 2, r"list of 3-part batches: a batch is a pair \(x, y\)"),
    "triples of tensors": ([[torch.as_tensor(X)] * 3], r"list of 3-part batches: a batch is a pair \(x, y\)"),
    "triples of lists": ([(X.tolist(), Y.tolist(), Y.tolist())], "3-part batches"),
    "rows alone in a tuple": ([(X,), (X,)], r"1-part batches: a batch is a pair \(x, y\)"),
    "dicts": ([{"x": X, "y": Y}], r"list of dicts: .*a batch is a pair \(x, y\)"),
    "dicts of numbers": ([{"a": 1.0, "b": 2.0}] * 9, r"pd.DataFrame\(X\)"),
    "rows alone": ([X, X], r"without targets: a batch is a pair \(x, y\)"),
    "one pair": ((X, Y), r"of one table call fit\(x, y\)"),
    "rows in 3-D": ([(X[None], Y)], r"2-part batches: a batch is a pair \(x, y\)"),
    "one class of its own": (Again([(X, Y)]), "X is Again, which is no table: pass a list of batches"),
    "a zip": (zip([X], [Y], strict=True), r"X is zip, which is no table: pass a list of batches"),
    "missing": ([(X, np.where(Y > 0, np.nan, Y))], "batch 0 .* NaN or infinite .* in y"),
    "uneven rows": (Uneven(), "rows or targets of different shapes"),
    "uneven rows, loader": (DataLoader(Uneven(), batch_size=4), "rows or targets of different shapes"),
    "empty Dataset": (TensorDataset(torch.zeros(0, 3), torch.zeros(0)), "the Dataset is empty"),
    "empty loader": (DataLoader(TensorDataset(torch.zeros(0, 3), torch.zeros(0))), "the loader yields no rows"),
    "empty batches": ([(X[:0], Y[:0])] * 3, "the loader yields no rows"),
    "one row": ([(X[:1], Y[:1])], "one row only"),
    "three rows": ([(X[:3], Y[:3])], "at least 4 rows and got 3"),
    "no length": (NoLength(), "the Dataset has no length"),
    "one pass": (DataLoader(OneWay([(X, Y)]), batch_size=None), "nothing when it is gone through again"),
    "single rows": ([(X[i : i + 1], Y[i : i + 1]) for i in range(40)], "no batch of two rows"),
    "constant": ([(X, np.ones(40))], "y is constant"),
    "images": ([(np.zeros((9, 1, 5, 5)), np.arange(9.0))], "a regressor takes rows"),
    "rows one by one": (list(zip(X, Y, strict=True)), r"2-part batches: .* DataLoader"),
    "an empty list": ([], "X is empty"),
    "a generator": (
        ((X, Y) for _ in range(3)),
        r"X is generator, which is no table: pass a list of batches, .*a batch is a pair \(x, y\)",
    ),
}


@pytest.mark.parametrize("case", BAD)
def test_what_cannot_be_learned_from_is_refused_in_one_line(case):
    data, match = BAD[case]
    with pytest.raises(DataError, match=match) as caught:
        GDKLRegressor(**FEW).fit(data)
    assert "\n" not in str(caught.value)


def test_targets_beside_a_list_of_batches_and_ragged_tables():
    with pytest.raises(DataError, match="without y"):
        GDKLRegressor(**FEW).fit([(X, Y)], Y)
    with pytest.raises(OptionError, match="a list of batches has its own"):
        GDKLRegressor(**FEW, preset=Preset(batch_size=20)).fit([(X, Y)])
    with pytest.raises(DataError, match="rows of different lengths"):
        GDKLRegressor(**FEW).fit([[1.0, 2.0], [3.0]], [1.0, 2.0])
    with pytest.raises(DataError, match="requires y"):
        GDKLRegressor(**FEW).fit([[1.0, 2.0], [3.0, 4.0]])


def test_targets_beside_malformed_batches_change_nothing():
    for data, match in (
        ([(X, Y, Y)], "3-part batches"),
        ([{"x": X, "y": Y}], "list of dicts: .*a batch is a pair"),
        (((X, Y) for _ in range(2)), "give rows as an array"),
    ):
        with pytest.raises(DataError, match=match):
            GDKLRegressor(**FEW).fit(data, Y)
    # Tables are not taken for batches, with targets or without.
    for rows in (X.tolist(), [tuple(row) for row in X], list(X), tuple(X)):
        np.testing.assert_array_equal(
            GDKLRegressor(**FEW).fit(rows, Y).predict(X), GDKLRegressor(**FEW).fit(X, Y).predict(X)
        )
        with pytest.raises(DataError, match="requires y"):
            GDKLRegressor(**FEW).fit(rows)


def test_a_classifier_refuses_what_it_cannot_read():
    labels = (Y > 0).astype(int)
    for data, match in (
        ([(X, labels, labels)], r"3-part batches: a batch is a pair \(x, y\)"),
        (((X, labels) for _ in range(3)), "which is no table"),
        ([{"x": X, "y": labels}], r"list of dicts: .*a batch is a pair \(x, y\)"),
        ([(X, labels), (X[:, :2], labels)], "batch 1 .* x of shape"),
        ([(X, np.array(["a"] * 40)), (X, labels)], "labels of type"),
        ([(X, np.array(["a", "b"] * 20))], "labels of type <U1 .*: give one whole number per row"),
        ([(X, labels[:, None])], "one whole number per row"),
        ([(X[:0], labels[:0])], "no rows"),
        ([(X, labels * 0)], "one class only"),
    ):
        with pytest.raises(DataError, match=match):
            GDKLClassifier(**FEW).fit(data)


def test_a_batch_sampler_that_is_not_of_numbers_is_left_to_the_content():
    class Named(Dataset):
        def __getitem__(self, index):
            return torch.as_tensor(values[int(index[3:])]), torch.as_tensor(Y2[int(index[3:])])

    values, Y2 = table(1200)
    names = [f"row{number}" for number in range(1200)]
    loader = DataLoader(Named(), batch_sampler=BatchSampler(names, 100, False))
    _, epoch, held = batches_of(loader)
    assert len(held.rows) == 200
    assert not {float(v) for batch in epoch for v in batch.targets[0]} & set(held.targets[0].tolist())


def test_an_empty_batch_in_a_list_is_no_harm():
    X, y = table(100)
    batches = [(X[:50], y[:50]), (X[:0], y[:0]), (X[50:], y[50:])]
    with_empty, without = (GDKLRegressor(**FEW).fit(part) for part in (batches, batches[::2]))
    assert np.isfinite(with_empty.predict(X)).all()
    assert without.n_iter_ == with_empty.n_iter_ == 3


@pytest.mark.parametrize("n", [300, pytest.param(800, marks=pytest.mark.long)])
def test_intervals_of_few_rows_from_a_loader_are_honest(n):
    rng = np.random.default_rng(0)

    def rows(count):
        X = rng.normal(size=(count, 4))
        return X, np.sin(2 * X[:, 0]) + X[:, 1] * X[:, 2] / 2 + 0.1 * rng.normal(size=count)

    (X, y), (new, truth) = rows(n), rows(500)
    loader = DataLoader(TensorDataset(torch.as_tensor(X), torch.as_tensor(y)), batch_size=128, shuffle=True)
    model = GDKLRegressor(n_iter=600, random_state=0, device="cpu").fit(loader)
    # With the noise that training ends with they hold 14 to 72 %.
    assert 0.8 < metrics.coverage(model.predict_distribution(new), truth) < 0.99
