"""The report: its numbers against the metrics, its simpler models against scikit-learn, its page against a parser."""

from __future__ import annotations

import re
from html.parser import HTMLParser

import numpy as np
import pandas as pd
import pytest
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.linear_model import BayesianRidge

import gdkl
from gdkl import DKLRegressor, NNClassifier, NNGPClassifier, NNGPRegressor, metrics
from gdkl.estimators.diagnostics import Severity, gather
from gdkl.numerics import DataError
from gdkl.report import write_report
from gdkl.report.baselines import fit_baselines
from gdkl.report.columns import column_groups, data_card, width_groups
from gdkl.report.provenance import digest
from gdkl.report.scores import Comparison, Score, compare, finding_of, scores_of
from mixed_table import mixed


class Page(HTMLParser):
    """What a browser would see: text, links, identifiers, and what it would fetch or run."""

    def __init__(self, text):
        super().__init__()
        self.open, self.ids, self.links, self.fetched, self.text = [], [], [], [], []
        self.feed(text)
        assert self.open == []

    def handle_starttag(self, tag, attrs):
        values = dict(attrs)
        if "id" in values:
            self.ids.append(values["id"])
        for name in ("href", "xlink:href", "src"):
            if name in values:
                (self.links if values[name].startswith("#") else self.fetched).append(values[name])
        self.fetched += re.findall(r"url\((?!#)[^)]*\)", values.get("style") or "")
        assert tag != "script"
        if tag not in ("meta", "link", "br", "img"):
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_startendtag(self, tag, attrs):
        self.handle_starttag(tag, attrs)
        self.handle_endtag(tag)

    def handle_data(self, data):
        self.text.append(data)


def split(n=60, seed=0):
    X, y = mixed(160, seed)
    X = X.drop(columns=["name", "empty", "sold"]).rename(columns={"size": "size <b>&"})
    return (X[:n], y[:n]), (X[n:].reset_index(drop=True), pd.Series(y[n:], name="price"))


@pytest.fixture(scope="module")
def fitted():
    return NNGPRegressor(relevance=True).fit(*split()[0])


@pytest.fixture(scope="module")
def whole(fitted, tmp_path_factory):
    """A diagnosis and its page."""
    return written(tmp_path_factory.mktemp("whole"), fitted, *split()[1], command="gdkl fit <houses>.csv")


@pytest.fixture(scope="module")
def classifier():
    (X, y), _ = split()
    return NNGPClassifier(random_state=0).fit(X, np.where(y > np.median(y), "dear", "cheap"))


def written(tmp_path, model, X, y, **options):
    diagnosis = write_report(model, X, y, tmp_path / "report.html", **options)
    return diagnosis, (tmp_path / "report.html").read_text(encoding="utf-8")


def test_the_page_is_whole_and_needs_nothing_else(whole):
    diagnosis, text = whole
    page = Page(text)
    assert len(set(page.ids)) == len(page.ids)
    assert {link.removeprefix("#") for link in page.links} <= set(page.ids)
    assert page.fetched == ["data:,"]
    shown = " ".join(page.text)
    made = (diagnosis.verdict, "Target: price", "gdkl fit <houses>.csv", digest(*split()[1]))
    for words in (*made, "size <b>&", "histogram boosting"):
        assert words in shown, words


def test_scores_are_those_of_the_metrics(fitted):
    _, (X, y) = split()
    p, y = fitted.predict_distribution(X), y.to_numpy()
    found = scores_of(p, y)
    expected = metrics.summary(p, y)
    names = {"log-likelihood": "log_likelihood", "CRPS": "crps", "RMSE": "rmse", "90 % coverage": "coverage"}
    for shown, name in names.items():
        assert found[shown].value == pytest.approx(expected[name]), name
    rng = np.random.default_rng(0)
    for name, score in (("log-likelihood", metrics.log_likelihood), ("RMSE", metrics.rmse)):
        drawn = (rng.integers(len(y), size=len(y)) for _ in range(400))
        assert found[name].error == pytest.approx(np.std([score(p[rows], y[rows]) for rows in drawn]), rel=0.2), name


def test_scores_of_classes_are_those_of_the_metrics(classifier):
    _, (X, y) = split()
    labels = np.where(y > np.median(y), "dear", "cheap")
    p = classifier.predict_distribution(X)
    expected, found = metrics.class_summary(p, labels), scores_of(p, labels)
    assert found["log-likelihood"].value == pytest.approx(-expected["nll"])
    for shown, name in {"accuracy": "accuracy", "Brier score": "brier", "calibration error": "ece"}.items():
        assert found[shown].value == pytest.approx(expected[name]), name


def test_simpler_models_are_scikit_learns(fitted, classifier):
    train, (X, y) = split()
    table = fitted.kind_.input
    known, new = (table.read(fitted, rows) for rows in (train[0], X))
    found = fit_baselines(gather(fitted, X, y))
    assert list(found) == ["mean", "linear model", "Gaussian process", "histogram boosting"]
    mean, std = train[1].mean(), train[1].std()
    linear_mean, linear_std = BayesianRidge().fit(known, (train[1] - mean) / std).predict(new, return_std=True)
    np.testing.assert_allclose(found["linear model"].mean, linear_mean * std + mean, rtol=1e-6)
    np.testing.assert_allclose(found["linear model"].std, linear_std * std, rtol=1e-6)
    np.testing.assert_allclose(found["mean"].mean, mean)
    np.testing.assert_allclose(found["mean"].std, std)
    labels = np.where(train[1] > np.median(train[1]), "dear", "cheap")
    trees = HistGradientBoostingClassifier(random_state=0).fit(
        classifier.kind_.input.read(classifier, train[0]), labels
    )
    e = gather(classifier, X, np.where(y > np.median(y), "dear", "cheap"))
    boosted = fit_baselines(e)["histogram boosting"]
    np.testing.assert_allclose(boosted.probs, trees.predict_proba(e.rows), atol=1e-5)


def test_a_simpler_model_that_is_better_is_a_finding(tmp_path):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(260, 6))
    y = X @ np.arange(1.0, 7) + 0.05 * rng.normal(size=260)
    diagnosis, text = written(
        tmp_path, DKLRegressor(n_iter=3).fit(X[:60], y[:60]), X[60:], y[60:], train=(X[:60], y[:60])
    )
    (finding,) = [one for one in diagnosis if one.check == "simpler models"]
    assert finding.severity is Severity.WARNING
    assert finding.value < -1
    assert "simpler models" in diagnosis.verdict
    assert diagnosis.verdict in text


def test_what_is_not_known_is_said(tmp_path):
    (X, y), (new, truth) = split()
    dear = np.median(y)
    model = NNClassifier(n_iter=5, random_state=0).fit(X, y > dear)
    _, text = written(tmp_path, model, new, truth > dear)
    assert "pass train=(X, y)" in text
    assert "histogram boosting" not in text
    told = gather(model, new, truth > dear, train=(X, y > dear))
    assert "histogram boosting" in fit_baselines(told)


def test_without_simpler_models_none_is_fitted(tmp_path, fitted):
    _, test = split()
    diagnosis, text = written(tmp_path, fitted, *test, baselines=False)
    assert "simpler models" not in {one.check for one in diagnosis}
    assert "histogram boosting" not in text


def test_several_targets_have_sections_of_their_own(tmp_path):
    rng = np.random.default_rng(0)
    X = rng.uniform(-2, 2, (120, 2))
    y = np.stack([np.sin(X[:, 0]), X[:, 1]], axis=1) + 0.1 * rng.normal(size=(120, 2))
    _, text = written(tmp_path, NNGPRegressor().fit(X[:60], y[:60]), X[60:], y[60:], baselines=False)
    page = Page(text)
    assert len(set(page.ids)) == len(page.ids)
    assert {"scores-0", "scores-1", "calibration-1", "data"} <= set(page.ids)


def test_images_have_a_report(tmp_path):
    rng = np.random.default_rng(0)
    labels = rng.integers(2, size=60)
    images = rng.uniform(size=(60, 1, 23, 23)) * (0.3 + 0.7 * labels[:, None, None, None])
    model = NNGPClassifier(random_state=0).fit(images[:24], labels[:24])
    _, text = written(tmp_path, model, images[24:], labels[24:])
    assert "data" not in Page(text).ids
    assert "Histogram boosting is left out: 529 columns" in text


def test_pictures_take_the_colours_of_the_page(whole):
    _, text = whole
    pictures = " ".join(re.findall(r"<svg.*?</svg>", text, flags=re.DOTALL))
    assert re.findall(r"#[0-9a-fA-F]{6}\b", pictures) == []
    used = set(re.findall(r"var\(--(\w+)\)", pictures))
    for scheme in re.findall(r":root \{(.*?)\}", text, flags=re.DOTALL):
        assert used <= set(re.findall(r"--(\w+):", scheme))


def test_groups_are_counted_as_they_say(fitted):
    _, (X, y) = split()
    e = gather(fitted, X, y)
    low, high = e.p.interval(0.9)
    held = (low <= e.y) & (e.y <= high)
    widths = width_groups(e)
    assert sum(group.rows for group in widths) == len(X)
    assert sum(group.rows * group.observed for group in widths) == pytest.approx(held.sum())
    groups = {group.name: group for group in column_groups(e)}
    for name, rows in {"city = Oslo": X["city"] == "Oslo", "heating missing": X["heating"].isna()}.items():
        assert groups[name].rows == rows.sum()
        assert groups[name].observed == pytest.approx(held[rows].mean())
    departures = [group.departure for group in column_groups(e)]
    assert departures == sorted(departures, reverse=True)


def test_the_data_card_says_what_is_in_the_columns(fitted):
    _, (X, y) = split()
    X = X.assign(city="Lima", rooms=X["rooms"] + 100)
    cards = {card["column"]: card for card in data_card(gather(fitted, X, y))}
    assert "100 rows have other levels" in cards["city"]["values"]
    assert cards["rooms"]["moved"] > 10
    assert cards["heating"]["missing"] == X["heating"].isna().sum()
    assert cards["garden"]["kind"] == "number"


def test_comparisons_are_paired(fitted):
    _, (X, y) = split()
    e = gather(fitted, X, y)
    baselines = {"mean": fit_baselines(e)["mean"]}
    (comparison,) = compare(e, baselines)
    differences = e.p.log_prob(e.y) - baselines["mean"].log_prob(e.y)
    assert comparison.lead.value == pytest.approx(differences.mean())
    assert comparison.lead.error == pytest.approx(differences.std(ddof=1) / np.sqrt(len(y)))


@pytest.mark.parametrize(
    ("lead", "severity"),
    [(0.3, Severity.FINE), (0.05, Severity.NOTE), (-0.05, Severity.NOTE), (-0.3, Severity.WARNING)],
)
def test_a_lead_counts_where_chance_does_not_explain_it(lead, severity):
    comparisons = [Comparison("mean", Score(2.0, 0.05)), Comparison("linear model", Score(lead, 0.05))]
    finding = finding_of(comparisons, rows=200)
    assert finding.severity is severity
    assert "linear model" in finding.text
    # Five rows show nothing.
    assert finding_of(comparisons, rows=5).severity is Severity.NOTE


def test_a_report_that_fails_leaves_no_file(tmp_path, fitted):
    _, (X, y) = split()
    with pytest.raises(DataError):
        write_report(fitted, X, y[:-1], tmp_path / "report.html")
    assert list(tmp_path.iterdir()) == []


def test_a_model_from_a_file_has_the_same_report(tmp_path, fitted, whole):
    fitted.save(tmp_path / "model.gdkl")
    model = gdkl.load(tmp_path / "model.gdkl")
    again, text = written(tmp_path, model, *split()[1], command="gdkl fit <houses>.csv")
    assert again == whole[0]
    first, second = (re.sub(r"\d\d:\d\d UTC", "", each) for each in (whole[1], text))
    assert second == first
