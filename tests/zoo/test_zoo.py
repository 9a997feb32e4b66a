from __future__ import annotations

import pytest

from lit_rl.algorithms import MODULES
from lit_rl.cli.arguments import from_argv
from lit_rl.cli.resolve import resolve
from lit_rl.zoo import entries

ALL = [(algo, env) for algo in MODULES for env in entries(algo)]


@pytest.mark.parametrize("algo, env", ALL, ids=" ".join)
def test_every_entry_is_known_settings_that_fit_together(algo, env):
    resolved = resolve(from_argv(["--algo", algo, "--env", env, "--two_steps"]))
    (note,) = resolved.notes  # no size had to be changed
    assert note.startswith("using the tuned settings")
    entry = entries(algo)[env]
    assert isinstance(entry["reference"], int | float) and entry["source"]
    assert resolved.settings.stage1.trainer["max_epochs"] == entry["max_epochs"]
