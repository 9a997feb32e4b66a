"""Train stable-baselines3 as a run of ours was trained: the same settings, env steps, seed, evaluations and test.

    PYTHONPATH=. <its own environment>/bin/python scripts/reproduce_sb3.py OUR_RUN/config.json RESULT.json

scripts/reproduce.py calls it. SAC, TD3 and PPO on Box observations and actions. The evaluations and the test play the very
episodes that ours play, one after another, greedily; the best policy is the one with the best evaluation.
"""

from __future__ import annotations

import copy
import importlib.metadata
import json
import platform
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import torch
from stable_baselines3 import PPO, SAC, TD3
from stable_baselines3.common.base_class import BaseAlgorithm
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.noise import NormalActionNoise
from stable_baselines3.common.vec_env import DummyVecEnv, VecNormalize

from lit_rl.envs.seeds import env_seed

ACTIVATIONS = {"relu": torch.nn.ReLU, "tanh": torch.nn.Tanh}


def make_model(c: dict[str, Any], steps: int) -> BaseAlgorithm:
    """The model that our settings ``c`` describe, for a run of so many env steps."""
    envs = DummyVecEnv([lambda: gym.make(c["env"]) for _ in range(c["num_envs"])])
    shared = {"seed": c["seed"], "device": "cpu", "gamma": c["gamma"], "batch_size": c["batch_size"]}
    shared["learning_rate"] = schedule(c["lr"], steps)
    network = {"net_arch": c["hidden_sizes"], "activation_fn": ACTIVATIONS[c["activation"]]}
    if c["algo"] == "PPO":
        normal = {"norm_obs": c["normalize_obs"], "norm_reward": c["normalize_reward"], "gamma": c["gamma"]}
        return PPO(
            "MlpPolicy",
            VecNormalize(envs, **normal),
            n_steps=c["rollout_length"],
            n_epochs=c["epochs_per_rollout"],
            gae_lambda=c["gae_lambda"],
            clip_range=schedule(c["clip"], steps),
            clip_range_vf=c["vf_clip"],
            ent_coef=c["entropy_coeff"],
            vf_coef=c["vf_coeff"],
            max_grad_norm=c["gradient_clip_val"],
            target_kl=c["target_kl"],
            policy_kwargs=network,
            **shared,
        )
    if c["random_steps"] != c["learning_starts"] or c["n_step"] != 1 or c["prioritized"]:
        raise SystemExit("stable-baselines3 has no counterpart of these settings")
    shared |= {
        "buffer_size": c["buffer_size"],
        "learning_starts": c["learning_starts"],
        "tau": c["tau"],
        "train_freq": c["collect_per_step"],
        "gradient_steps": round(c["collect_per_step"] * c["update_per_step"]),
        "policy_kwargs": network | {"n_critics": c["critics"]},
    }
    if c["algo"] == "SAC":
        target = "auto" if c["target_entropy"] is None else c["target_entropy"]
        temperature = f"auto_{c['alpha']}" if c["learn_alpha"] else c["alpha"]
        return SAC("MlpPolicy", envs, ent_coef=temperature, target_entropy=target, **shared)
    size = envs.action_space.shape[0]
    return TD3(
        "MlpPolicy",
        envs,
        action_noise=NormalActionNoise(np.zeros(size), np.full(size, c["exploration_noise"])),
        policy_delay=c["policy_delay"],
        target_policy_noise=c["target_noise"],
        target_noise_clip=c["target_noise_clip"],
        **shared,
    )


def schedule(value: float | list[list[float]], steps: int) -> float | Callable[[float], float]:
    """Ours are over env steps, theirs over what is left of the run."""
    if not isinstance(value, list):
        return value
    at, of = zip(*value, strict=True)
    return lambda left: float(np.interp((1.0 - left) * steps, at, of))


def play(model: BaseAlgorithm, env: gym.Env[Any, Any], seeds: list[int]) -> list[float]:
    """The return of one greedy episode for each seed."""
    normal, returns = model.get_vec_normalize_env(), []
    for seed in seeds:
        obs, _ = env.reset(seed=seed)
        total, ended = 0.0, False
        while not ended:
            action, _ = model.predict(obs if normal is None else normal.normalize_obs(obs), deterministic=True)
            obs, reward, terminated, truncated, _ = env.step(action)
            total += float(reward)
            ended = terminated or truncated
        returns.append(total)
    return returns


class Evaluate(BaseCallback):
    """Evaluates once an epoch of ours, and remembers the best policy."""

    def __init__(self, every: int, seeds: list[int], env: gym.Env[Any, Any]) -> None:
        super().__init__()
        self.every, self.seeds, self.env = every, seeds, env
        self.due = every
        self.curve: list[tuple[int, float]] = []
        self.best: tuple[dict[str, Any], Any] | None = None

    def _on_step(self) -> bool:
        return True

    def _on_rollout_start(self) -> None:
        # Here what came in has been learned from, as when an epoch of ours ends.
        self.evaluate_if_due()

    def _on_training_end(self) -> None:
        self.evaluate_if_due()

    def evaluate_if_due(self) -> None:
        if self.num_timesteps < self.due:
            return
        self.due += self.every
        score = float(np.mean(play(self.model, self.env, self.seeds)))
        if self.best is None or score > max(past for _, past in self.curve):
            self.best = copy.deepcopy((self.model.policy.state_dict(), self.statistics()))
        self.curve.append((self.num_timesteps, round(score, 3)))

    def statistics(self) -> Any:
        normal = self.model.get_vec_normalize_env()
        return None if normal is None else normal.obs_rms

    def load_best(self) -> None:
        assert self.best is not None
        weights, statistics = self.best
        self.model.policy.load_state_dict(weights)
        normal = self.model.get_vec_normalize_env()
        if normal is not None:
            normal.obs_rms = statistics


def main() -> None:
    config, target = map(Path, sys.argv[1:])
    c = json.loads(config.read_text())
    if c["num_threads"] != "auto":
        torch.set_num_threads(c["num_threads"])
    steps = c["max_epochs"] * c["step_per_epoch"]
    env = gym.make(c["env"])
    test_seeds = [env_seed(c["seed"], "test", i) for i in range(c["test_episodes"])]
    eval_seeds = [env_seed(c["seed"], "eval", i) for i in range(c["episode_per_test"])]
    evaluate = Evaluate(c["step_per_epoch"], eval_seeds, env)
    model = make_model(c, steps)
    model.learn(steps, callback=evaluate)
    last = play(model, env, test_seeds)
    evaluate.load_best()
    best = play(model, env, test_seeds)

    def summary(returns: list[float]) -> dict[str, float]:
        return {"return_mean": np.mean(returns), "return_std": np.std(returns), "episodes": len(returns)}

    versions = {name: importlib.metadata.version(name) for name in ("stable-baselines3", "torch", "gymnasium", "numpy")}
    result = {
        "library": "stable-baselines3",
        "algo": c["algo"],
        "env": c["env"],
        "seed": c["seed"],
        "env_steps": model.num_timesteps,
        "updates": model._n_updates,
        "best_evaluation": max(score for _, score in evaluate.curve),
        "test": summary(best),
        "last_test": summary(last),
        "curve": evaluate.curve,
        "versions": versions | {"python": platform.python_version()},
    }
    target.write_text(json.dumps(result) + "\n")


if __name__ == "__main__":
    main()
