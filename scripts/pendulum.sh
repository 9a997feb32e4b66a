#!/usr/bin/env bash
# Pendulum-v1: the commands of docs/results.md, which wants each with the seeds 0, 1, 2, 3, 4.
set -e
python train.py --algo SAC --env Pendulum-v1 --seed 0
python train.py --algo TD3 --env Pendulum-v1 --seed 0
python train.py --algo DDPG --env Pendulum-v1 --seed 0
python train.py --algo PPO --env Pendulum-v1 --seed 0
