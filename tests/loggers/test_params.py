"""params.json says what a run was made of, in plain JSON."""

from __future__ import annotations

import json
import platform
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import lit_rl
from lit_rl.loggers import params
from lit_rl.loggers.params import write_params


@dataclass
class Settings:
    lr: float = 1e-3
    folder: Path = Path("output/x")


def written(tmp_path: Path, settings: dict[str, Any], **more: Any) -> dict[str, Any]:
    write_params(tmp_path, settings, **more)
    content = json.loads((tmp_path / "params.json").read_text(), parse_constant=pytest.fail)
    assert isinstance(content, dict)
    return content


def test_every_setting_and_version_is_there(tmp_path: Path) -> None:
    content = written(tmp_path, {"lr": 0.1, "seed": 3, "stage1": Settings(), "hidden_sizes": (64, 64)})
    assert (content["lr"], content["seed"], content["hidden_sizes"]) == (0.1, 3, [64, 64])
    assert content["stage1"] == {"lr": 1e-3, "folder": "output/x"}
    assert content["versions"]["python"] == platform.python_version()
    assert content["versions"]["lit_rl"] == lit_rl.__version__
    assert content["versions"]["torch"].startswith(torch.__version__.split("+")[0])
    assert set(content["versions"]) == {"lit_rl", "python", "torch", "pytorch-lightning", "gymnasium", "numpy"}
    assert content["platform"] == platform.platform()


def test_seed_may_stand_beside_nested_settings(tmp_path: Path) -> None:
    assert written(tmp_path, {"run": {"seed": 4}}, seed=4)["seed"] == 4


def test_what_json_has_no_form_for_becomes_text(tmp_path: Path) -> None:
    content = written(
        tmp_path,
        {"limit": float("inf"), "env": Settings, "size": np.int64(3), "low": np.zeros(2), "x": torch.tensor([1.5])},
    )
    assert content["limit"] == "inf"
    assert content["env"] == f"{__name__}.Settings"
    assert (content["size"], content["low"], content["x"]) == (3, [0.0, 0.0], [1.5])


def test_commit_is_that_of_the_checkout_that_holds_the_file_and_null_elsewhere(tmp_path: Path) -> None:
    def git(*arguments: str) -> str:
        identity = ["-c", "user.name=a", "-c", "user.email=a@b", "-c", "commit.gpgsign=false"]
        done = subprocess.run(
            ["git", "-C", str(tmp_path), *identity, *arguments], check=True, capture_output=True, text=True
        )
        return done.stdout.strip()

    for name in ("tracked.py", "other.py"):
        (tmp_path / name).write_text("")
    assert params._git_commit(tmp_path / "tracked.py") is None
    git("init", "-q")
    git("add", "tracked.py")
    git("commit", "-q", "-m", "x")
    assert params._git_commit(tmp_path / "tracked.py") == git("rev-parse", "HEAD")
    assert params._git_commit(tmp_path / "other.py") is None
