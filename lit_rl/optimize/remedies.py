"""What a stage that goes on with a policy does to keep it (docs/two_stages.md)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from lit_rl.algorithms.base import Algorithm
from lit_rl.data.plans import Plan, PopulationPlan
from lit_rl.errors import UsageError
from lit_rl.functional.schedules import Schedule, check_schedule_range
from lit_rl.optimize.refine import Refining
from lit_rl.optimize.step import GradientStep
from lit_rl.weights import Weights

CRITIC_WARMUP = 200  # updates that a critic learns alone for where it has to start anew


@dataclass(frozen=True)
class Remedies:
    """By default none, but for a critic that begins anew (``anew`` names the parts of the policy that do)."""

    critic_warmup: int | None = None  # updates that move the critic alone; None: CRITIC_WARMUP where it begins anew
    critic_warmup_lr: float | None = None  # in that time; None for the algorithm's own
    anchor: Schedule = 0.0  # weight of the divergence from the first policy, over env steps of the stage
    offline_fraction: float = 0.0  # share of each minibatch that is drawn from recorded episodes

    def check(self, algorithm: Algorithm) -> None:
        """Refuse what this algorithm cannot be given.

        Raises:
            UsageError: a critic or an observation to learn from is missing, or a weight is negative.
        """
        check_schedule_range("anchor", self.anchor, 0.0)
        name, policy = type(algorithm).__name__, algorithm.policy
        if self.critic_warmup and policy.critic is None:
            warmup = f"--critic_warmup {self.critic_warmup}"
            raise UsageError(f"{warmup}: {name} has no critic beside its policy: leave it out")
        if self.anchor == 0:
            return
        if isinstance(algorithm.plan, PopulationPlan):
            raise UsageError(
                f"--anchor {self.anchor}: {name} learns from no observations to hold its policy at: leave it out"
            )
        if policy.remembers:
            raise UsageError(
                f"--anchor {self.anchor}: a policy that remembers is no function of one observation: leave it out"
            )

    def warmup(self, anew: Sequence[str]) -> int:
        """Updates at the start that move the critic alone."""
        return (CRITIC_WARMUP if "critic" in anew else 0) if self.critic_warmup is None else self.critic_warmup

    def plan(self, plan: Plan, anew: Sequence[str]) -> Plan:
        """The experience that the stage learns from, by the plan of its algorithm."""
        warmup = self.warmup(anew)
        return plan.refining(warmup, self.offline_fraction) if warmup or self.offline_fraction else plan

    def refining(
        self, step: GradientStep, algorithm: Algorithm, anew: Sequence[str], first: Weights | None = None
    ) -> Refining | None:
        """What makes the stage's gradient steps, where ``step`` alone does not.

        The anchor holds to the policy with the weights ``first``; to the algorithm's as it stands where there are none.
        """
        warmup = self.warmup(anew)
        if not warmup and self.anchor == 0:
            return None
        refining = Refining(step, algorithm, self.anchor, warmup, self.critic_warmup_lr)
        if refining.first is not None and first is not None:
            refining.first.load_state_dict(first)
        return refining
