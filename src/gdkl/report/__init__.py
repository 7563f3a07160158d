"""The report of a fitted model: one HTML page that says whether to trust it, and why."""

from gdkl.report.writing import write_report

__all__ = ["write_report"]
