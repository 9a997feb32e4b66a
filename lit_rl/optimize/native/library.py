"""Compiled graphs as functions."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import torch
from torch import Tensor


def load_library(path: Path) -> Callable[[list[Tensor]], list[Tensor]]:
    """The function of a library, for tensors of exactly the shapes, strides and dtypes that it was built for.

    It checks nothing, holds no lock of Python's, and empties the list that it is given. Raises RuntimeError.
    """
    # the loader behind torch._inductor.aoti_load_package, without what that does to trees at every call
    loader = torch._C._aoti.AOTIModelPackageLoader(str(path), "model", False, 1, -1)
    run: Callable[[list[Tensor]], list[Tensor]] = loader.boxed_run
    return run
