"""The tuned entries of the package."""

from __future__ import annotations

import pytest
from typed import resolved

from lit_rl.algorithms import MODULES
from lit_rl.zoo import entries

ENTRIES = [(algo, env) for algo in MODULES for env in entries(algo)]


@pytest.mark.parametrize(("algo", "env"), ENTRIES)
def test_a_tuned_entry_makes_two_stages_that_learn_without_being_adapted(algo, env):
    assert {"reference", "source"} <= entries(algo)[env].keys()
    found = resolved("--algo", algo, "--env", env, "--two_steps")
    assert found.notes == [f"using the tuned settings of {algo} on {env} (--tuned false turns them off)"]
    assert found.settings.stage2 is not None
    assert found.settings.stage2.algorithm.lr > 0, "stage 2 goes on"
