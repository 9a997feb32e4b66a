"""The sizes of an iteration, which must fit into an epoch and hold whole steps of all envs."""

from __future__ import annotations

import math

from lit_rl.cli.stages import StagePlan
from lit_rl.cli.trainer_flags import world_size
from lit_rl.data.plans import fit_iteration, fit_population, fit_rollout, members_at_once
from lit_rl.errors import UsageError


def fit_iterations(plan: StagePlan, num_envs: int, notes: list[str]) -> None:
    """Give the stage an iteration that divides an epoch, and what divides the iteration: steps, rollouts or members.

    Numbers that were typed stay as they are; the others become the largest that fit, which ``notes`` then say.

    Raises:
        UsageError: a typed number does not fit; the message has the nearest that do.
    """
    values = plan.values
    if "steps_per_iteration" not in values:
        return
    epoch, wanted, collect = values["step_per_epoch"], values["steps_per_iteration"], values.get("collect_per_step", 1)
    if min(epoch, wanted, collect) < 1:
        return  # out of range, as the dataclasses will say
    if values["input"] is not None:
        _fit_updates(plan, notes)
        return
    vector = num_envs * world_size(values)
    if "rollout_length" in values:
        _fit_rollouts(plan, vector, notes)
        return
    if "members" in values:
        _fit_members(plan, vector, notes)
        return
    typed, collect_typed = "steps_per_iteration" in plan.typed, "collect_per_step" in plan.typed
    if collect_typed and not typed and epoch % collect:
        raise _no_divisor(plan, "collect_per_step", f"step_per_epoch {epoch}", _divisors(epoch))
    fitted = fit_iteration(wanted, epoch, math.lcm(vector, collect) if collect_typed and not typed else vector)
    if fitted != wanted and typed:
        whole = f", and be a multiple of the {vector} env steps that all envs make at once" if vector > 1 else ""
        raise _no_divisor(plan, "steps_per_iteration", f"step_per_epoch {epoch}{whole}", _divisors(epoch, vector))
    if fitted % collect and collect_typed:
        raise _no_divisor(plan, "collect_per_step", f"steps_per_iteration {fitted}", _divisors(fitted))
    changed = []
    if fitted != wanted:
        changed.append(f"steps_per_iteration is {fitted} instead of {wanted}")
        values["steps_per_iteration"] = fitted
    if fitted % collect:
        values["collect_per_step"] = max(n for n in _divisors(fitted) if n <= collect)
        changed.append(f"collect_per_step is {values['collect_per_step']} instead of {collect}")
    if changed:
        notes.append(f"{' and '.join(changed)}: an epoch is {epoch} env steps")


def _fit_updates(plan: StagePlan, notes: list[str]) -> None:
    """An epoch of whole iterations, both counted in updates."""
    epoch, wanted = plan.values["step_per_epoch"], plan.values["steps_per_iteration"]
    fitted = fit_iteration(wanted, epoch, 1)
    if fitted != wanted and "steps_per_iteration" in plan.typed:
        raise _no_divisor(plan, "steps_per_iteration", f"step_per_epoch {epoch}", _divisors(epoch))
    if fitted != wanted:
        notes.append(f"steps_per_iteration is {fitted} instead of {wanted}: an epoch is {epoch} updates")
    plan.values["steps_per_iteration"] = fitted


def _fit_rollouts(plan: StagePlan, vector: int, notes: list[str]) -> None:
    """An iteration of whole rollouts, and an epoch of whole iterations."""
    values = plan.values
    epoch, wanted, length = values["step_per_epoch"], values["steps_per_iteration"], values["rollout_length"]
    if length < 1:
        return  # out of range, as the dataclasses will say
    fitted, iteration = fit_rollout(length, wanted, epoch, vector)
    if fitted != length and "rollout_length" in plan.typed:
        whole = f"the {epoch // vector} env steps that each env makes in an epoch of {epoch}"
        raise _no_divisor(plan, "rollout_length", whole, _divisors(epoch // vector))
    if iteration != wanted and "steps_per_iteration" in plan.typed:
        rollout = fitted * vector
        whole = f"step_per_epoch {epoch}, and be a multiple of the {rollout} env steps of a rollout"
        raise _no_divisor(plan, "steps_per_iteration", whole, _divisors(epoch, rollout))
    if fitted != length:
        notes.append(f"rollout_length is {fitted} instead of {length}: each env makes {epoch // vector} steps an epoch")
    values["rollout_length"], values["steps_per_iteration"] = fitted, iteration


def _fit_members(plan: StagePlan, vector: int, notes: list[str]) -> None:
    """Members that share out an iteration evenly, in pairs in each env, and an epoch of whole iterations."""
    values = plan.values
    epoch, wanted, members = values["step_per_epoch"], values["steps_per_iteration"], values["members"]
    if members < 2:
        return  # out of range, as the dataclasses will say
    pairs = members_at_once(vector)
    typed, members_typed = "steps_per_iteration" in plan.typed, "members" in plan.typed
    if members_typed:
        fitted, _ = fit_population(members, max(wanted, members), epoch, vector)
        if fitted != members:
            whole = f"step_per_epoch {epoch}, and be a multiple of {pairs}, a pair in each of {vector} envs"
            raise _no_divisor(plan, "members", whole, _divisors(epoch, pairs))
        iteration = fit_iteration(wanted, epoch, members)
    elif typed and (epoch % wanted or wanted % pairs):
        whole = f"step_per_epoch {epoch}, and be a multiple of {pairs}, for pairs of members in each of {vector} envs"
        raise _no_divisor(plan, "steps_per_iteration", whole, _divisors(epoch, pairs))
    else:
        fitted, iteration = fit_population(members, wanted, wanted if typed else epoch, vector)
    if typed and iteration != wanted:
        whole = f"step_per_epoch {epoch}, and be a multiple of the {members} members"
        raise _no_divisor(plan, "steps_per_iteration", whole, _divisors(epoch, members))
    changed = []
    if fitted != members:
        changed.append(f"members is {fitted} instead of {members}")
    if iteration != wanted:
        changed.append(f"steps_per_iteration is {iteration} instead of {wanted}")
    if changed:
        notes.append(f"{' and '.join(changed)}: pairs in each of {vector} envs share out an epoch of {epoch} env steps")
    values["members"], values["steps_per_iteration"] = fitted, iteration


def _divisors(number: int, step: int = 1) -> list[int]:
    return [n for n in range(step, number + 1, step) if number % n == 0]


def _no_divisor(plan: StagePlan, name: str, whole: str, allowed: list[int]) -> UsageError:
    value = plan.values[name]
    near = [n for n in allowed if n < value][-1:] + [n for n in allowed if n > value][:1]
    if not near:
        whole += ", which nothing does: change --step_per_epoch or --num_envs"
    use = f": use {' or '.join(map(str, near))}" if near else ""
    return UsageError(f"{plan.names.get(name, f'--{name}')} {value} must divide {whole}{use}")
