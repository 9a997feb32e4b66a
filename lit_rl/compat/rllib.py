"""RLlib's configuration (Ray 0.7) in our settings: one table, which ``docs/from_rllib.md`` is held against by a test.

A name that we have too is ours, unless the value can only be meant as theirs (``monitor: true``, a dict of ``callbacks``).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from difflib import get_close_matches
from typing import Any

from lit_rl.compat import rllib_values as becomes
from lit_rl.compat.rllib_keys import Key, Values, fixed, refused, renamed, same
from lit_rl.errors import UsageError

WORKERS = "it needs workers, and everything runs in this process yet: leave it out"
NO_ALGORITHM = {
    "A3C": "it needs workers, which are not there yet: A2C is its synchronous form",
    "IMPALA": "it needs workers, which are not there yet: use PPO or A2C",
    "APEX": "it needs workers, which are not there yet: use DQN with prioritized_replay and n_step 3",
    "APEX_DDPG": "it needs workers, which are not there yet: use DDPG with prioritized_replay",
    "ARS": "there is none: use ES",
}

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
        becomes.level,
        lambda value: isinstance(value, str) and value.isupper(),
    ),
    Key(
        "callbacks",
        "hooks",
        "functions, or their import paths, of the six events; your own class: hooks",
        becomes.callbacks,
        becomes.is_callbacks,
    ),
    fixed("ignore_worker_failures", False, WORKERS),
    refused(
        "log_sys_usage", "nothing here watches the machine: use Lightning's DeviceStatsMonitor in callbacks", False
    ),
    Key("use_eager", "compile", "true is false", lambda value, *_: {"compile": False} if becomes.truth(value) else {}),
    Key("eager", "compile", "true is false", lambda value, *_: {"compile": False} if becomes.truth(value) else {}),
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
        lambda value, *_: {"clip_rewards": becomes.truth(value)},
    ),
    fixed("clip_actions", True, "actions are always clipped to the bounds of their Box"),
    same("lr"),
    # Evaluation
    Key("evaluation_interval", "check_val_every_n_epoch", "", becomes.every),
    renamed("evaluation_num_episodes", "episode_per_test"),
    Key(
        "evaluation_config",
        "eval_env_config",
        "env_config for other envs in evaluations; they act greedily",
        becomes.evaluation,
    ),
    # Resources
    fixed("num_workers", 0, WORKERS),
    Key("num_gpus", "accelerator", "0 is cpu, 1 is gpu", becomes.gpus),
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
        becomes.fragment,
    ),
    Key(
        "rollout_fragment_length",
        "rollout_length, or collect_per_step and update_per_step",
        "the later name of sample_batch_size",
    ),
    Key(
        "train_batch_size",
        "batch_size, rollout_length or steps_per_iteration",
        "a minibatch of replay or data; a rollout of all envs (PG, A2C, PPO); the env steps of an update (ES)",
        becomes.train_batch,
    ),
    Key("batch_mode", "complete_episodes", "", becomes.batch_mode),
    refused("sample_async", WORKERS, False),
    Key("observation_filter", "normalize_obs", "MeanStdFilter is true", becomes.filter),
    refused("synchronize_filters", WORKERS, True),
    refused("compress_observations", "a replay buffer keeps observations as they are, each once", False),
    refused("collect_metrics_timeout", WORKERS, 180),
    renamed("metrics_smoothing_episodes", "return_window"),
    Key("min_iter_time_s", "val_check_interval", "seconds between two evaluations", becomes.seconds),
    Key("timesteps_per_iteration", "step_per_epoch", "a train() is an epoch", becomes.steps),
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
        "input_evaluation",
        "refused where the data do not allow it; logged as Eval/is_return and Eval/wis_return; simulation is an env",
        becomes.input_evaluation,
        becomes.is_input_evaluation,
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
    Key("model.use_lstm", "use_lstm", "PG, A2C, PPO", becomes.recurrent("use_lstm", False)),
    Key("model.max_seq_len", "max_seq_len", "PG, A2C, PPO", becomes.recurrent("max_seq_len", 20)),
    Key("model.lstm_cell_size", "lstm_cell_size", "PG, A2C, PPO", becomes.recurrent("lstm_cell_size", 256)),
    refused("model.lstm_use_prev_action_reward", "wrap the environment to show both", False),
    Key(
        "model.framestack",
        "frame_stack",
        "true is 4 frames",
        lambda value, *_: {"frame_stack": 4 if becomes.truth(value) else 1},
    ),
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
    *(Key(name, "epsilon", "a schedule over env steps", becomes.epsilon) for name in becomes.EPSILON),
    Key(
        "target_network_update_freq",
        "target_update_every",
        "theirs counts env steps, ours updates (one every 4 env steps, where nothing else is said); a whole copy: tau 1",
        becomes.target_every,
    ),
    renamed("prioritized_replay", "prioritized"),
    renamed("prioritized_replay_alpha", "prioritized_alpha"),
    renamed("prioritized_replay_eps", "prioritized_eps"),
    *(
        Key(name, "prioritized_beta", "a schedule over env steps", becomes.beta)
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
    Key("lr_schedule", "lr", "[[env_step, value], ...]", becomes.schedule("lr")),
    refused("parameter_noise", "explore by noisy weights: noisy", False),
    refused("soft_q", "explore by epsilon or by noisy weights", False),
    refused("softmax_temp", "explore by epsilon or by noisy weights", 1.0),
    refused("per_worker_exploration", WORKERS, False),
    refused("worker_side_prioritization", WORKERS, False),
    # DDPG, TD3
    Key("actor_hiddens", "hidden_sizes", "of all networks", becomes.widths),
    Key("critic_hiddens", "hidden_sizes", "of all networks", becomes.widths),
    Key("actor_hidden_activation", "activation", "of all networks", becomes.activations),
    Key("critic_hidden_activation", "activation", "of all networks", becomes.activations),
    renamed("critic_lr", "lr"),
    same("actor_lr"),
    same("tau"),
    renamed("l2_reg", "l2"),
    Key(
        "twin_q", "algo", "DDPG has one critic, TD3 two", lambda value, _, known: becomes.of_td3("twin_q", value, known)
    ),
    Key(
        "smooth_target_policy",
        "algo",
        "that is TD3",
        lambda value, _, known: becomes.of_td3("smooth_target_policy", value, known),
    ),
    same("policy_delay", "TD3"),
    same("target_noise", "TD3"),
    same("target_noise_clip", "TD3"),
    renamed("exploration_noise_type", "noise"),
    Key("exploration_ou_noise_scale", "exploration_noise", "times exploration_ou_sigma", becomes.ou),
    Key("exploration_ou_sigma", "exploration_noise", "times exploration_ou_noise_scale", becomes.ou),
    renamed("exploration_ou_theta", "ou_theta"),
    renamed("exploration_gaussian_sigma", "exploration_noise"),
    renamed("pure_exploration_steps", "random_steps"),
    refused("exploration_should_anneal", "give exploration_noise as a schedule", False),
    refused("use_huber", "the squared error of the paper", False),
    refused("huber_threshold", "the squared error of the paper", 1.0),
    refused("use_state_preprocessor", "every observation is encoded by its space", False),
    # SAC
    Key("optimization", "lr", "one for all three", becomes.optimization),
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
    Key("use_gae", "gae_lambda", "false is lambda 1", becomes.gae),
    same("kl_coeff"),
    same("kl_target"),
    renamed("sgd_minibatch_size", "batch_size"),
    renamed("num_sgd_iter", "epochs_per_rollout"),
    renamed("vf_loss_coeff", "vf_coeff"),
    same("entropy_coeff"),
    Key("entropy_coeff_schedule", "entropy_coeff", "[[env_step, value], ...]", becomes.schedule("entropy_coeff")),
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
LATER_NAMES = {"rollout_fragment_length": "sample_batch_size"}


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
    """The settings with the keys of ``model`` by their dotted names, and later names as the first ones."""
    flat: Values = {}
    for name, value in values.items():
        if name == "model" and "model" not in known:
            if not isinstance(value, dict):
                raise UsageError(f"model {_shown(value)} is not allowed: give {{name: value, ...}}")
            flat |= {f"model.{inner}": one for inner, one in value.items()}
        elif name in LATER_NAMES:
            flat[LATER_NAMES[name]] = value
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
