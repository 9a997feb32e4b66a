"""Every setting by flag name, as ``--config`` reads it back to the same run."""

from __future__ import annotations

from lit_rl.cli.parser import TRAINER
from lit_rl.cli.stages import StagePlan, Values, is_lr, is_schedule
from lit_rl.cli.trainer_flags import TRAINER_FLAGS


def printed_stage(plan: StagePlan) -> Values:
    """Every setting of a stage by flag name, but those that cannot be set."""
    parser = plan.parser
    lightning = {n: plan.values.get(n, parser.defaults[n]) for n in parser.groups[TRAINER]}
    hidden = [n for n, flag in TRAINER_FLAGS.items() if flag.how == "refused" or n == "default_root_dir"]
    return {n: v for n, v in plan.values.items() if n not in lightning} | {
        n: v for n, v in lightning.items() if n not in hidden
    }


def printed_second_stage(first: StagePlan, second: StagePlan, typed_step2: Values) -> Values:
    """The settings of stage 2: the ``_2`` flags, and in step2 what would not come out the same from stage 1's."""
    step2 = {name: value for name, value in typed_step2.items() if name in ("algo", "run", "module")}
    printed: Values = {"two_steps": True} | second.refine
    for name in ("lr", "max_epochs", "patience", "average_weights"):
        value = second.values.get(name)
        if isinstance(value, int | float) or (value is None and name == "average_weights"):
            printed[f"{name}_2"] = value
    for name in second.values | first.values:
        hint = second.parser.hints.get(name)
        if f"{name}_2" in printed or hint is None:
            continue
        value = second.values.get(name, second.parser.defaults[name])
        is_list = is_schedule(hint) and isinstance(value, list)  # inherited, it would stand at its final value
        own_flag = f"{name}_2" in second.parser.hints  # its default is not stage 1's value
        if is_list or own_flag or is_lr(name) or value != first.values.get(name, second.parser.defaults[name]):
            step2[name] = value
    return printed | {"step2": step2}
