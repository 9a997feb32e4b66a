"""What every test may rely on: the same start each time, and nothing left behind for the next test."""

from __future__ import annotations

import os
import random
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import torch


@pytest.fixture(autouse=True, scope="session")
def own_cache_folder(tmp_path_factory: pytest.TempPathFactory) -> None:
    """What lit_rl keeps for its user is neither read nor written; matplotlib's list of fonts, which takes long, is."""
    cache = os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")
    os.environ.setdefault("MPLCONFIGDIR", str(Path(cache) / "matplotlib"))
    os.environ["XDG_CACHE_HOME"] = str(tmp_path_factory.mktemp("cache"))
    os.environ["TORCH_COMPILE_DISABLE"] = "1"  # the same bits each time, however slow the machine is


@pytest.fixture(autouse=True)
def fresh_process_state() -> Iterator[None]:
    """Seeds the global generators, computes on one thread, and puts `os.environ` back afterwards."""
    environ = dict(os.environ)
    random.seed(0)
    np.random.seed(0)
    torch.manual_seed(0)
    torch.set_num_threads(1)  # the networks of the tests are small: more threads cost time
    yield
    # Lightning leaves ranks, ports and seeds here, and the next run in this process would read them. Entry by entry,
    # because pytest's own fixtures and threads of other libraries look at the same mapping.
    for name in os.environ.keys() - environ.keys():
        if name != "PYTEST_CURRENT_TEST":
            del os.environ[name]
    for name, value in environ.items():
        if name != "PYTEST_CURRENT_TEST" and os.environ.get(name) != value:
            os.environ[name] = value
