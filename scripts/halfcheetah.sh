#!/usr/bin/env bash
# HalfCheetah-v5: the commands of docs/results.md, which wants each with the seeds 0, 1, 2, 3, 4.
# needs the extra mujoco: pip install -e '.[mujoco]'
set -e
python train.py --algo SAC --env HalfCheetah-v5 --max_epochs 10 --seed 0
python train.py --algo TD3 --env HalfCheetah-v5 --max_epochs 10 --seed 0
python train.py --algo PPO --env HalfCheetah-v5 --seed 0
