"""Makes typed.py and short_env.py importable, by the tests and by import paths such as `typed:TwoRates`."""

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).parent))
