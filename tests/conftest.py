"""Settings that every test shares."""

from __future__ import annotations

import os
import signal

import pytest
import torch
from hypothesis import settings


def pytest_configure(config):
    # A jitter that nobody expected fails the test. Set here and not in pyproject.toml: there, pytest would import the
    # library before coverage starts to count.
    config.addinivalue_line("filterwarnings", "error::gdkl.numerics.NumericsWarning")


@pytest.fixture
def ctrl_c():
    """Python's own answer to Ctrl-C: a process started in the background inherits none."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


# Tests run side by side on few cores: threads that spin would cost more than they give.
torch.set_num_threads(1)

settings.register_profile("default", deadline=None, max_examples=25, derandomize=bool(os.environ.get("CI")))
# What `make test-long` uses: other examples each time, and many.
settings.register_profile("long", deadline=None, max_examples=500)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "default"))
