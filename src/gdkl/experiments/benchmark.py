"""The benchmark: estimators as they come, beside tuned models of other libraries, on real tables of a few rows."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from gdkl.experiments import data
from gdkl.experiments.packaged import packaged_names, packaged_table
from gdkl.experiments.spec import Column, Method, Quick, Spec

_SIZES = (100, 500, 2000)
#: Classes are also compared at 300 rows, where most tables have rows left to be scored on.
_CLASS_SIZES = (100, 300, 500, 2000)
_QUICK = Quick("1 of 3 splits, the first 4 tables, 100 rows", datasets=4, sizes=(100,))


def _peer(about: str, peer: str, kind: str = "Regressor", **options: Any) -> Method:
    return Method(about, f"gdkl.experiments.peers:Peer{kind}", {"peer": peer, **options})


TABLES = Spec(
    "tables",
    "Our own: regression on 22 real tables, 100 to 2000 rows, beside models of other libraries",
    data.mixed_table,
    (
        *("boston", "energy", "concrete", "kin8nm", "power", "protein", "pol", "elevators", "gas", "blog", "diabetes"),
        *("apartments", "fifa", "bikeshare", "credit_balance", "fertil2", "bwght2", "mlb", "nba", "nettfa", "wage1"),
        "imports85",
    ),
    {
        "gdkl": Method("the estimator as it comes", "GDKLRegressor"),
        "guides": Method("its guides alone, with the same warp and noise", "GDKLRegressor", {"guide_share": 1.0}),
        "nngp": Method("the guide alone", "NNGPRegressor"),
        "nngp_relevance": Method("the guide alone, a relevance per column", "NNGPRegressor", {"relevance": True}),
        "gp_ard": Method("RBF Gaussian process, a lengthscale per column", "GPRegressor", {"ard": True}),
        "dkl": Method("deep kernel by evidence", "DKLRegressor"),
        "botorch": _peer("BoTorch's SingleTaskGP as it comes", "botorch", tuned=False),
        "botorch_tuned": _peer("BoTorch's SingleTaskGP, kernel and noise prior chosen", "botorch"),
        "gpr": _peer("scikit-learn's Gaussian process with ARD, kernel chosen", "gpr"),
        "catboost": _peer("CatBoost with uncertainty, trees chosen", "catboost"),
        "ngboost": _peer("NGBoost, stages chosen", "ngboost"),
        "boosting": _peer("Gaussians by quantiles of histogram boosting, trees chosen", "boosting"),
    },
    (
        Column("LL", "scaled_log_likelihood"),
        Column("CRPS", "scaled_crps"),
        Column("RMSE", "scaled_rmse"),
        Column("90 % coverage", "coverage", digits=2),
        Column("width", "scaled_interval_width", digits=2),
    ),
    sizes=_SIZES,
    compared="gdkl",
    reference="botorch",
    quick=_QUICK,
)

TABLE_CLASSES = Spec(
    "tables-classes",
    "Our own: classification of 7 real tables, 100 to 2000 rows, beside models of other libraries",
    data.mixed_table,
    ("hr", "german", "titanic", "default", "loanapp", "heart", "ionosphere"),
    {
        "gdkl": Method("the estimator as it comes", "GDKLClassifier"),
        "nngp": Method("the guide alone", "NNGPClassifier"),
        "dkl": Method("deep kernel by evidence", "DKLClassifier"),
        "logistic": _peer("logistic regression, penalty chosen", "logistic", "Classifier"),
        "gpc": _peer("scikit-learn's Gaussian process classifier, kernel chosen", "gpc", "Classifier"),
        "catboost": _peer("CatBoost, trees chosen", "catboost", "Classifier"),
        "boosting": _peer("histogram boosting, trees chosen", "boosting", "Classifier"),
    },
    (
        Column("NLL", "log_likelihood", factor=-1),
        Column("Brier", "brier"),
        Column("ECE", "ece"),
        Column("accuracy", "accuracy", digits=1, factor=100),
    ),
    sizes=_CLASS_SIZES,
    compared="gdkl",
    reference="logistic",
    quick=_QUICK,
)

UNSEEN = replace(
    TABLES,
    name="tables-unseen",
    about="Our own: the same on 22 real tables out of Python packages, none of which chose a setting",
    data=packaged_table,
    datasets=packaged_names("regression"),
)

UNSEEN_CLASSES = replace(
    TABLE_CLASSES,
    name="tables-classes-unseen",
    about="Our own: the same on 8 real tables out of Python packages, none of which chose a setting",
    data=packaged_table,
    datasets=packaged_names("classification"),
)
