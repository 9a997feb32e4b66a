"""Rollouts on two ranks, as real processes: each its own envs, one policy."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

TESTS = Path(__file__).parents[1]

SCRIPT = """
import json, sys
import torch
import torch.distributed as dist
from recorded_env import make_collector
from lit_rl.algorithms.base import Progress
from lit_rl.algorithms.ppo import PPO, PPOConfig
from lit_rl.data.rollout import RolloutSource
from lit_rl.optimize import GradientStep

rank, store = int(sys.argv[1]), sys.argv[2]
dist.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=2)
torch.manual_seed(0)
# envs that reset in the next step, and other episodes on each rank: the ranks make different numbers of transitions
collector, scripted = make_collector(3, "native", "RecordedNative-v0", lambda _: [3 * rank + i for i in range(3)])
config = PPOConfig(
    hidden_sizes=[8], rollout_length=8, batch_size=6, epochs_per_rollout=4, target_kl=1e-4, kl_coeff=0.2, lr=1e-2,
    normalize_obs=True, normalize_reward=True, steps_per_iteration=48,
)
ppo = PPO(scripted.spaces, config)
plan = ppo.plan.fit(144, 6)
source = RolloutSource(plan, collector, rank, 2)
optimize = GradientStep(ppo.groups(), *ppo.optimizer())
optimize.set_lr("policy", 1e-2)
updates, rows = 0, []
for _ in range(3):
    experience = source.experience(ppo.policy)
    for batch in experience.minibatches():
        rows.append(float(batch.obs.sum()))
        updated = ppo.update(batch, optimize, Progress(updates, source.env_steps))
        experience.feedback(None, updated.enough)
        updates += 1
print(json.dumps({
    "weights": [x.double().sum().item() for x in ppo.state_dict().values()],
    "scale": source.reward_scale.norm.var.item(),
    "count": ppo.policy.norm.norms[0].count.item(),
    "updates": updates, "env_steps": source.env_steps, "rows": rows,
    "metrics": {name: x.item() for name, x in updated.metrics.items()},
}))
"""


def test_two_ranks_learn_the_same_policy_from_their_own_rollouts(tmp_path):
    path = os.pathsep.join([str(TESTS.parent), str(TESTS), os.environ.get("PYTHONPATH", "")])
    ranks = [
        subprocess.Popen(
            [sys.executable, "-W", "ignore", "-c", SCRIPT, str(rank), str(tmp_path / "store")],
            env=os.environ | {"PYTHONPATH": path, "OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo"},
            stdout=subprocess.PIPE,
            text=True,
        )
        for rank in range(2)
    ]
    one, two = (json.loads(process.communicate(timeout=240)[0].splitlines()[-1]) for process in ranks)
    assert one.pop("rows") != two.pop("rows")
    assert one == two, "weights, statistics, metrics, and when a rollout had taught enough"
    assert one["env_steps"] == 3 * 48
    assert 3 <= one["updates"] < 3 * 4 * 4, "target_kl ended rollouts early, on both"
