"""Settings that a user replaces: ``key=value``, ``preset.key=value``, or ``method:key=value`` for one method alone."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from gdkl.experiments.spec import Spec
from gdkl.numerics import OptionError


def settings_by_method(
    spec: Spec, methods: Sequence[str], texts: Sequence[str], validation: int = 0
) -> dict[str, dict[str, Any]]:
    """Settings of each method with what the user has set.

    Args:
        spec: The experiment.
        methods: Those that run.
        texts: What the user has set; a key without a method applies to every method that has it.
        validation: Training rows that are held out and scored.
    """
    chosen = _overrides(spec, methods, texts)
    return {name: spec.settings(name, overrides, validation) for name, overrides in chosen.items()}


def searched_settings(
    spec: Spec, methods: Sequence[str], texts: Sequence[str], validation: int
) -> list[dict[str, dict[str, Any]]]:
    """The same once for each combination that a method's declared search has; what the user sets is not searched.

    Raises:
        OptionError: If no rows are held out, which are what a search goes by.
    """
    if not validation:
        raise OptionError("--search goes by held-out training rows: add --holdout N.")
    found: list[dict[str, dict[str, Any]]] = []
    for name, overrides in _overrides(spec, methods, texts).items():
        for trial in spec.methods[name].trials():
            settings = {name: spec.settings(name, trial | overrides, validation)}
            if settings not in found:
                found.append(settings)
    return found


def _overrides(spec: Spec, methods: Sequence[str], texts: Sequence[str]) -> dict[str, dict[str, Any]]:
    """What the user has set for each method, by key."""
    from gdkl.experiments.trial import known_options  # noqa: PLC0415  (estimators take seconds to import)

    known = {name: known_options(spec.methods[name]) for name in methods} if texts else {}
    chosen: dict[str, dict[str, Any]] = {name: {} for name in methods}
    for text in texts:
        left, equals, value = text.partition("=")
        only, colon, key = left.strip().rpartition(":")
        if not equals or not key:
            raise OptionError(f"--set {text!r} is not of the form key=value, preset.key=value or method:key=value.")
        if colon and only not in methods:
            raise OptionError(f"--set {text!r} names no method of this run: use {', '.join(methods)}.")
        takers = [name for name in methods if key in known[name] and only in ("", name)]
        if not takers:
            keys = dict.fromkeys(name for method in ([only] if colon else methods) for name in known[method])
            raise OptionError(f"--set {key} is not known: use {', '.join(keys)}.")
        for name in takers:
            chosen[name][key] = parse_value(value)
    return chosen


def parse_value(text: str) -> Any:
    """A number, truth value, null or list as JSON writes it; anything else is a word.

    Example:
        >>> [parse_value(text) for text in ("0.3", "true", "none", "[0.5, 0.75]", "dense")]
        [0.3, True, None, [0.5, 0.75], 'dense']
    """
    word = text.strip()
    if word.lower() in ("none", "true", "false"):
        return {"none": None, "true": True, "false": False}[word.lower()]
    try:
        return json.loads(word)
    except ValueError:
        return word
