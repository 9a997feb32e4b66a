"""The workloads: the same environment, networks, minibatches and number of updates for everybody."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

CARTPOLE, CHEETAH, PONG = "CartPole-v1", "HalfCheetah-v5", "PongNoFrameskip-v4"


@dataclass(frozen=True)
class Workload:
    """One workload.

    Args:
        title: what it is, in one line.
        env: Gymnasium id.
        num_envs: environments side by side.
        steps: env steps of a run.
        warm: env steps before the clock starts; the first updates have been made then.
        ours: settings of ``lit_rl.train`` beside those that all workloads share.
        peer: (class, keyword arguments) in stable-baselines3 and in sbx, which take the same ones.
        batch: transitions of an update.
        goals: by how much the median of pairs should be faster than each peer, the build cached.
        nets: layers (inputs, outputs) of each network, and what an update does with it: "forward" alone, "learn" (the
            gradient of its weights too), or "through" (the gradient of its inputs instead). Empty for the network of the
            Atari papers.
        threads: of torch in a peer's run (ours takes its default). 2 where they make the peer faster: on small networks
            the second one spins, and a machine that does anything else slows the peer down by far.
    """

    title: str
    env: str
    num_envs: int
    steps: int
    warm: int
    ours: dict[str, Any]
    peer: tuple[str, dict[str, Any]]
    batch: int
    goals: dict[str, float]
    nets: list[tuple[str, list[tuple[int, int]]]]
    eager_goal: float = 1.9  # x stable-baselines3, without native updates
    threads: int = 1
    bf16_goal: float | None = None  # x stable-baselines3, with --precision bf16-mixed

    def goal(self, figure: str, peer: str) -> float | None:
        """By how much this figure of ours should be faster than a peer; None for no goal."""
        if figure == "later":
            return self.goals[peer]
        return {"eager": self.eager_goal, "bf16": self.bf16_goal}.get(figure) if peer == "sb3" else None

    def length(self, scale: float) -> int:
        """Env steps of a run whose part after the warm-up is ``scale`` times as long: whole iterations of ours."""
        unit = self.ours["steps_per_iteration"]
        return self.warm + max(1, round((self.steps - self.warm) * scale / unit)) * unit


def _layers(*sizes: int) -> list[tuple[int, int]]:
    return list(zip(sizes, sizes[1:], strict=False))


WORKLOADS: dict[str, Workload] = {
    "W1": Workload(
        "DQN CartPole, 1 env, 256 steps then 128 updates of 64, net 256-256",
        CARTPOLE,
        1,
        30_720,
        2_048,
        {
            "algo": "DQN",
            "hidden_sizes": [256, 256],
            "double": False,
            "lr": 2.3e-3,
            "batch_size": 64,
            "buffer_size": 100_000,
            "learning_starts": 1_000,
            "collect_per_step": 256,
            "update_per_step": 0.5,
            "target_update_every": 128,
            "epsilon": [[0, 1.0], [8_192, 0.04]],
            "gradient_clip_val": 10.0,
            "steps_per_iteration": 512,
            "step_per_epoch": 10_240,
            "matmul_precision": "medium",
        },
        (
            "DQN",
            {
                "learning_rate": 2.3e-3,
                "batch_size": 64,
                "buffer_size": 100_000,
                "learning_starts": 1_000,
                "target_update_interval": 10,
                "train_freq": 256,
                "gradient_steps": 128,
                "exploration_fraction": 8_192 / 30_720,
                "exploration_final_eps": 0.04,
                "policy_kwargs": {"net_arch": [256, 256]},
            },
        ),
        64,
        {"sb3": 4.0, "sbx": 1.4},
        [("learn", _layers(4, 256, 256, 2)), ("forward", _layers(4, 256, 256, 2))],
    ),
    "W2": Workload(
        "DQN CartPole, 1 step : 1 update of 64, net 128-128",
        CARTPOLE,
        1,
        16_000,
        1_500,
        {
            "algo": "DQN",
            "hidden_sizes": [128, 128],
            "double": False,
            "lr": 1e-3,
            "batch_size": 64,
            "buffer_size": 100_000,
            "learning_starts": 1_001,
            "collect_per_step": 1,
            "update_per_step": 1.0,
            "target_update_every": 500,
            "epsilon": [[0, 1.0], [1_600, 0.05]],
            "gradient_clip_val": 10.0,
            "steps_per_iteration": 500,
            "step_per_epoch": 4_000,
        },
        (
            "DQN",
            {
                "learning_rate": 1e-3,
                "batch_size": 64,
                "buffer_size": 100_000,
                "learning_starts": 1_000,
                "target_update_interval": 500,
                "train_freq": 1,
                "gradient_steps": 1,
                "policy_kwargs": {"net_arch": [128, 128]},
            },
        ),
        64,
        {"sb3": 5.5},
        [("learn", _layers(4, 128, 128, 2)), ("forward", _layers(4, 128, 128, 2))],
    ),
    "W3": Workload(
        "PPO CartPole, 8 envs x 32 steps, 20 epochs of 256, nets 64-64",
        CARTPOLE,
        8,
        131_072,
        4_096,
        {
            "algo": "PPO",
            "lr": 1e-3,
            "gamma": 0.98,
            "gae_lambda": 0.8,
            "rollout_length": 32,
            "epochs_per_rollout": 20,
            "batch_size": 256,
            "steps_per_iteration": 1_024,
            "step_per_epoch": 16_384,
        },
        (
            "PPO",
            {
                "n_steps": 32,
                "batch_size": 256,
                "n_epochs": 20,
                "gae_lambda": 0.8,
                "gamma": 0.98,
                "learning_rate": 1e-3,
                "clip_range": 0.2,
            },
        ),
        256,
        {"sb3": 5.0, "sbx": 3.0},
        [("learn", _layers(4, 64, 64, 2)), ("learn", _layers(4, 64, 64, 1))],
    ),
    "W4": Workload(
        "SAC HalfCheetah-v5, 1 step : 1 update of 256, nets 256-256",
        CHEETAH,
        1,
        4_000,
        1_250,
        {
            "algo": "SAC",
            "lr": 3e-4,
            "batch_size": 256,
            "buffer_size": 1_000_000,
            "learning_starts": 1_001,
            "random_steps": 1_000,
            "steps_per_iteration": 250,
            "step_per_epoch": 1_000,
            "matmul_precision": "medium",
        },
        ("SAC", {"learning_starts": 1_000, "batch_size": 256}),
        256,
        {"sb3": 3.0, "sbx": 1.7},
        [
            *(2 * [(how, _layers(23, 256, 256, 1)) for how in ("learn", "forward", "through")]),
            *((how, _layers(17, 256, 256, 12)) for how in ("learn", "forward")),
        ],
        eager_goal=1.5,
        threads=2,
    ),
    "W5": Workload(
        "A2C CartPole, 8 envs x 5 steps, nets 64-64",
        CARTPOLE,
        8,
        150_000,
        5_000,
        {
            "algo": "A2C",
            "entropy_coeff": 0.0,
            "rollout_length": 5,
            "steps_per_iteration": 1_000,
            "step_per_epoch": 15_000,
        },
        ("A2C", {}),
        40,
        {"sb3": 4.4},
        [("learn", _layers(4, 64, 64, 2)), ("learn", _layers(4, 64, 64, 1))],
    ),
    "W6": Workload(
        "PPO HalfCheetah-v5, 8 envs x 256 steps, 10 epochs of 64, nets 64-64",
        CHEETAH,
        8,
        61_440,
        4_096,
        {
            "algo": "PPO",
            "rollout_length": 256,
            "epochs_per_rollout": 10,
            "batch_size": 64,
            "steps_per_iteration": 2_048,
            "step_per_epoch": 20_480,
        },
        ("PPO", {"n_steps": 256, "batch_size": 64, "n_epochs": 10}),
        64,
        {"sb3": 4.0, "sbx": 3.3},
        [("learn", _layers(17, 64, 64, 6)), ("learn", _layers(17, 64, 64, 1))],
    ),
    "W7": Workload(
        "PPO Pong (ALE), 8 envs x 128 steps, 4 epochs of 256, NatureCNN",
        PONG,
        8,
        5_120,
        1_024,
        {
            "algo": "PPO",
            "atari": True,
            "vector_env": "native",
            "lr": 2.5e-4,
            "clip": 0.1,
            "entropy_coeff": 0.01,
            "hidden_sizes": [],
            "share_torso": True,
            "rollout_length": 128,
            "epochs_per_rollout": 4,
            "batch_size": 256,
            "steps_per_iteration": 1_024,
            "step_per_epoch": 1_024,
            "matmul_precision": "medium",
        },
        (
            "PPO",
            {
                "n_steps": 128,
                "batch_size": 256,
                "n_epochs": 4,
                "learning_rate": 2.5e-4,
                "clip_range": 0.1,
                "ent_coef": 0.01,
            },
        ),
        256,
        {"sb3": 2.2},
        [],
        threads=2,
        bf16_goal=3.0,
    ),
}
