"""Every example in every docstring runs, and the public functions of finished rooms have one."""

from __future__ import annotations

import doctest
import importlib
import inspect
import pkgutil

import pytest

import gdkl
import gdkl.datasets
import gdkl.numerics

# Sorted, so that parallel workers agree on the order.
MODULES = sorted([gdkl.__name__, *(found.name for found in pkgutil.walk_packages(gdkl.__path__, "gdkl."))])

FUNCTIONS = [
    (room, name)
    for room in (gdkl.numerics, gdkl.datasets)
    for name in room.__all__
    if inspect.isfunction(getattr(room, name))
]


@pytest.mark.parametrize("name", MODULES)
def test_examples_run(name: str) -> None:
    module = importlib.import_module(name)
    failed, _ = doctest.testmod(module)
    assert failed == 0, f"{failed} examples of {name} failed; their output is above"


def test_some_examples_are_found() -> None:
    finder = doctest.DocTestFinder(exclude_empty=True)
    found = [case for name in MODULES for case in finder.find(importlib.import_module(name)) if case.examples]
    assert len(found) > 10


@pytest.mark.parametrize(("room", "name"), FUNCTIONS, ids=lambda value: getattr(value, "__name__", value))
def test_public_functions_have_an_example(room: object, name: str) -> None:
    assert ">>>" in (inspect.getdoc(getattr(room, name)) or "")
