"""Makes typed.py and short_env.py importable, by the tests and by import paths such as `typed:TwoRates`."""

import sys
from pathlib import Path

import pytest

import lit_rl.zoo

HERE = Path(__file__).parent
sys.path.append(str(HERE))


@pytest.fixture
def fixed_zoo(monkeypatch: pytest.MonkeyPatch) -> None:
    """The tuned entries are those of tests/cli/zoo, which do not change when the package's are tuned anew."""
    monkeypatch.setattr(lit_rl.zoo, "files", lambda package: HERE / "zoo")
