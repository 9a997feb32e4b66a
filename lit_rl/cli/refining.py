"""How stage 2 keeps what stage 1 learned: settings that follow from both stages where nobody gives them."""

from __future__ import annotations

from lit_rl.cli.stages import DEFAULT_MAX_EPOCHS, StagePlan, Values, is_schedule
from lit_rl.errors import UsageError

# The weight of the anchor where stage 1 learned from data, by shares of stage 2's env steps.
ANCHOR = ((0.0, 0.2), (0.1, 0.1), (0.2, 0.05), (0.3, 0.025), (0.4, 0.0125), (0.5, 0.0))

OFFLINE_FRACTION = 0.5


def set_refining(first: StagePlan, second: StagePlan, *given: Values) -> None:
    """Put together what the flags of the group "refining" say of ``second``.

    Args:
        first: the first stage.
        second: the second one, whose other settings are all there.
        given: what was said of it, weakest first.

    Raises:
        UsageError: a replay buffer to fill where there is none, or two wishes for it.
    """
    parser = second.parser
    refine = {name: parser.defaults[name] for name in parser.groups["refining"]}
    for values in given:
        refine |= {name: values[name] for name in refine if name in values}
    if refine["warmup_steps"] is not None:
        _fill_buffer(second, refine["warmup_steps"])
    if refine["critic_warmup_lr"] is None:
        refine |= second.refine
    goes_online = learns_from_data(first) and not learns_from_data(second)
    if refine["anchor"] is None:
        refine["anchor"] = _anchor(second) if goes_online and "members" not in second.values else 0.0
    if refine["offline_fraction"] is None:
        refine["offline_fraction"] = OFFLINE_FRACTION if goes_online and "buffer_size" in second.values else 0.0
    if refine["offline_fraction"]:
        if not goes_online:
            raise UsageError(
                f"--offline_fraction {refine['offline_fraction']} mixes the data of stage 1 into the experience of stage 2: "
                "it needs an --input for stage 1 and a stage 2 that acts"
            )
        second.mixed_in = first.values["input"]
    second.refine = refine
    gammas = [plan.values.get("gamma") for plan in (first, second)]
    if goes_online and "policy_of" not in first.values and gammas[0] != gammas[1]:
        raise UsageError(
            f"values that stage 1 learns from data with gamma {gammas[0]} are no use in stage 2 with gamma {gammas[1]}: "
            "give one --gamma for both"
        )


def learns_from_data(plan: StagePlan) -> bool:
    """Whether a stage learns from recorded episodes instead of acting."""
    return plan.values.get("input") is not None


def _fill_buffer(second: StagePlan, steps: int) -> None:
    """``--warmup_steps`` are the env steps before stage 2 learns from its buffer."""
    given = f"--warmup_steps {steps}"
    if "learning_starts" not in second.values:
        raise UsageError(f"{given} fills a replay buffer, and {second.parser.algo} has none: leave it out")
    if (own := second.names.get("learning_starts")) and second.values["learning_starts"] != steps:
        started = second.values["learning_starts"]
        raise UsageError(f"{given} and {own} {started} contradict each other: give one of them")
    second.values["learning_starts"], second.names["learning_starts"] = steps, "--warmup_steps"


def _anchor(second: StagePlan) -> list[list[float]]:
    """The default weights over the env steps that stage 2 may take."""
    epochs = second.values["max_epochs"]
    budget = (epochs if epochs > 0 else DEFAULT_MAX_EPOCHS) * second.values["step_per_epoch"]
    if second.values.get("total_timesteps") is not None:
        budget = min(budget, second.values["total_timesteps"])
    steps = {int(share * budget): weight for share, weight in ANCHOR}
    return [[step, weight] for step, weight in steps.items()]


def borrow_policy(first: StagePlan, second: StagePlan) -> bool:
    """Let a first stage that can learn any policy learn that of stage 2's algorithm, discount included; whether it does."""
    if "policy_of" not in first.values or "policy_of" in first.typed or first.parser is second.parser:
        return False
    parser = second.parser
    if parser.algorithm.data_only:
        return False
    settings = {n: second.values[n] for n in parser.groups["algorithm"] if not is_schedule(parser.hints[n])}
    changed = {name: value for name, value in settings.items() if value != parser.defaults[name]}
    first.values["policy_of"] = {"algo": parser.algo} | changed
    if "gamma" not in first.typed:
        first.values["gamma"] = second.values["gamma"]
    return True
