#!/usr/bin/env bash
# LunarLander-v3: the commands of docs/results.md, which wants each with the seeds 0, 1, 2, 3, 4.
# needs the extra box2d: pip install -e '.[box2d]'
set -e
python train.py --algo PPO --env LunarLander-v3 --seed 0
python train.py --algo DQN --env LunarLander-v3 --seed 0
