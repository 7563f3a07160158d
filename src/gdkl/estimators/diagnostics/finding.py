"""What a diagnosis is made of: findings in words, each with the figure behind it and a remedy."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pandas as pd

#: Columns of a terminal that the text is wrapped at.
_WIDTH = 100


class Severity(StrEnum):
    """How much a finding matters."""

    PROBLEM = "problem"
    """Predictions are not what they claim to be."""
    WARNING = "warning"
    """Something to mend, or to keep in mind, before predictions are used."""
    NOTE = "note"
    """Worth knowing; nothing is wrong."""
    FINE = "fine"
    """Checked, and nothing was found."""
    UNKNOWN = "not checked"
    """The check could not be made; the text says why."""


_ORDER = list(Severity)


@dataclass(frozen=True)
class Finding:
    """One thing that a check found.

    Attributes:
        check: Name of the check.
        severity: How much it matters.
        text: What was found, in words.
        value: The figure behind it; NaN where nothing was measured.
        low: The value is no less than this where all is well; minus infinity for no bound.
        high: And no more than this.
        remedy: What to do about it; empty where nothing is to be done.
    """

    check: str
    severity: Severity
    text: str
    value: float = float("nan")
    low: float = float("-inf")
    high: float = float("inf")
    remedy: str = ""


@dataclass(frozen=True, repr=False)
class Diagnosis:
    """What was found out about a model on held-out rows; it prints as plain text.

    Attributes:
        findings: The gravest first.
        rows: Held-out rows that the findings are from.

    Example:
        >>> print(Diagnosis((Finding("skill", Severity.FINE, "Better than the mean."),), rows=80))
        Nothing speaks against this model on 80 held-out rows.
        <BLANKLINE>
        Checked and fine: skill.
    """

    findings: tuple[Finding, ...]
    rows: int

    def __post_init__(self) -> None:
        found = sorted(self.findings, key=lambda finding: _ORDER.index(finding.severity))
        object.__setattr__(self, "findings", tuple(found))

    @property
    def severity(self) -> Severity:
        """That of the gravest finding: a problem, a warning, or fine."""
        severities = {finding.severity for finding in self.findings}
        grave = (level for level in (Severity.PROBLEM, Severity.WARNING) if level in severities)
        return next(grave, Severity.FINE)

    @property
    def verdict(self) -> str:
        """The whole in one line."""
        rows = f"{self.rows} held-out row{'' if self.rows == 1 else 's'}"
        named = ", ".join(dict.fromkeys(finding.check for finding in self.grave))
        if self.severity is Severity.PROBLEM:
            return f"Do not rely on this model as it is: {named} ({rows})."
        if self.severity is Severity.WARNING:
            return f"Usable with care: {named} ({rows})."
        return f"Nothing speaks against this model on {rows}."

    @property
    def grave(self) -> tuple[Finding, ...]:
        """Problems and warnings."""
        return tuple(one for one in self.findings if one.severity in (Severity.PROBLEM, Severity.WARNING))

    def to_frame(self) -> pd.DataFrame:
        """The findings as a DataFrame, one row each, the gravest first."""
        import pandas as pd  # noqa: PLC0415  (slow to import)

        frame = pd.DataFrame([asdict(finding) for finding in self.findings], columns=list(Finding.__annotations__))
        return frame.assign(severity=frame["severity"].astype(str))

    def __iter__(self) -> Iterator[Finding]:
        return iter(self.findings)

    def __len__(self) -> int:
        return len(self.findings)

    def __str__(self) -> str:
        lines = [self.verdict, ""]
        for finding in self.findings:
            if finding.severity is Severity.FINE:
                continue
            lines += _wrapped(f"[{finding.severity}] {finding.check}: {finding.text}", "")
            if finding.remedy:
                lines += _wrapped(f"Remedy: {finding.remedy}", "    ")
        fine = dict.fromkeys(finding.check for finding in self.findings if finding.severity is Severity.FINE)
        if fine:
            lines += _wrapped(f"Checked and fine: {', '.join(fine)}.", "")
        return "\n".join(lines)

    # A notebook, and the prompt, show the text.
    __repr__ = __str__


def _wrapped(text: str, indent: str) -> list[str]:
    return textwrap.wrap(text, _WIDTH, initial_indent=indent, subsequent_indent=indent or "    ")
