#!/usr/bin/env bash
# CartPole-v1: the commands of docs/results.md, which wants each with the seeds 0, 1, 2, 3, 4.
set -e
python train.py --algo DQN --env CartPole-v1 --seed 0
python train.py --algo PPO --env CartPole-v1 --seed 0
python train.py --algo A2C --env CartPole-v1 --seed 0
python train.py --algo PG --env CartPole-v1 --seed 0
python train.py --algo ES --env CartPole-v1 --seed 0
