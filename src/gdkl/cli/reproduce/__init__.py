"""``gdkl reproduce``: a command an experiment, each in a file of its own."""

from gdkl.cli.reproduce.group import app

__all__ = ["app"]
