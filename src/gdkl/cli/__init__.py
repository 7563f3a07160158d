"""The command line: ``gdkl …``."""

from gdkl.cli.app import app, main

__all__ = ["app", "main"]
