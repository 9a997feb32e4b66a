"""The one place where a gradient step happens."""

from lit_rl.optimize.flat import FlatGroup
from lit_rl.optimize.native import Compile, NativeGradient
from lit_rl.optimize.optimizers import FlatAdam
from lit_rl.optimize.refine import Refining
from lit_rl.optimize.remedies import Remedies
from lit_rl.optimize.step import GradientStep
from lit_rl.optimize.threads import threads_for

__all__ = [
    "Compile",
    "FlatAdam",
    "FlatGroup",
    "GradientStep",
    "NativeGradient",
    "Refining",
    "Remedies",
    "threads_for",
]
