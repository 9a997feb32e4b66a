#!/usr/bin/env bash
# MountainCar-v0: the commands behind docs/results.md, which ran each with the seeds 0, 1, 2, 3, 4.
set -e
python train.py --algo DQN --env MountainCar-v0 --seed 0
