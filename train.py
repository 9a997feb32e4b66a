"""Train a policy: `python train.py --two_steps`. All flags: `python train.py --help`."""

import sys

from lit_rl.cli import main

if __name__ == "__main__":
    sys.exit(main(["train", *sys.argv[1:]]))
