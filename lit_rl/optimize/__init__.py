"""The one place where a gradient step happens."""

from lit_rl.optimize.flat import FlatGroup
from lit_rl.optimize.optimizers import FlatAdam
from lit_rl.optimize.step import GradientStep

__all__ = ["FlatAdam", "FlatGroup", "GradientStep"]
