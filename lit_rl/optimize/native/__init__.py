"""Gradients as native code: captured once as a graph, compiled beside the run, kept in the user's cache folder."""

from lit_rl.optimize.native.native import Compile, NativeGradient

__all__ = ["Compile", "NativeGradient"]
