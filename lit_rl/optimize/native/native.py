"""Gradients by native code where it has been built, and by eager code everywhere else."""

from __future__ import annotations

import operator
import os
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

import torch
from pytorch_lightning.utilities import rank_zero_only
from torch import Tensor, nn

from lit_rl.algorithms.base import Loss
from lit_rl.functional.tree import tree_leaves, tree_map
from lit_rl.optimize.gradient import Gradient, gradient
from lit_rl.optimize.native.cache import Cache, CacheError, environment_key, graph_key
from lit_rl.optimize.native.capture import Captured, Place, Uncapturable, capture
from lit_rl.optimize.native.library import load_library
from lit_rl.optimize.native.passes import rewrite
from lit_rl.optimize.native.process import BuilderProcess

Compile = bool | Literal["auto"]

SHAPES = 4  # of one group's minibatches that are built; ever other ones stay eager
SECONDS_THAT_PAY = 20.0  # of a run that are still to come, for a build beside it
AGREE = 1e-2  # of a gradient's norm: where an argmax or a kink tips over, one row of a minibatch is another
CHANCES = 2  # to agree

_shape_and_dtype = operator.attrgetter("shape", "dtype")


@dataclass
class Path:
    """How the gradient of one loss is computed, on arguments of one shape."""

    name: str
    key: str = ""
    job: dict[str, Any] | None = field(default=None, repr=False)  # for the builder
    captured: Captured | None = field(default=None, repr=False)
    run: Callable[[list[Tensor]], list[Tensor]] | None = None  # native, where that is built
    sent: bool = False  # to the builder
    checked: bool = False  # against eager, lately
    strikes: int = 0
    stays_eager: bool = False
    history: list[dict[str, Any]] = field(default_factory=list)


class Again(NamedTuple):
    """A native gradient for the same tensors once more, whatever they hold by now: nothing of them is looked at again."""

    tensors: tuple[Any, ...]
    inputs: list[Tensor]
    run: Callable[[list[Tensor]], list[Tensor]]
    captured: Captured

    def is_for(self, tensors: Sequence[Any]) -> bool:
        """Whether these are its tensors."""
        return len(tensors) == len(self.tensors) and all(map(operator.is_, tensors, self.tensors))

    def __call__(self) -> Gradient:
        return _unpacked(self.run(self.inputs.copy()), self.captured)


class NativeGradient:
    """Computes gradients, natively where it can.

    Args:
        compile: "auto" takes what the cache holds, and builds beside the run where that pays; True waits for the build;
            False is eager.
        steady: change nothing in the middle of a run: what cannot be native from its first update on stays eager, and so
            does "auto", whose first update depends on what the cache happens to hold.
        count: the number of updates made so far.
        off: why nothing can be native, where that is known.
    """

    def __init__(
        self,
        compile: Compile = "auto",
        steady: bool = False,
        count: Callable[[], int] = lambda: 0,
        off: str | None = None,
    ) -> None:
        self.compile, self.steady, self.count = compile, steady, count
        self._off: str | None = "--compile false" if compile is False else off  # why nothing is native
        if off is not None and compile is True:
            _say(f"updates stay eager: {off}")
        if steady and compile == "auto" and self._off is None:
            self._off = "the run must not depend on what was built before it; --compile true makes it native"
        elif compile == "auto" and os.environ.get("TORCH_COMPILE_DISABLE") == "1":  # torch's own switch
            self._off = "TORCH_COMPILE_DISABLE is set"
        self.paths: dict[str, Path] = {}
        self._by_arguments: dict[tuple[Any, ...], Path] = {}
        self._again: dict[tuple[str, Callable[..., Loss]], Again] = {}  # for the arguments of the newest call
        self._eager: set[str] = set()  # groups without any native path
        self._pays = self._wanted = self.compile is True  # to build; to look into the cache
        self._builder: BuilderProcess | None = None
        self._before: dict[str, str] = {}  # of a run that goes on: the key of each path, empty where it was eager
        if self._off is not None:
            return
        try:
            if os.name != "posix":
                raise CacheError("native ones need Linux or macOS")
            self._cache = Cache()
            self._environment = environment_key()
            self._wanted = self._wanted or self._cache.holds(self._environment)
        except CacheError as error:
            self._off = str(error)
            _say(f"updates stay eager: {error}")

    def __call__(
        self, group: str, loss_fn: Callable[..., Loss], parameters: Sequence[nn.Parameter], tensors: Sequence[Any]
    ) -> Gradient:
        """The gradient of ``loss_fn(*tensors)`` for the parameters of a group."""
        if self._off is not None or group in self._eager:
            return gradient(loss_fn, parameters, tensors)
        again = self._again.get((group, loss_fn))
        if again is not None and again.is_for(tensors):
            return again()
        leaves = tree_leaves(tensors)
        try:
            path = self._by_arguments[(group, loss_fn, *map(_shape_and_dtype, leaves))]
        except (KeyError, AttributeError):
            path = self._meet(group, loss_fn, parameters, leaves)
        if path.run is None:
            if path.captured is not None or path.stays_eager or not self._wanted:
                return gradient(loss_fn, parameters, tensors)
            self._prepare(path, loss_fn, parameters, tensors)
            if path.run is None:
                return gradient(loss_fn, parameters, tensors)
        assert path.captured is not None
        if all(map(Tensor.is_contiguous, leaves)):
            if path.checked:
                self._again[group, loss_fn] = Again(
                    tuple(tensors), leaves + path.captured.live, path.run, path.captured
                )
        else:
            leaves = [x.contiguous() for x in leaves]
        found = _unpacked(path.run(leaves + path.captured.live), path.captured)
        return found if path.checked else self._checked(path, found, gradient(loss_fn, parameters, tensors))

    # ---- a path's life ----

    def _meet(
        self, group: str, loss_fn: Callable[..., Loss], parameters: Sequence[nn.Parameter], leaves: list[Any]
    ) -> Path:
        """A new path, for a loss or for arguments of a new shape."""
        why = None
        if not hasattr(loss_fn, "__self__"):
            why = "its loss is no method of the algorithm"
        elif not all(isinstance(x, Tensor) for x in leaves):
            why = "its loss is given something else than tensors"
        elif any(x.device.type != "cpu" for x in [*leaves, *parameters]):
            why = ""  # nobody expects it elsewhere
        number = sum(path.name.split()[0] == group for path in self.paths.values()) + 1
        if why is None and number > SHAPES:
            return self._meet_other_shape(group, (group, loss_fn, *map(_shape_and_dtype, leaves)))
        path = Path(group if number == 1 else f"{group} {number}")
        if why is None or number == 1:
            self.paths[path.name] = path
            self._note(path, "eager", why or None)
        if why is not None:
            if number == 1:
                self._eager.add(group)
            self._give_up(path, why)
            return path
        if self._before.get(path.name) == "":
            path.stays_eager = True
        self._by_arguments[(group, loss_fn, *map(_shape_and_dtype, leaves))] = path
        return path

    def _meet_other_shape(self, group: str, arguments: tuple[Any, ...]) -> Path:
        """One path for all shapes beyond the first ones of a group, which stays eager."""
        name = f"{group}, other shapes"
        if name not in self.paths:
            self.paths[name] = Path(name)
            self._give_up(self.paths[name], f"its minibatches have more than {SHAPES} shapes")
        self._by_arguments[arguments] = self.paths[name]
        return self.paths[name]

    def _prepare(self, path: Path, loss_fn: Callable[..., Loss], parameters: Any, tensors: Sequence[Any]) -> None:
        """Capture a loss; native at once where the cache holds it or the run waits for the build."""
        tensors = tree_map(lambda x: x.contiguous(), tuple(tensors))
        try:
            path.captured = capture(loss_fn, parameters, tensors)
        except Uncapturable as error:
            return self._give_up(path, str(error))
        graph = path.captured.graph
        rewrite(graph)
        inputs = [
            [list(x.shape), list(x.stride()), str(x.dtype).removeprefix("torch.")]
            for x in [*tree_leaves(tensors), *path.captured.live]
        ]
        path.key = f"{self._environment}-{graph_key(graph.code, inputs)}"
        path.job = {"key": path.key, "code": graph.code, "inputs": inputs}
        path.job |= {"threads": torch.get_num_threads(), "precision": torch.get_float32_matmul_precision()}
        self._adopt(path)
        if path.run is None and self.compile is True:
            rank_zero_only(print)(f"building native code for {path.name}: once, up to a minute", flush=True)
            self._send(path)
            if path.sent:
                self._fetch(path, wait=True)

    def _send(self, path: Path) -> None:
        try:
            if self._builder is None:
                self._builder = BuilderProcess(self._cache.folder)
            self._builder.add(path.job or {})
            path.sent = True
        except OSError as error:
            self._give_up(path, f"no process to build it can be started: {error.strerror or error}")

    def _fetch(self, path: Path, wait: bool = False) -> None:
        """Take what the builder has made of it, if it has."""
        assert self._builder is not None
        done, why = self._builder.result(path.key, wait)
        if done:
            self._adopt(path)
            self._cache.tidy()
            if path.run is None and not path.stays_eager:
                self._give_up(path, why or "what was built is damaged")

    def _adopt(self, path: Path) -> None:
        """Run natively from now on, where the cache holds it."""
        try:
            library = self._cache.find(path.key)
            if library is None:
                return
            path.run = load_library(library)
        except RuntimeError as error:
            return self._give_up(path, f"its library cannot be loaded: {error}")
        path.job, path.checked = None, False
        self._note(path, "native")
        if self._before.get(path.name, path.key) != path.key:
            _say(f"{path.name}: other native code than before: this run ends with other last bits")

    def _checked(self, path: Path, native: Gradient, eager: Gradient) -> Gradient:
        """What eager says; native counts from the next update on, if it says the same."""
        size = float(eager.flat.norm())
        off = float((native.flat - eager.flat).norm())
        if off <= AGREE * size + 1e-6 or size != size:
            path.checked, path.strikes = True, 0
            return native
        path.strikes += 1
        if path.strikes == CHANCES:
            path.run = None
            reads = "does its loss read numbers that change and are no tensors?"
            self._give_up(path, f"native and eager gradients differ by {off / max(size, 1e-30):.1g}: {reads}")
        return eager

    def _give_up(self, path: Path, why: str) -> None:
        path.stays_eager, path.captured, path.job = True, None, None
        if why:
            _say(f"updates of {path.name} stay eager: {' '.join(why.split())}")
        self._note(path, "eager", why)
        if self._before.get(path.name):
            _say(f"updates of {path.name} were native before: this run ends with other last bits")

    def _note(self, path: Path, what: str, why: str | None = None) -> None:
        entry: dict[str, Any] = {"from_update": self.count(), "path": what}
        if path.history and path.history[-1]["from_update"] == entry["from_update"]:
            path.history.pop()
        path.history.append(entry | ({"why": why} if why else {}))

    # ---- the run ----

    def poll(self, seconds_left: float) -> None:
        """Between two iterations: begin builds where they pay, and take those that are done."""
        if self._off is None:
            self._pays = self._pays or seconds_left > SECONDS_THAT_PAY
            self._wanted = self._wanted or self._pays
            waiting = [path for path in self.paths.values() if path.job is not None]
            for path in waiting:
                if path.sent:
                    self._fetch(path)
                elif self._pays:
                    self._send(path)
            if self._builder is not None and not waiting:
                self.close()

    def check_again(self) -> None:
        """Compare the next native gradient of each path with eager."""
        self._again.clear()
        for path in self.paths.values():
            path.checked = False

    def state(self) -> dict[str, str]:
        """The key of each path's native code, empty where it is eager."""
        return {path.name: path.key if path.run is not None else "" for path in self.paths.values()}

    def go_on(self, state: dict[str, str]) -> None:
        """Take the paths that a run took before, where it must end with the same bits."""
        if not self.steady:
            return
        self._before = state
        if self._off is not None:
            for name in [name for name, key in state.items() if key]:
                _say(f"updates of {name} were native before: this run ends with other last bits")

    def history(self) -> dict[str, list[dict[str, Any]]]:
        """What computed the gradients of each group, from which update on, and why where it stays eager."""
        if self._off is not None:
            return {"all": [{"from_update": 0, "path": "eager", "why": self._off}]}
        return {path.name: path.history for path in self.paths.values()}

    def close(self) -> None:
        """End what is being built."""
        if self._builder is not None:
            self._builder.close()
            self._builder = None


@rank_zero_only
def _say(line: str) -> None:
    """A warning of one line: without the line of code that it came from."""
    warnings.warn_explicit(line, UserWarning, "lit_rl", 1)


def _unpacked(outputs: list[Tensor], captured: Captured) -> Gradient:
    metrics = dict(zip(captured.metrics, outputs[1:], strict=False))
    if captured.aux is None:
        return Gradient(outputs[0], metrics, None)
    if isinstance(captured.aux, Place):
        return Gradient(outputs[0], metrics, outputs[captured.aux])
    return Gradient(outputs[0], metrics, tree_map(lambda x: outputs[x] if isinstance(x, Place) else x, captured.aux))
