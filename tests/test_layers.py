"""The rules that every file of `lit_rl` keeps: imports point down the list of layers, and nothing unpickles."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parents[1] / "lit_rl"

# From top to bottom (docs/architecture.md). A file may import from its own layer and from lower lines; two layers on
# one line know nothing of each other.
LAYERS = (
    ("__init__",),
    ("cli",),
    ("compat",),
    ("pipeline",),
    ("lit_policy",),
    ("datamodule",),
    ("callbacks", "loggers"),
    ("export",),
    ("serving",),
    ("checkpoint",),
    ("optimize",),
    ("algorithms",),
    ("data",),
    ("policies",),
    ("networks",),
    ("envs",),
    ("functional",),
    ("collectives", "weights"),
    ("zoo",),
    ("errors",),
)
RANK = {layer: rank for rank, line in enumerate(LAYERS) for layer in line}

UNPICKLING_MODULES = {"pickle", "_pickle", "cPickle", "cloudpickle", "dill", "joblib", "marshal", "shelve"}
TORCH_LOADS = {"torch.load", "torch.serialization.load"}


def layer_violations(source: str, file: str, submodules: frozenset[str] = frozenset(RANK)) -> list[str]:
    """What `source` imports from higher layers, as `file:line: import: reason`.

    `file` is the path below the project, such as `lit_rl/data/replay.py`; `submodules` are the names directly below the
    package, which tell `from lit_rl import data` (a layer) from `from lit_rl import train` (a name of `__init__`).
    """
    layer = layer_of_file(file)
    if layer not in RANK:
        return [f"{file}:1: {layer}: stands on no line of the list of layers"]
    violations = []
    for line, statement, target in lit_rl_imports(ast.parse(source), file, submodules):
        if target == layer:
            continue
        if target not in RANK:
            violations.append(f"{file}:{line}: {statement}: {target} stands on no line of the list of layers")
        elif RANK[target] <= RANK[layer]:
            violations.append(f"{file}:{line}: {statement}: {target} is not below {layer}")
    return violations


def layer_of_file(file: str) -> str:
    return Path(file).with_suffix("").parts[1]


def lit_rl_imports(tree: ast.AST, file: str, submodules: frozenset[str]) -> Iterator[tuple[int, str, str]]:
    """Yields (line, the statement, the layer it takes from) for every import of this package, wherever it stands."""
    package = Path(file).parts[:-1]
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            modules = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            above = package[: len(package) - node.level + 1] if node.level else ()
            module = ".".join([*above, *([node.module] if node.module else [])])
            modules = [f"{module}.{alias.name}" for alias in node.names]
        elif isinstance(node, ast.Call) and (module := dynamic_import(node, package)):
            modules = [module]
        else:
            continue
        for module in modules:
            parts = module.split(".")
            if parts[0] != "lit_rl" or parts[1:] == ["__version__"]:
                continue
            layer = parts[1] if len(parts) > 1 and (parts[1] in submodules or len(parts) > 2) else "__init__"
            yield node.lineno, ast.unparse(node), layer


def dynamic_import(node: ast.Call, package: tuple[str, ...]) -> str | None:
    """The module of `import_module("...")` or `__import__("...")`, where it is a plain string."""
    name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
    if name not in ("import_module", "__import__") or not node.args:
        return None
    module = node.args[0].value if isinstance(node.args[0], ast.Constant) else None
    if not isinstance(module, str):
        return None
    level = len(module) - len(module.lstrip("."))
    above = package[: len(package) - level + 1] if level else ()
    return ".".join([*above, module.lstrip(".")])


def unpickling_violations(source: str, file: str) -> list[str]:
    """What in `source` could unpickle a file, as `file:line: code: reason`."""
    tree = ast.parse(source)
    full_names = imported_names(tree)
    in_checkpoint = file == "lit_rl/checkpoint.py"
    safe_loads = {
        node.func
        for node in ast.walk(tree)
        if isinstance(node, ast.Call)
        and any(k.arg == "weights_only" and is_constant(k.value, True) for k in node.keywords)
    }
    violations = []

    def report(node: ast.expr | ast.stmt, reason: str) -> None:
        violations.append(f"{file}:{node.lineno}: {ast.unparse(node)}: {reason}")

    for node in ast.walk(tree):
        if isinstance(node, ast.Import | ast.ImportFrom):
            for name in imported_names(node).values():
                if name.split(".")[0] in UNPICKLING_MODULES:
                    report(node, "unpickling runs code")
                elif name in TORCH_LOADS:
                    report(node, "write torch.load, so that every use is seen")
        elif isinstance(node, ast.Attribute) and dotted_name(node, full_names) in TORCH_LOADS:
            if not in_checkpoint:
                report(node, "torch.load belongs in lit_rl/checkpoint.py")
            elif node not in safe_loads:
                report(node, "torch.load needs weights_only=True")
        elif isinstance(node, ast.Call):
            called = dotted_name(node.func, full_names).split(".")[-1]
            dynamic = dynamic_import(node, ())
            if dynamic is not None and dynamic.split(".")[0] in UNPICKLING_MODULES:
                report(node, "unpickling runs code")
            for keyword in node.keywords:
                # Saving with weights_only=False means a full checkpoint: nothing is loaded.
                if (
                    keyword.arg == "weights_only"
                    and is_constant(keyword.value, False)
                    and not called.startswith("save")
                ):
                    report(node, "weights_only=False unpickles")
                if keyword.arg == "allow_pickle" and not is_constant(keyword.value, False):
                    report(node, "allow_pickle unpickles")
    return violations


def imported_names(tree: ast.AST) -> dict[str, str]:
    """Local name -> full dotted name, for every import in `tree`."""
    names = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                names[alias.asname or alias.name] = alias.name
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            for alias in node.names:
                names[alias.asname or alias.name] = f"{node.module}.{alias.name}"
    return names


def dotted_name(node: ast.expr, full_names: dict[str, str]) -> str:
    """`t.load` -> `torch.load` where `import torch as t` stands in the file; "" for what is no chain of names."""
    attributes: list[str] = []
    while isinstance(node, ast.Attribute):
        attributes.insert(0, node.attr)
        node = node.value
    if not isinstance(node, ast.Name):
        return ".".join(attributes)
    return ".".join([full_names.get(node.id, node.id), *attributes])


def is_constant(node: ast.expr, value: object) -> bool:
    return isinstance(node, ast.Constant) and node.value is value


def sources() -> list[tuple[str, str]]:
    files = sorted(PACKAGE.rglob("*.py"))
    assert files
    return [(file.relative_to(PACKAGE.parent).as_posix(), file.read_text(encoding="utf-8")) for file in files]


def test_imports_point_down() -> None:
    submodules = frozenset(file.stem if file.is_file() else file.name for file in PACKAGE.iterdir())
    violations = [v for file, source in sources() for v in layer_violations(source, file, submodules)]
    assert not violations, "imports that do not point down the list of layers:\n" + "\n".join(violations)


def test_nothing_unpickles() -> None:
    violations = [v for file, source in sources() for v in unpickling_violations(source, file)]
    assert not violations, "\n".join(violations)


@pytest.mark.parametrize(
    ("file", "line", "statement"),
    [
        ("lit_rl/data/replay.py", "from lit_rl.algorithms.dqn import DQN", "algorithms is not below data"),
        ("lit_rl/data/replay.py", "import lit_rl.lit_policy", "lit_policy is not below data"),
        ("lit_rl/data/replay.py", "from lit_rl import optimize", "optimize is not below data"),
        ("lit_rl/data/replay.py", "from lit_rl import load_policy", "__init__ is not below data"),
        ("lit_rl/data/replay.py", "import lit_rl", "__init__ is not below data"),
        ("lit_rl/data/replay.py", "from ..algorithms import base", "algorithms is not below data"),
        ("lit_rl/data/replay.py", "from .. import datamodule", "datamodule is not below data"),
        ("lit_rl/data/__init__.py", "from ..algorithms import base", "algorithms is not below data"),
        ("lit_rl/data/replay.py", "importlib.import_module('lit_rl.pipeline')", "pipeline is not below data"),
        ("lit_rl/data/replay.py", "import_module('..pipeline', __package__)", "pipeline is not below data"),
        ("lit_rl/checkpoint.py", "from .loggers import records", "loggers is not below checkpoint"),
        (
            "lit_rl/loggers/curve.py",
            "from lit_rl.callbacks.last import LastCheckpoint",
            "callbacks is not below loggers",
        ),
        ("lit_rl/errors.py", "from lit_rl.zoo import entries", "zoo is not below errors"),
        ("lit_rl/data/replay.py", "from lit_rl.utils import clamp", "utils stands on no line of the list of layers"),
    ],
)
def test_an_import_that_points_up_is_reported(file: str, line: str, statement: str) -> None:
    source = f"import torch\n\ndef late() -> None:\n    {line}\n"
    shown = ast.unparse(ast.parse(line))
    assert layer_violations(source, file) == [f"{file}:4: {shown}: {statement}"]


def test_an_import_for_type_checking_counts() -> None:
    source = "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from lit_rl.cli import main\n"
    assert layer_violations(source, "lit_rl/envs/make.py") == [
        "lit_rl/envs/make.py:3: from lit_rl.cli import main: cli is not below envs"
    ]


def test_a_file_outside_the_layers_is_reported() -> None:
    assert layer_violations("", "lit_rl/utils.py") == [
        "lit_rl/utils.py:1: utils: stands on no line of the list of layers"
    ]


@pytest.mark.parametrize(
    ("file", "line"),
    [
        ("lit_rl/data/replay.py", "from lit_rl.functional.tree import tree_map"),
        ("lit_rl/data/replay.py", "from lit_rl.data.plans import ReplayPlan"),
        ("lit_rl/data/replay.py", "from .plans import ReplayPlan"),
        ("lit_rl/data/__init__.py", "from .plans import ReplayPlan"),
        ("lit_rl/data/replay.py", "from .. import functional"),
        ("lit_rl/cli/main.py", "from lit_rl import pipeline"),
        ("lit_rl/loggers/params.py", "from lit_rl import __version__"),
        ("lit_rl/functional/returns.py", "from lit_rl.errors import NumericsError"),
        ("lit_rl/__init__.py", "from lit_rl.pipeline import train"),
        ("lit_rl/data/replay.py", "import lit_rl_contrib.cli"),
        ("lit_rl/data/replay.py", "from pipeline import something"),
    ],
)
def test_an_import_that_points_down_passes(file: str, line: str) -> None:
    assert layer_violations(line, file) == []


@pytest.mark.parametrize(
    ("file", "source", "line", "reason"),
    [
        ("lit_rl/data/replay.py", "import pickle", 1, "unpickling runs code"),
        ("lit_rl/data/replay.py", "def f():\n    from pickle import loads", 2, "unpickling runs code"),
        ("lit_rl/data/replay.py", "import cloudpickle as c", 1, "unpickling runs code"),
        ("lit_rl/data/replay.py", "import_module('pickle')", 1, "unpickling runs code"),
        ("lit_rl/data/replay.py", "import torch\ntorch.load(p, weights_only=True)", 2, "belongs in"),
        ("lit_rl/data/replay.py", "import torch as t\nread = t.load", 2, "belongs in"),
        ("lit_rl/data/replay.py", "from torch import load", 1, "every use is seen"),
        ("lit_rl/checkpoint.py", "import torch\ntorch.load(p)", 2, "needs weights_only=True"),
        ("lit_rl/checkpoint.py", "import torch\ntorch.load(p, weights_only=flag)", 2, "needs weights_only=True"),
        ("lit_rl/pipeline.py", "trainer.fit(m, ckpt_path=p, weights_only=False)", 1, "weights_only=False unpickles"),
        ("lit_rl/data/offline.py", "np.load(p, allow_pickle=True)", 1, "allow_pickle unpickles"),
    ],
)
def test_what_could_unpickle_is_reported(file: str, source: str, line: int, reason: str) -> None:
    (violation,) = unpickling_violations(source, file)
    assert violation.startswith(f"{file}:{line}: ")
    assert reason in violation


@pytest.mark.parametrize(
    ("file", "source"),
    [
        ("lit_rl/checkpoint.py", "import torch\ntorch.load(p, map_location='cpu', weights_only=True)"),
        ("lit_rl/callbacks/last.py", "trainer.save_checkpoint(p, weights_only=False)"),
        ("lit_rl/data/offline.py", "np.load(p, allow_pickle=False)"),
        ("lit_rl/zoo/__init__.py", "import yaml\nyaml.safe_load(text)"),
    ],
)
def test_safe_loads_pass(file: str, source: str) -> None:
    assert unpickling_violations(source, file) == []
