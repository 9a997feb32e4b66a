"""RLlib's configuration (Ray 0.7) in our settings: one table, which ``docs/from_rllib.md`` is held against by a test.

A name that we have too is ours, unless the value can only be meant as theirs (``monitor: true``, a dict of ``callbacks``).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field, fields
from typing import Any

from lit_rl.errors import UsageError

Values = dict[str, Any]
Translate = Callable[[Any, Mapping[str, Any], Collection[str]], Values]

WORKERS = "it needs workers, and everything runs in this process yet: leave it out"
NO_ALGORITHM = {
    "A3C": "it needs workers, which are not there yet: A2C is its synchronous form",
    "IMPALA": "it needs workers, which are not there yet: use PPO or A2C",
    "APEX": "it needs workers, which are not there yet: use DQN with prioritized_replay and n_step 3",
    "APEX_DDPG": "it needs workers, which are not there yet: use DDPG with prioritized_replay",
    "ARS": "there is none: use ES",
}


@dataclass(frozen=True)
class Key:
    """One of RLlib's keys: what it becomes here, or why it is refused."""

    name: str  # nested ones with a dot: model.fcnet_hiddens
    ours: str  # our settings, for people; empty where there is none
    note: str = ""  # what differs, or why not
    translate: Translate | None = None
    theirs: Callable[[Any], bool] | None = None  # tells their value of a name that is ours too from ours


def same(name: str, note: str = "") -> Key:
    """A key of the same name and meaning."""
    return Key(name, name.rpartition(".")[2], note, lambda value, *_: {name.rpartition(".")[2]: value})


def renamed(name: str, ours: str, note: str = "") -> Key:
    """A key that only has another name here."""
    return Key(name, ours, note, lambda value, *_: {ours: value})


def refused(name: str, why: str, *harmless: Any) -> Key:
    """A key that has no meaning here; the values that ask for nothing pass."""

    def translate(value: Any, *_: Any) -> Values:
        if any(value == other and type(value) is type(other) for other in harmless):
            return {}
        raise UsageError(why)

    return Key(name, "", why, translate)


def fixed(name: str, value: Any, why: str) -> Key:
    """A key that has one value here."""
    return Key(name, "", why, refused(name, why, value).translate)


def _times(name: str, value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise UsageError(f"{value!r} is not allowed: give a whole number of at least 1")
    return value


def _envs(given: Mapping[str, Any]) -> int:
    return int(given.get("num_envs_per_worker", given.get("num_envs", 1)))


def _epoch(size: int, given: Mapping[str, Any]) -> Values:
    """An epoch of whole rollouts, about as long as ours, where nobody says how long it is to be."""
    typed = any(given.get(name) not in (None, 0) for name in ("timesteps_per_iteration", "step_per_epoch"))
    return {} if typed else {"step_per_epoch": size * max(1, round(10_000 / size))}


def _fragment(value: Any, given: Mapping[str, Any], known: Collection[str]) -> Values:
    """sample_batch_size: env steps of each env between two updates."""
    size = _times("sample_batch_size", value)
    if "rollout_length" in known:
        if "epochs_per_rollout" in known and "train_batch_size" in given:
            return {}  # the rollout is train_batch_size long, and is collected at once
        return {"rollout_length": size} | _epoch(size * _envs(given), given)
    if "collect_per_step" in known:
        steps = size * _envs(given)
        return {"collect_per_step": steps, "update_per_step": 1 / steps}
    raise UsageError("this algorithm collects in iterations: give steps_per_iteration (train_batch_size)")


def _train_batch(value: Any, given: Mapping[str, Any], known: Collection[str]) -> Values:
    """train_batch_size: a minibatch of replay or data, a whole rollout, or an iteration of ES."""
    size = _times("train_batch_size", value)
    if "rollout_length" in known:
        envs = _envs(given)
        if size % envs:
            raise UsageError(
                f"{size} is not allowed: a rollout is shared out among {envs} envs, so it must be a multiple"
            )
        if "epochs_per_rollout" not in known and "sample_batch_size" in given:
            made = envs * int(given["sample_batch_size"])
            if made != size:
                raise UsageError(f"one update learns from num_envs x sample_batch_size = {made} env steps: give {made}")
            return {}
        return {"rollout_length": size // envs} | _epoch(size, given)
    return {"batch_size": size} if "batch_size" in known else {"steps_per_iteration": size}


def _target_every(value: Any, given: Mapping[str, Any], known: Collection[str]) -> Values:
    """Their count is in env steps, ours in updates."""
    if "target_update_every" not in known:
        if value in (0, 1):
            return {}
        raise UsageError("the targets move a little at every update: give tau, and 0 here")
    per_step = float(given.get("update_per_step", 1 / (int(given.get("sample_batch_size", 4)) * _envs(given))))
    return {"target_update_every": max(1, round(_times("target_network_update_freq", value) * per_step))}


EPSILON = ("exploration_fraction", "exploration_initial_eps", "exploration_final_eps", "schedule_max_timesteps")


def _epsilon(_: Any, given: Mapping[str, Any], known: Collection[str]) -> Values:
    steps = float(given.get("schedule_max_timesteps", 100_000)) * float(given.get("exploration_fraction", 0.1))
    first, last = float(given.get("exploration_initial_eps", 1.0)), float(given.get("exploration_final_eps", 0.02))
    return {"epsilon": [[0, first], [max(1, round(steps)), last]] if steps else last}


def _beta(_: Any, given: Mapping[str, Any], known: Collection[str]) -> Values:
    first = float(given.get("prioritized_replay_beta", 0.4))
    last = float(given.get("final_prioritized_replay_beta", first))
    steps = given.get("prioritized_replay_beta_annealing_timesteps")
    if steps is None:
        steps = float(given.get("schedule_max_timesteps", 100_000)) * float(given.get("beta_annealing_fraction", 0.2))
    return {"prioritized_beta": first if first == last else [[0, first], [max(1, round(float(steps))), last]]}


def _ou(_: Any, given: Mapping[str, Any], known: Collection[str]) -> Values:
    scale = float(given.get("exploration_ou_noise_scale", 0.1)) * float(given.get("exploration_ou_sigma", 0.2))
    return {"exploration_noise": scale}


def _widths(value: Any, given: Mapping[str, Any], known: Collection[str]) -> Values:
    both = [given[name] for name in ("actor_hiddens", "critic_hiddens") if name in given]
    if any(other != value for other in both):
        raise UsageError("actor and critic have the same hidden_sizes here: give both the same")
    return {"hidden_sizes": value}


def _activations(value: Any, given: Mapping[str, Any], known: Collection[str]) -> Values:
    both = [given[n] for n in ("actor_hidden_activation", "critic_hidden_activation") if n in given]
    if any(other != value for other in both):
        raise UsageError("actor and critic have the same activation here: give both the same")
    return {"activation": value}


def _gae(value: Any, given: Mapping[str, Any], known: Collection[str]) -> Values:
    return {} if value is True else {"gae_lambda": 1.0}


def _filter(value: Any, given: Mapping[str, Any], known: Collection[str]) -> Values:
    if value not in ("NoFilter", "MeanStdFilter"):
        raise UsageError(f"{value!r} is not allowed: give NoFilter or MeanStdFilter")
    if value == "NoFilter" and "normalize_obs" not in known:
        return {}
    return {"normalize_obs": value == "MeanStdFilter"}


def _gpus(value: Any, given: Mapping[str, Any], known: Collection[str]) -> Values:
    if isinstance(value, bool) or value not in (0, 1):
        raise UsageError(
            f"{value!r} is not allowed: give 0 or 1. Several runs share a GPU by being started beside each other with "
            "num_gpus 1 each; several GPUs learn one policy with --devices"
        )
    return {"accelerator": "gpu", "devices": 1} if value == 1 else {"accelerator": "cpu"}


def _steps(value: Any, given: Mapping[str, Any], known: Collection[str]) -> Values:
    return {} if value in (0, None) else {"step_per_epoch": _times("timesteps_per_iteration", value)}


def _every(value: Any, given: Mapping[str, Any], known: Collection[str]) -> Values:
    if value in (None, 0):
        raise UsageError("the best policy is picked by evaluations: give how many epochs are between two of them")
    return {"check_val_every_n_epoch": value}


def _seconds(value: Any, given: Mapping[str, Any], known: Collection[str]) -> Values:
    return {} if not value else {"val_check_interval": clock(value), "check_val_every_n_epoch": None}


def clock(seconds: Any) -> str:
    """Seconds as Lightning takes times, rounded up: DD:HH:MM:SS."""
    if isinstance(seconds, bool) or not isinstance(seconds, int | float) or not 0 < seconds < math.inf:
        raise UsageError(f"{seconds!r} is not allowed: give seconds above 0")
    minutes, rest = divmod(math.ceil(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    days, hours = divmod(hours, 24)
    return f"{days:02}:{hours:02}:{minutes:02}:{rest:02}"


def _level(value: Any, given: Mapping[str, Any], known: Collection[str]) -> Values:
    levels = {"DEBUG": "debug", "INFO": "info", "WARN": "warning", "WARNING": "warning", "ERROR": "error"}
    if value not in levels:
        raise UsageError(f"{value!r} is not allowed: give DEBUG, INFO, WARN or ERROR")
    return {"log_level": levels[value]}


def _evaluation(value: Any, given: Mapping[str, Any], known: Collection[str]) -> Values:
    found: Values = {}
    greedy = {"explore": False, "exploration_fraction": 0, "exploration_final_eps": 0}
    for name, inner in value.items():
        if name == "env_config":
            found["eval_env_config"] = inner
        elif name not in greedy or inner != greedy[name]:
            raise UsageError(
                f"evaluations act greedily, and only their env_config may differ: {name} has no meaning here"
            )
    return found


CALLBACKS = (
    "on_episode_start",
    "on_episode_step",
    "on_episode_end",
    "on_sample_end",
    "on_train_result",
    "on_postprocess_traj",
)


def _callbacks(value: Any, given: Mapping[str, Any], known: Collection[str]) -> Values:
    unknown = [name for name in value if name not in CALLBACKS]
    if unknown:
        raise UsageError(f"{unknown[0]} is none of {', '.join(CALLBACKS)}")
    functions = {name: function for name, function in value.items() if function is not None}
    return {"hooks": {"lit_rl.compat.rllib_callbacks:Callbacks": functions}} if functions else {}


def _is_callbacks(value: Any) -> bool:
    return isinstance(value, dict) and "class_path" not in value


def _schedule(ours: str) -> Translate:
    return lambda value, *_: {} if value is None else {ours: value}


def _batch_mode(value: Any, given: Mapping[str, Any], known: Collection[str]) -> Values:
    if value not in ("truncate_episodes", "complete_episodes"):
        raise UsageError(f"{value!r} is not allowed: give truncate_episodes or complete_episodes")
    if "complete_episodes" not in known:
        return {}  # replay and data keep every transition apart
    return {"complete_episodes": value == "complete_episodes"}


def _recurrent(name: str, harmless: Any) -> Translate:
    """A setting of recurrent policies, which not every algorithm has."""

    def translate(value: Any, given: Mapping[str, Any], known: Collection[str]) -> Values:
        if name in known:
            return {name: value}
        if value == harmless:
            return {}
        raise UsageError("this algorithm has no recurrent policy: use PPO or A2C, or give frame_stack")

    return translate


def _optimization(value: Any, given: Mapping[str, Any], known: Collection[str]) -> Values:
    rates = set(value.values())
    if len(rates) != 1:
        raise UsageError("actor, critics and temperature have one lr here: give all three the same")
    return {"lr": rates.pop()}


COMMON = (
    # Debugging
    Key(
        "monitor",
        "videos",
        "true films an episode of every evaluation into the run's folder; statistics are always kept",
        lambda value, *_: {"videos": 1} if value else {},
        lambda value: isinstance(value, bool),
    ),
    Key(
        "log_level",
        "log_level",
        "in lower case, WARN is warning",
        _level,
        lambda value: isinstance(value, str) and value.isupper(),
    ),
    Key(
        "callbacks",
        "hooks",
        "functions, or their import paths, of the six events; your own class: hooks",
        _callbacks,
        _is_callbacks,
    ),
    fixed("ignore_worker_failures", False, WORKERS),
    refused(
        "log_sys_usage", "nothing here watches the machine: use Lightning's DeviceStatsMonitor in callbacks", False
    ),
    Key("use_eager", "compile", "true is false", lambda value, *_: {"compile": False} if value else {}),
    Key("eager", "compile", "true is false", lambda value, *_: {"compile": False} if value else {}),
    refused("eager_tracing", "there is no TensorFlow here", False),
    # Policy
    Key(
        "optimizer",
        "",
        "an empty dict passes; A2C's optimizer is rmsprop or adam",
        refused(
            "optimizer", "there are no policy optimizers to configure: give lr, adam_eps or, for A2C, optimizer", {}
        ).translate,
        lambda value: isinstance(value, dict),
    ),
    # Environment
    same("gamma"),
    renamed("horizon", "max_episode_steps"),
    renamed("soft_horizon", "soft_reset"),
    renamed("no_done_at_end", "no_termination"),
    same("env_config"),
    same("env"),
    Key(
        "clip_rewards",
        "clip_rewards",
        "signs, in training only; evaluations show raw returns",
        lambda value, *_: {"clip_rewards": bool(value)},
    ),
    fixed("clip_actions", True, "actions are always clipped to the bounds of their Box"),
    same("lr"),
    # Evaluation
    Key("evaluation_interval", "check_val_every_n_epoch", "", _every),
    renamed("evaluation_num_episodes", "episode_per_test"),
    Key(
        "evaluation_config",
        "eval_env_config",
        "env_config for other envs in evaluations; they act greedily",
        _evaluation,
    ),
    # Resources
    fixed("num_workers", 0, WORKERS),
    Key("num_gpus", "accelerator", "0 is cpu, 1 is gpu", _gpus),
    refused("num_cpus_per_worker", WORKERS, 1),
    refused("num_gpus_per_worker", WORKERS, 0),
    refused("custom_resources_per_worker", WORKERS, {}),
    refused("num_cpus_for_driver", WORKERS, 1),
    refused("memory", WORKERS, 0),
    refused("memory_per_worker", WORKERS, 0),
    refused("object_store_memory", WORKERS, 0),
    # Execution
    renamed("num_envs_per_worker", "num_envs"),
    Key(
        "sample_batch_size",
        "rollout_length, or collect_per_step and update_per_step",
        "of each env; with replay one update follows as many env steps",
        _fragment,
    ),
    Key(
        "rollout_fragment_length",
        "rollout_length, or collect_per_step and update_per_step",
        "the later name of sample_batch_size",
        _fragment,
    ),
    Key(
        "train_batch_size",
        "batch_size, rollout_length or steps_per_iteration",
        "a minibatch of replay or data; a rollout of all envs (PG, A2C, PPO); the env steps of an update (ES)",
        _train_batch,
    ),
    Key("batch_mode", "complete_episodes", "", _batch_mode),
    refused("sample_async", WORKERS, False),
    Key("observation_filter", "normalize_obs", "MeanStdFilter is true", _filter),
    refused("synchronize_filters", WORKERS, True),
    refused("compress_observations", "a replay buffer keeps observations as they are, each once", False),
    refused("collect_metrics_timeout", WORKERS, 180),
    renamed("metrics_smoothing_episodes", "return_window"),
    Key("min_iter_time_s", "val_check_interval", "seconds between two evaluations", _seconds),
    Key("timesteps_per_iteration", "step_per_epoch", "a train() is an epoch", _steps),
    same("seed"),
    refused("tf_session_args", "there is no TensorFlow here", {}),
    refused("local_tf_session_args", "there is no TensorFlow here", {}),
    refused("local_evaluator_tf_session_args", "there is no TensorFlow here", {}),
    # Offline
    Key(
        "input",
        "input",
        "sampler is an env that is played",
        lambda value, *_: {} if value == "sampler" else {"input": value},
        lambda value: value == "sampler",
    ),
    Key(
        "input_evaluation",
        "monitor",
        "is: Eval/is_return, wis: Eval/wis_return; both are always logged where they are known",
        lambda value, *_: _input_evaluation(value),
    ),
    refused("shuffle_buffer_size", "minibatches are drawn from all episodes in memory: give window_mb", 0),
    Key("output", "output", "", lambda value, *_: {} if value is None else {"output": value}),
    refused("output_compress_columns", "the ending says it: .jsonl.gz", [], ["obs", "new_obs"]),
    refused("output_max_file_size", "one file is written", 67108864),
    refused("postprocess_inputs", "advantages are always computed from the episodes", True, False),
    # Multi-agent
    refused("multiagent", "one policy acts in one environment", {}, {"policies": {}}),
)

MODEL = (
    renamed("model.fcnet_hiddens", "hidden_sizes"),
    renamed("model.fcnet_activation", "activation"),
    refused("model.conv_filters", "images have the network of the Atari papers; for another give custom_model", None),
    fixed(
        "model.conv_activation", "relu", "images have the network of the Atari papers; for another give custom_model"
    ),
    fixed("model.free_log_std", True, "the spread of a Gaussian policy does not depend on the observation"),
    renamed("model.vf_share_layers", "share_torso"),
    Key("model.use_lstm", "use_lstm", "PG, A2C, PPO", _recurrent("use_lstm", False)),
    Key("model.max_seq_len", "max_seq_len", "PG, A2C, PPO", _recurrent("max_seq_len", 20)),
    Key("model.lstm_cell_size", "lstm_cell_size", "PG, A2C, PPO", _recurrent("lstm_cell_size", 256)),
    refused("model.lstm_use_prev_action_reward", "wrap the environment to show both", False),
    Key("model.framestack", "frame_stack", "true is 4 frames", lambda value, *_: {"frame_stack": 4 if value else 1}),
    refused("model.dim", "the preprocessing of Atari games has 84 x 84 pixels: give atari", 84),
    refused("model.grayscale", "the preprocessing of Atari games is grey: give atari", False),
    refused("model.zero_mean", "pixels are scaled to 0..1", False),
    refused("model.squash_to_range", "actions of a Box are always scaled to its bounds", False),
    Key(
        "model.custom_model", "custom_model", "module:Class", lambda value, *_: {"custom_model": value} if value else {}
    ),
    renamed("model.custom_options", "custom_model_config"),
    refused("model.custom_preprocessor", "wrap the environment: env may be an import path to a factory", None),
    refused("model.custom_action_dist", "a policy of your own is an algorithm of your own: --algo module:Class", None),
)

ALGORITHMS = (
    # DQN
    renamed("hiddens", "hidden_sizes"),
    same("dueling"),
    renamed("double_q", "double"),
    same("noisy"),
    same("sigma0"),
    same("num_atoms"),
    same("v_min"),
    same("v_max"),
    same("n_step"),
    same("buffer_size"),
    same("learning_starts"),
    *(Key(name, "epsilon", "a schedule over env steps", _epsilon) for name in EPSILON),
    Key("target_network_update_freq", "target_update_every", "theirs counts env steps, ours updates", _target_every),
    renamed("prioritized_replay", "prioritized"),
    renamed("prioritized_replay_alpha", "prioritized_alpha"),
    renamed("prioritized_replay_eps", "prioritized_eps"),
    *(
        Key(name, "prioritized_beta", "a schedule over env steps", _beta)
        for name in (
            "prioritized_replay_beta",
            "final_prioritized_replay_beta",
            "beta_annealing_fraction",
            "prioritized_replay_beta_annealing_timesteps",
        )
    ),
    renamed("grad_norm_clipping", "gradient_clip_val"),
    renamed("grad_clip", "gradient_clip_val"),
    renamed("adam_epsilon", "adam_eps"),
    Key("lr_schedule", "lr", "[[env_step, value], ...]", _schedule("lr")),
    refused("parameter_noise", "explore by noisy weights: noisy", False),
    refused("soft_q", "explore by epsilon or by noisy weights", False),
    refused("softmax_temp", "explore by epsilon or by noisy weights", 1.0),
    refused("per_worker_exploration", WORKERS, False),
    refused("worker_side_prioritization", WORKERS, False),
    # DDPG, TD3
    Key("actor_hiddens", "hidden_sizes", "of all networks", _widths),
    Key("critic_hiddens", "hidden_sizes", "of all networks", _widths),
    Key("actor_hidden_activation", "activation", "of all networks", _activations),
    Key("critic_hidden_activation", "activation", "of all networks", _activations),
    renamed("critic_lr", "lr"),
    same("actor_lr"),
    same("tau"),
    renamed("l2_reg", "l2"),
    Key("twin_q", "algo", "DDPG has one critic, TD3 two", lambda value, _, known: _of_td3("twin_q", value, known)),
    Key(
        "smooth_target_policy",
        "algo",
        "that is TD3",
        lambda value, _, known: _of_td3("smooth_target_policy", value, known),
    ),
    same("policy_delay", "TD3"),
    same("target_noise", "TD3"),
    same("target_noise_clip", "TD3"),
    renamed("exploration_noise_type", "noise"),
    Key("exploration_ou_noise_scale", "exploration_noise", "times exploration_ou_sigma", _ou),
    Key("exploration_ou_sigma", "exploration_noise", "times exploration_ou_noise_scale", _ou),
    renamed("exploration_ou_theta", "ou_theta"),
    renamed("exploration_gaussian_sigma", "exploration_noise"),
    renamed("pure_exploration_steps", "random_steps"),
    refused("exploration_should_anneal", "give exploration_noise as a schedule", False),
    refused("use_huber", "the squared error of the paper", False),
    refused("huber_threshold", "the squared error of the paper", 1.0),
    refused("use_state_preprocessor", "every observation is encoded by its space", False),
    # SAC
    Key("optimization", "lr", "one for all three", _optimization),
    renamed("initial_alpha", "alpha"),
    Key(
        "target_entropy",
        "target_entropy",
        "auto is null",
        lambda value, *_: {"target_entropy": None if value == "auto" else value},
        lambda value: value == "auto",
    ),
    # PG, A2C, PPO
    renamed("lambda", "gae_lambda"),
    Key("use_gae", "gae_lambda", "false is lambda 1", _gae),
    same("kl_coeff"),
    same("kl_target"),
    renamed("sgd_minibatch_size", "batch_size"),
    renamed("num_sgd_iter", "epochs_per_rollout"),
    renamed("vf_loss_coeff", "vf_coeff"),
    same("entropy_coeff"),
    Key("entropy_coeff_schedule", "entropy_coeff", "[[env_step, value], ...]", _schedule("entropy_coeff")),
    renamed("clip_param", "clip"),
    renamed("vf_clip_param", "vf_clip"),
    renamed("vf_share_layers", "share_torso"),
    refused("shuffle_sequences", "rows are always shuffled", True),
    refused("simple_optimizer", "there is one way to make a gradient step", False, True),
    refused("straggler_mitigation", WORKERS, False),
    refused("microbatch_size", "an update is one minibatch", None),
    # ES
    same("noise_stdev"),
    renamed("l2_coeff", "l2"),
    renamed("stepsize", "lr"),
    renamed("episodes_per_batch", "members", "each plays its share of train_batch_size env steps"),
    refused("eval_prob", "evaluations play episodes of their own", 0.003),
    refused("noise_size", "noise is drawn when it is needed", 250000000),
    refused("report_length", "Eval/return is the mean of an evaluation", 10),
    # MARWIL
    same("beta"),
    same("vf_coeff"),
)


def _input_evaluation(value: Any) -> Values:
    names = [value] if isinstance(value, str) else list(value or [])
    for name in names:
        if name not in ("is", "wis"):
            raise UsageError(f"{name!r} is not allowed: give is or wis; simulation is --env ID")
    return {}


def _of_td3(name: str, value: Any, known: Collection[str]) -> Values:
    is_td3 = "policy_delay" in known
    if bool(value) != is_td3:
        raise UsageError(
            f"{'TD3 has it' if is_td3 else 'DDPG has none of it'}: give --run {'DDPG' if is_td3 else 'TD3'}"
        )
    return {}


@dataclass
class RunFlags:
    """Flags of theirs that say how a run is kept and ended."""

    stop: dict[str, Any] = field(default_factory=dict)
    """When to end, '{"Eval/return": 475, "env_steps": 100000, "time_total_s": 600}'; training_iteration: epochs."""
    checkpoint_freq: int = 0
    """Epochs between two checkpoints that are kept, in checkpoints/; 0 keeps the best and the last alone."""
    checkpoint_at_end: bool = False
    """Keep a checkpoint at the end of training; last.ckpt is always kept."""
    keep_checkpoints_num: int | None = None
    """How many checkpoints of checkpoint_freq are kept; null for all."""
    checkpoint_score_attr: str = "training_iteration"
    """What these are kept by: training_iteration (the newest), or a metric; less is better with min- before it."""
    restore: str | None = None
    """Start from the weights of this checkpoint: --ckpt_path."""
    local_dir: str | None = None
    """Folder that holds the runs: --output_dir."""


RUN_FLAGS = tuple(one.name for one in fields(RunFlags))
STOP = {
    "episode_reward_mean": "stop_return",
    "evaluation/episode_reward_mean": "stop_return",
    "Eval/return": "stop_return",
    "timesteps_total": "total_timesteps",
    "env_steps": "total_timesteps",
    "training_iteration": "max_epochs",
    "time_total_s": "max_time",
    "num_steps_trained": "max_steps",
    "updates": "max_steps",
}


def translate_run(values: Mapping[str, Any], two_steps: bool = False) -> Values:
    """:class:`RunFlags` as settings of ours.

    Args:
        values: those that were given.
        two_steps: whether there is a second stage, whose metrics have another name.

    Raises:
        UsageError: a stop criterion that there is none of here, or a number out of range.
    """
    found: Values = {}
    stop = values.get("stop") or {}
    if not isinstance(stop, dict):
        raise UsageError(f"--stop {stop} is not allowed: give {{name: value, ...}}")
    for name, value in stop.items():
        if name not in STOP:
            raise UsageError(f"--stop: there is no {name} to stop at; there are {', '.join(STOP)}")
        try:
            found[STOP[name]] = clock(value) if name == "time_total_s" else value
        except UsageError as error:
            raise UsageError(f"--stop: {name} {error}") from None
    for theirs, ours in (("restore", "ckpt_path"), ("local_dir", "output_dir")):
        if values.get(theirs) is not None:
            found[ours] = values[theirs]
    every, kept = values.get("checkpoint_freq") or 0, values.get("keep_checkpoints_num")
    for name, number in (("checkpoint_freq", every), ("keep_checkpoints_num", 1 if kept is None else kept)):
        low = 0 if name == "checkpoint_freq" else 1
        if isinstance(number, bool) or not isinstance(number, int) or number < low:
            raise UsageError(f"--{name} {number} is not allowed: give a whole number of at least {low}")
    if not every and ("keep_checkpoints_num" in values or "checkpoint_score_attr" in values):
        raise UsageError(
            "--keep_checkpoints_num and --checkpoint_score_attr are about those of --checkpoint_freq: give it"
        )
    if every:
        score = str(values.get("checkpoint_score_attr", RunFlags.checkpoint_score_attr))
        found["callbacks"] = [_keeping(every, kept, score)]
        if two_steps:
            found["step2"] = {"callbacks": [_keeping(every, kept, score, "Step2Eval/")]}
    return found


SCORES = {"training_iteration": "epoch", "episode_reward_mean": "Eval/return", "timesteps_total": "epoch"}


def _keeping(every: int, kept: int | None, score: str, prefix: str = "Eval/") -> Values:
    """Lightning's ModelCheckpoint for these flags, as a class path."""
    metric = score.removeprefix("min-")
    monitor = SCORES.get(metric, metric)
    arguments = {
        "filename": "checkpoint-{epoch}",
        "auto_insert_metric_name": False,
        "every_n_epochs": every,
        "save_top_k": -1 if kept is None else kept,
        "monitor": monitor.replace("Eval/", prefix),
        "mode": "min" if score.startswith("min-") else "max",
        "save_on_train_epoch_end": False,
    }
    return {"class_path": "pytorch_lightning.callbacks.ModelCheckpoint", "init_args": arguments}


RAY = (
    *(refused(name, WORKERS) for name in ("ray_address", "ray_num_cpus", "ray_num_gpus", "ray_object_store_memory")),
    *(refused(name, WORKERS) for name in ("resources_per_trial", "redis_address", "queue_trials")),
    refused("scheduler", "runs go one after another, each to its end: give stop"),
    refused("scheduler_config", "runs go one after another, each to its end: give stop"),
    refused("max_failures", "a run that was stopped goes on with --experiment_name NAME --resume"),
    refused("export_formats", "export the policy when the run is over: lit-rl export"),
    refused("upload_dir", "runs stay in --output_dir"),
)

TABLE: dict[str, Key] = {key.name: key for key in (*COMMON, *MODEL, *ALGORITHMS, *RAY)}
NAMES = tuple(dict.fromkeys(name.partition(".")[0] for name in TABLE))


def check_algorithm(name: Any) -> None:
    """Refuse by name an algorithm of theirs that is none here.

    Raises:
        UsageError: saying what comes nearest.
    """
    if isinstance(name, str) and name.upper() in NO_ALGORITHM:
        raise UsageError(f"--run {name}: {NO_ALGORITHM[name.upper()]}")


def is_theirs(name: str, value: Any, known: Collection[str]) -> bool:
    """Whether a setting is to be read as RLlib's; ``known`` are ours."""
    if name == "model":
        return True
    key = TABLE.get(name)
    if key is None:
        return False
    return key.theirs(value) if key.theirs is not None and name in known else name not in known


def translate(
    values: Mapping[str, Any], known: Collection[str], origin: Mapping[str, str]
) -> tuple[Values, dict[str, str]]:
    """Settings with ours in place of RLlib's, and where each of ours comes from.

    Args:
        values: by name, theirs and ours mixed.
        known: the names of ours that this algorithm has.
        origin: where each stands, for messages.

    Raises:
        UsageError: a key without a meaning here, with the reason; a value that it cannot have; or two that say the same.
    """
    given = _flat(values, known)
    found: Values = {}
    where: dict[str, str] = {}
    by: dict[str, str] = {}  # who said it
    for name, value in given.items():
        top = name.partition(".")[0]
        place = origin.get(top, "")
        key = TABLE.get(name)
        if name == top and not is_theirs(name, value, known):
            made, said = {name: value}, place
        elif key is None:
            from difflib import get_close_matches

            near = get_close_matches(name, TABLE, 3)
            raise UsageError(f"unknown key {name}{place}; nearest: {', '.join(near) or 'see docs/from_rllib.md'}")
        else:
            assert key.translate is not None
            try:
                made = key.translate(value, given, known)
            except UsageError as error:
                raise UsageError(f"{name} {_shown(value)}{place}: {error}") from None
            except (TypeError, ValueError, AttributeError):
                raise UsageError(
                    f"{name} {_shown(value)}{place} is not allowed: {key.note or 'it has another type'}"
                ) from None
            made.pop("", None)
            said = f" ({name}{place})" if name != next(iter(made), name) else place
        for ours, one in made.items():
            if ours in found and found[ours] != one:
                raise UsageError(f"{by[ours]} and {name}{place} say different things of {ours}: give one of them")
            found[ours], where[ours], by[ours] = one, said, name
    return found, where


def _flat(values: Mapping[str, Any], known: Collection[str]) -> Values:
    """The settings with the keys of ``model`` by their dotted names."""
    flat: Values = {}
    for name, value in values.items():
        if name == "model" and "model" not in known:
            if not isinstance(value, dict):
                raise UsageError(f"model {_shown(value)} is not allowed: give {{name: value, ...}}")
            flat |= {f"model.{inner}": one for inner, one in value.items()}
        else:
            flat[name] = value
    return flat


def _shown(value: Any) -> str:
    return (
        {None: "null", True: "true", False: "false"}.get(value, str(value))
        if isinstance(value, bool | None)
        else str(value)
    )


def table() -> str:
    """The table of the docs: their key, ours, and what to know."""
    lines = ["| RLlib | here | |", "|---|---|---|"]
    for key in TABLE.values():
        ours = ", ".join(f"`{name}`" for name in key.ours.split(", ") if name) if " " not in key.ours else key.ours
        lines.append(f"| `{key.name}` | {ours or '-'} | {key.note} |")
    return "\n".join(lines)
