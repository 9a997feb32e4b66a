"""What a second stage carries over of a first one's policy, and what it begins anew."""

from __future__ import annotations

import torch
from torch import nn

from lit_rl.algorithms.base import Algorithm
from lit_rl.errors import UsageError
from lit_rl.policies.base import Policy
from lit_rl.weights import Weights, misfit


def begun_anew(first: Algorithm, second: Algorithm) -> list[str]:
    """The parts of the second one's policy, beside what acts, that the first has not learned or has in other shapes.

    Raises:
        UsageError: what acts differs.
    """
    theirs, own = first.policy, second.policy
    grouped = {id(p) for group in first.groups().values() for p in group}
    anew = []
    for part in dict.fromkeys(name.partition(".")[0] for name in own.state_dict() | theirs.state_dict()):
        problem = misfit(_part(theirs, part), _part(own, part), "in the first", "in the second")
        problem = problem or _unlike(theirs, own, part)
        if problem and part not in own.beside:
            raise UsageError(f"the policies of the two stages do not match: {problem}; keep the networks' settings")
        fixed = {n: p for n, p in theirs.named_parameters() if n.partition(".")[0] == part and id(p) not in grouped}
        unlearned = not problem and any(not torch.equal(p, own.get_parameter(n)) for n, p in fixed.items())
        if part in own.beside and _part(own, part) and (problem or unlearned):
            anew.append(part)
    return anew


def hand_over(first: Algorithm, policy: Policy, second: Algorithm, anew: list[str]) -> None:
    """Let ``second`` begin with ``policy``, the best one of ``first``, but for the parts that begin anew."""
    found, wanted = policy.state_dict(), second.policy.state_dict()
    carried = {name: x for name, x in found.items() if name in wanted and name.partition(".")[0] not in anew}
    second.policy.load_state_dict(wanted | carried)
    if type(first) is type(second):
        _go_on_with(first, second)
    second.start_from_policy()


@torch.no_grad()
def _go_on_with(first: Algorithm, second: Algorithm) -> None:
    """Take over what the same algorithm has learned beside its policy: IQL's state values, say."""
    learned = {n: p for n, p in first.named_parameters() if p.requires_grad and not n.startswith("policy.")}
    for name, own in second.named_parameters():
        if name in learned and own.shape == learned[name].shape:
            own.copy_(learned[name])


def _part(policy: Policy, name: str) -> Weights:
    """The weights of one part of a policy."""
    return {n: x for n, x in policy.state_dict().items() if n.partition(".")[0] == name}


def _unlike(first: Policy, second: Policy, part: str) -> str | None:
    """The first line by which two modules of the same shapes differ: another activation, say."""
    modules = [getattr(policy, part, None) for policy in (first, second)]
    ones, others = (repr(module).splitlines() for module in modules)
    for one, other in zip(ones, others, strict=False):
        if one != other and isinstance(modules[0], nn.Module):
            return f"{part} has {one.strip()} in the first and {other.strip()} in the second"
    return None
