"""Rollouts: collect with the policy of the moment, estimate advantages, learn for a few epochs, throw away."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from torch import Tensor

from lit_rl.data.collector import Collector
from lit_rl.data.experience import Source
from lit_rl.data.hooks import call
from lit_rl.data.plans import RolloutPlan
from lit_rl.data.stacks import stacked
from lit_rl.data.transitions import RolloutBatch, Steps
from lit_rl.data.whole_episodes import WholeEpisodes
from lit_rl.functional.returns import gae
from lit_rl.functional.sequences import Sequences, choose, cut, keep, to_device
from lit_rl.functional.tree import tree_map
from lit_rl.networks.normalize import RunningNorm
from lit_rl.policies.acting import Made
from lit_rl.policies.base import HostEvaluate, Policy

_TRUE = torch.tensor(True)  # made once, as making one costs as much as an env step


class RolloutSource:
    """Collects rollouts and cuts them into minibatches, by a :class:`RolloutPlan`."""

    def __init__(self, plan: RolloutPlan, collector: Collector, seed: int, world_size: int) -> None:
        self.plan, self.collector, self.world_size = plan, collector, world_size
        self.env_steps = 0
        self.generator = torch.Generator().manual_seed(seed)
        self.rows = plan.rollout_length * collector.num_envs  # of one rollout, on this rank
        # minibatches of an epoch: of whole sequences, which are single transitions where the policy remembers nothing
        sequences = -(-plan.rollout_length // plan.sequence) * collector.num_envs
        size = sequences if plan.batch_size is None else max(1, plan.batch_size // plan.sequence)
        self.minibatches = max(1, sequences // size)
        self.reward_scale = RewardScale(plan.gamma, collector.num_envs) if plan.normalize_reward else None
        self.whole = WholeEpisodes() if plan.complete_episodes else None
        self._evaluates = Made(lambda policy: policy.host_evaluate())

    def experience(self, policy: Policy) -> RolloutExperience:
        return RolloutExperience(self, policy)

    @torch.no_grad()
    def collect(self, policy: Policy) -> RolloutBatch:
        """The next rollout, all its transitions in one batch, on the policy's device."""
        steps = self.collector.collect(self.rows, policy, self.env_steps, keep_state=self.plan.sequence)
        self.env_steps += self.rows * self.world_size
        if self.reward_scale is not None:
            steps = steps._replace(reward=self.reward_scale.scaled(steps))
        seen, plan = stacked(steps, self.collector.stacking), self.plan
        if self.whole is not None:
            seen = self.whole.release(seen)
        evaluate = None if torch.is_autocast_enabled("cpu") else self._evaluates.of(policy)
        rollout = evaluate_rollout(seen, policy, plan.gamma, plan.gae_lambda, plan.sequence, evaluate)
        hooks = self.collector.hooks
        return rollout if hooks is None else call(hooks.on_postprocess_traj, seen, rollout) or rollout

    def split(self, rollout: RolloutBatch) -> Iterator[RolloutBatch]:
        """The minibatches of all epochs: as many as the plan says, whatever number of transitions came in."""
        count, units = self.minibatches, units_of(rollout)
        # rows are split into equal parts; there are more sequences the more episodes have ended, and of whole episodes any number
        size = max(1, units // count) if rollout.sequences or self.whole is not None else self.rows // count
        whole = count == 1 and units == size
        if whole and self.plan.epochs == 1:
            yield rollout
            return
        no = torch.zeros_like(rollout.last)
        for epoch in range(self.plan.epochs):
            parts = [rollout] if whole else self._shuffled(rollout, count, size)
            for i, part in enumerate(parts):
                final = epoch == self.plan.epochs - 1 and i == len(parts) - 1
                yield part if final else part._replace(last=no)

    def _shuffled(self, rollout: RolloutBatch, count: int, size: int) -> list[RolloutBatch]:
        order = torch.randperm(units_of(rollout), generator=self.generator)
        # envs that reset in the next step may have made a few transitions less or more than were asked for
        order = order.repeat(-(-count * size // len(order)))[: count * size].to(rollout.advantage.device)
        shuffled = take(rollout, order)
        if rollout.sequences:
            return [take(shuffled, slice(i * size, (i + 1) * size)) for i in range(count)]
        rest = zip(*(torch.split(x, size) for x in shuffled[1:6]), strict=True)
        obs = [tree_map(lambda x, i=i: x[i * size : (i + 1) * size], shuffled.obs) for i in range(count)]
        return [RolloutBatch._make((seen, *part, shuffled.last, ())) for seen, part in zip(obs, rest, strict=True)]

    @property
    def generators(self) -> list[torch.Generator]:
        """Of what is sampled or shuffled."""
        return [self.generator]

    @property
    def kept(self) -> str:
        """What another source could go on with, in words."""
        return "" if self.reward_scale is None else "the scale of the rewards"

    def adopt(self, other: Source) -> bool:
        """Go on along the x-axis from another source, with the scale of its rewards where both have one."""
        self.env_steps = other.env_steps
        if self.reward_scale is None or not isinstance(other, RolloutSource) or other.reward_scale is None:
            return False
        self.reward_scale = other.reward_scale
        return True

    def cut(self) -> None:
        """The episodes under way end: what is collected next begins new ones."""
        self.collector.cut()
        if self.whole is not None:
            self.whole.cut()
        if self.reward_scale is not None:
            self.reward_scale.cut()

    def state_dict(self) -> dict[str, Any]:
        return {
            "env_steps": self.env_steps,
            "generator": self.generator.get_state(),
            "collector": self.collector.state_dict(),
            "reward_scale": None if self.reward_scale is None else self.reward_scale.state_dict(),
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.env_steps = state["env_steps"]
        self.generator.set_state(state["generator"])
        self.collector.load_state_dict(state["collector"])
        if self.reward_scale is not None and state["reward_scale"] is not None:
            self.reward_scale.load_state_dict(state["reward_scale"])
        self.cut()


def evaluate_rollout(
    steps: Steps,
    policy: Policy,
    gamma: float,
    gae_lambda: float,
    sequence: int = 1,
    evaluate: HostEvaluate | None = None,
) -> RolloutBatch:
    """All transitions of a block with log-probabilities, values, advantages and returns; rows that are resets left out.

    A truncated episode bootstraps from its own final observation. ``last`` is true. Tensors may share the block's memory.
    ``sequence`` is the number of vector steps between the states that were kept of a policy that remembers; ``evaluate`` is
    what a policy that does not has made to be evaluated by in numpy.
    """
    # walking a module's parameters costs as much as its values; numpy reads those on the CPU alone
    device = next(policy.parameters()).device if evaluate is None else torch.device("cpu")
    length, envs = steps.reward.shape

    def rows(x: np.ndarray) -> Tensor:
        flat = torch.from_numpy(x.reshape(-1, *x.shape[2:]))
        return flat if device.type == "cpu" else flat.to(device)

    obs = tree_map(lambda x: rows(x[:length]), steps.obs)
    action = rows(steps.action)
    sequences: Sequences | tuple[()] = ()
    if steps.state is not None:
        begins, kept = torch.from_numpy(begins_episode(steps)), tree_map(lambda x: x[:-1], steps.state)
        sequences = to_device(cut(begins, kept, policy.initial_state(1), sequence), device)
    t, n = steps.final_index.T
    cut_off = steps.truncated[t, n] & ~steps.terminated[t, n]  # the others bootstrap from nothing
    if evaluate is None:
        evaluated = policy.evaluate(obs, action, sequences)
        after = tree_map(
            lambda x, final: torch.from_numpy(np.concatenate([x[length], final[cut_off]])).to(device),
            steps.obs,
            steps.final_obs,
        )
        remembered = None
        if steps.state is not None:
            rows_cut = torch.from_numpy(cut_off).to(device)
            remembered = tree_map(lambda x, final: torch.cat([x[-1], final[rows_cut]]), steps.state, steps.final_state)
        log_prob, value = evaluated.log_prob.float(), evaluated.value.float()
        values = torch.cat([value, policy.value(after, remembered).float()]).detach().cpu().numpy()
    else:
        seen = steps.obs.reshape(-1, *steps.obs.shape[2:])
        if cut_off.any():
            seen = np.concatenate([seen, steps.final_obs[cut_off]])
        log_prob_B, values = evaluate(seen, action.numpy())
        log_prob, value = torch.from_numpy(log_prob_B), torch.from_numpy(values[: length * envs])
    value_TN = values[: length * envs].reshape(length, envs)
    next_value_TN = values[envs : (length + 1) * envs].reshape(length, envs)
    if cut_off.any():
        next_value_TN = next_value_TN.copy()
        next_value_TN[t[cut_off], n[cut_off]] = values[(length + 1) * envs :]
    ended = steps.terminated | steps.truncated
    advantage, return_ = gae(steps.reward, value_TN, next_value_TN, steps.terminated, ended, gamma, gae_lambda)
    whole = RolloutBatch(
        obs=obs,
        action=action,
        log_prob=log_prob,
        value=value,
        advantage=rows(advantage),
        return_=rows(return_),
        last=_TRUE.to(device),
        sequences=sequences,
    )
    if np.count_nonzero(steps.valid) == steps.valid.size:
        return whole
    valid = rows(steps.valid)
    return _rows(whole, valid, keep(sequences, valid) if sequences else ())


def begins_episode(steps: Steps) -> np.ndarray:
    """Whether an episode begins with each step (T, N) after the first vector step, whose state is kept as it begins."""
    begins = np.zeros_like(steps.valid)
    begins[1:] = ~steps.valid[:-1]  # the row of a reset
    t, n = steps.final_index.T
    later = t + 1 < len(begins)
    begins[t[later] + 1, n[later]] = True
    return begins


def units_of(rollout: RolloutBatch) -> int:
    """The number of what a minibatch is made of: sequences, or rows where the policy remembers nothing."""
    return rollout.sequences.rows.shape[1] if rollout.sequences else len(rollout.advantage)


def take(batch: RolloutBatch, units: Tensor | slice) -> RolloutBatch:
    """Some of the rows, or of the sequences where the policy remembers."""
    if not batch.sequences:
        return _rows(batch, units, ())
    rows, sequences = choose(batch.sequences, units)
    return _rows(batch, rows, sequences)


def _rows(batch: RolloutBatch, rows: Tensor | slice, sequences: Sequences | tuple[()]) -> RolloutBatch:
    fields = tree_map(lambda x: x[rows], tuple(batch[:-2]))
    return RolloutBatch._make([*fields, batch.last, sequences])


class RewardScale:
    """Rewards divided by the standard deviation of the discounted return, as it builds up in each env, and cut at 10."""

    def __init__(self, gamma: float, num_envs: int) -> None:
        self.gamma = gamma
        self.norm = RunningNorm(())
        self._return = np.zeros(num_envs, np.float32)

    def scaled(self, steps: Steps) -> np.ndarray:
        """The rewards (T, N) of a block, after its returns have been taken into the statistics."""
        returns = np.zeros_like(steps.reward)
        ended = steps.terminated | steps.truncated
        for t, reward in enumerate(steps.reward):
            self._return = returns[t] = self.gamma * self._return + reward
            self._return = np.where(ended[t], np.float32(0), self._return)
        self.norm.update(torch.from_numpy(returns[steps.valid]))
        scale = np.sqrt(float(self.norm.var) + self.norm.epsilon)
        scaled: np.ndarray = (steps.reward / scale).clip(-self.norm.clip, self.norm.clip).astype(np.float32)
        return scaled

    def cut(self) -> None:
        """All episodes end here."""
        self._return = np.zeros_like(self._return)

    def state_dict(self) -> dict[str, Tensor]:
        return self.norm.state_dict()

    def load_state_dict(self, state: dict[str, Tensor]) -> None:
        self.norm.load_state_dict(state)


class RolloutExperience:
    """One iteration: rollouts, each collected by the policy that has learned from the one before."""

    def __init__(self, source: RolloutSource, policy: Policy) -> None:
        self._source, self._policy = source, policy
        self._enough = False

    @property
    def env_steps(self) -> int:
        return self._source.env_steps

    def minibatches(self) -> Iterator[RolloutBatch]:
        source = self._source
        for _ in range(source.plan.steps_per_iteration // (source.rows * source.world_size)):
            self._enough = False
            rollout = source.collect(self._policy)
            for batch in source.split(rollout):
                yield batch
                if self._enough:
                    break
            self._policy.observe(rollout.obs)  # only now: what acted is what learns

    def feedback(self, td_error: Tensor | None, enough: bool = False) -> None:
        """Advantages are not corrected by TD errors; a rollout that has taught ``enough`` is dropped."""
        self._enough = enough
