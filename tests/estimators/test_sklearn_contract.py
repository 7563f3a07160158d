"""scikit-learn's own checks, to the letter."""

from __future__ import annotations

import classifier_cases
import pytest
import regressor_cases
from sklearn.utils.estimator_checks import check_estimator, estimator_checks_generator

ESTIMATORS = {
    f"{kind}-{name}": make
    for kind, cases in (("regressor", regressor_cases), ("classifier", classifier_cases))
    for name, make in cases.MAKERS.items()
}


#: Evidence and held-out folds see that repeated rows have the same noise, and learn from it; a weight only says how
#: large it is. Weights of zero do equal removal: `test_row_noise`.
EXPECTED = {"check_sample_weight_equivalence_on_dense_data": "a weight is a scale of the noise, not a number of rows"}


#: A student without the stack of guides around it, which takes ten times longer: what is checked of either is the same
#: code, but for `STACK_CHECKS`.
QUICK = {
    "regressor-gdkl": {"base": "paper", "n_iter": 20, "learning_rate": 0.05},
    "classifier-gdkl": {"likelihood": "dirichlet", "n_iter": 5},
}

#: Whose fits take longer: some checks always, all of them in the long run.
SLOW = {"regressor-due": {}, "regressor-dlvkl": {}, "classifier-due": {}, "classifier-dlvkl": {"n_iter": 60}}

STACK_CHECKS = {
    "check_dict_unchanged",
    "check_estimators_overwrite_params",
    "check_estimators_pickle",
    "check_fit2d_1feature",
    "check_methods_subset_invariance",
}


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=pytest.mark.long) if name in SLOW else name for name in ESTIMATORS]
)
@pytest.mark.filterwarnings("ignore")
def test_check_estimator_passes(name):
    check_all(name, (QUICK | SLOW).get(name, {}))


@pytest.mark.long
@pytest.mark.parametrize("name", QUICK)
@pytest.mark.filterwarnings("ignore")
def test_check_estimator_passes_for_stacks(name):
    # Few steps are enough for what is checked, but for a score that a stack reaches by its guides.
    check_all(name, {"n_iter": 5})


def check_all(name, options):
    expected = EXPECTED if name.startswith("regressor") else {}
    results = check_estimator(ESTIMATORS[name](**options), on_fail=None, expected_failed_checks=expected)
    allowed = ("passed", "skipped", *(["xfail"] if expected else []))
    failed = {r["check_name"]: repr(r["exception"]) for r in results if r["status"] not in allowed}
    assert failed == {}
    # The only check that may skip wants a package for other array types.
    assert {r["check_name"] for r in results if r["status"] == "skipped"} <= {"check_array_api_input"}
    assert len(results) > 40


@pytest.mark.parametrize("name", [*QUICK, *SLOW])
@pytest.mark.filterwarnings("ignore")
def test_some_checks_pass_for_stacks_and_slow_estimators(name):
    seen = set()
    for estimator, check in estimator_checks_generator(ESTIMATORS[name](n_iter=2)):
        if check.func.__name__ in STACK_CHECKS:
            check(estimator)
            seen.add(check.func.__name__)
    assert seen == STACK_CHECKS
