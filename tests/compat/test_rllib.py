"""RLlib's names mean here what the table says, every line of it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml

from lit_rl.algorithms import MODULES, find_algorithm
from lit_rl.cli import main
from lit_rl.cli.arguments import from_argv, from_python
from lit_rl.cli.experiments import expand
from lit_rl.cli.parser import parser_of
from lit_rl.cli.resolve import resolve
from lit_rl.compat.rllib import TABLE, table, translate
from lit_rl.compat.rllib_callbacks import Callbacks
from lit_rl.compat.rllib_values import CALLBACKS
from lit_rl.errors import UsageError

ROOT = Path(__file__).parents[2]

# What cannot be tried with our own default: the algorithm, their settings, and what ours are then.
EXAMPLES = {
    "monitor": ("DQN", {"monitor": True}, {"videos": 1}),
    "log_level": ("DQN", {"log_level": "WARN"}, {"log_level": "warning"}),
    "callbacks": ("DQN", {"callbacks": {"on_episode_end": None}}, {"hooks": None}),
    "use_eager": ("DQN", {"use_eager": True}, {"compile": False}),
    "eager": ("DQN", {"eager": True}, {"compile": False}),
    "optimizer": ("DQN", {"optimizer": {}}, {}),
    "horizon": ("DQN", {"horizon": 50}, {"max_episode_steps": 50}),
    "soft_horizon": ("DQN", {"horizon": 50, "soft_horizon": True}, {"max_episode_steps": 50, "soft_reset": True}),
    "clip_rewards": ("DQN", {"clip_rewards": True}, {"clip_rewards": True}),
    "evaluation_interval": ("DQN", {"evaluation_interval": 2}, {"check_val_every_n_epoch": 2}),
    "evaluation_config": (
        "DQN",
        {"evaluation_config": {"explore": False, "env_config": {"sutton_barto_reward": True}}},
        {"eval_env_config": {"sutton_barto_reward": True}},
    ),
    "num_gpus": ("DQN", {"num_gpus": 0}, {"accelerator": "cpu"}),
    "sample_batch_size": (
        "DQN",
        {"sample_batch_size": 4, "num_envs_per_worker": 2},
        {"collect_per_step": 8, "update_per_step": 0.125},
    ),
    "rollout_fragment_length": (
        "A2C",
        {"rollout_fragment_length": 20},
        {"rollout_length": 20, "step_per_epoch": 10000},
    ),
    "train_batch_size": (
        "PPO",
        {"train_batch_size": 2000, "num_envs_per_worker": 4},
        {"rollout_length": 500, "step_per_epoch": 10000},
    ),
    "batch_mode": ("PPO", {"batch_mode": "complete_episodes"}, {"complete_episodes": True}),
    "observation_filter": ("PPO", {"observation_filter": "MeanStdFilter"}, {"normalize_obs": True}),
    "min_iter_time_s": ("DQN", {"min_iter_time_s": 90}, {"val_check_interval": "00:00:01:30"}),
    "timesteps_per_iteration": ("DQN", {"timesteps_per_iteration": 5000}, {"step_per_epoch": 5000}),
    "model.use_lstm": ("PPO", {"model": {"use_lstm": True}}, {"use_lstm": True}),
    "model.max_seq_len": ("PPO", {"model": {"use_lstm": True, "max_seq_len": 10}}, {"max_seq_len": 10}),
    "model.lstm_cell_size": ("A2C", {"model": {"use_lstm": True, "lstm_cell_size": 8}}, {"lstm_cell_size": 8}),
    "input": ("MARWIL", {"input": "data.jsonl"}, {"input": "data.jsonl"}),
    "input_evaluation": (
        "MARWIL",
        {"input": "data.jsonl", "input_evaluation": ["is", "wis"]},
        {"input": "data.jsonl", "input_evaluation": ["is", "wis"]},
    ),
    "output": ("DQN", {"output": "data.jsonl"}, {"output": "data.jsonl"}),
    "model.framestack": ("DQN", {"model": {"framestack": True}}, {"frame_stack": 4}),
    "model.custom_model": ("DQN", {"model": {"custom_model": "my:Net"}}, {"custom_model": "my:Net"}),
    "model.custom_options": (
        "DQN",
        {"model": {"custom_model": "my:Net", "custom_options": {"width": 3}}},
        {"custom_model_config": {"width": 3}},
    ),
    "exploration_fraction": ("DQN", {"exploration_fraction": 0.2}, {"epsilon": [[0, 1.0], [20000, 0.02]]}),
    "exploration_initial_eps": ("DQN", {"exploration_initial_eps": 0.5}, {"epsilon": [[0, 0.5], [10000, 0.02]]}),
    "exploration_final_eps": ("DQN", {"exploration_final_eps": 0.1}, {"epsilon": [[0, 1.0], [10000, 0.1]]}),
    "schedule_max_timesteps": ("DQN", {"schedule_max_timesteps": 1000}, {"epsilon": [[0, 1.0], [100, 0.02]]}),
    "target_network_update_freq": ("DQN", {"target_network_update_freq": 500}, {"target_update_every": 125}),
    "prioritized_replay_beta": ("DQN", {"prioritized_replay_beta": 0.5}, {"prioritized_beta": 0.5}),
    "final_prioritized_replay_beta": (
        "DQN",
        {"final_prioritized_replay_beta": 1.0},
        {"prioritized_beta": [[0, 0.4], [20000, 1.0]]},
    ),
    "beta_annealing_fraction": (
        "DQN",
        {"beta_annealing_fraction": 0.5, "final_prioritized_replay_beta": 1.0},
        {"prioritized_beta": [[0, 0.4], [50000, 1.0]]},
    ),
    "prioritized_replay_beta_annealing_timesteps": (
        "DQN",
        {"prioritized_replay_beta_annealing_timesteps": 300, "final_prioritized_replay_beta": 1.0},
        {"prioritized_beta": [[0, 0.4], [300, 1.0]]},
    ),
    "lr_schedule": ("DQN", {"lr_schedule": [[0, 1e-3], [1000, 1e-4]]}, {"lr": [[0, 1e-3], [1000, 1e-4]]}),
    "actor_hiddens": ("TD3", {"actor_hiddens": [8], "critic_hiddens": [8]}, {"hidden_sizes": [8]}),
    "critic_hiddens": ("TD3", {"critic_hiddens": [8]}, {"hidden_sizes": [8]}),
    "actor_hidden_activation": ("TD3", {"actor_hidden_activation": "tanh"}, {"activation": "tanh"}),
    "critic_hidden_activation": ("TD3", {"critic_hidden_activation": "tanh"}, {"activation": "tanh"}),
    "twin_q": ("TD3", {"twin_q": True}, {}),
    "smooth_target_policy": ("DDPG", {"smooth_target_policy": False}, {}),
    "exploration_ou_noise_scale": ("DDPG", {"exploration_ou_noise_scale": 0.5}, {"exploration_noise": 0.1}),
    "exploration_ou_sigma": ("DDPG", {"exploration_ou_sigma": 0.5}, {"exploration_noise": 0.05}),
    "optimization": (
        "SAC",
        {"optimization": {"actor_learning_rate": 1e-3, "critic_learning_rate": 1e-3, "entropy_learning_rate": 1e-3}},
        {"lr": 1e-3},
    ),
    "target_entropy": ("SAC", {"target_entropy": "auto"}, {"target_entropy": None}),
    "use_gae": ("PPO", {"use_gae": False}, {"gae_lambda": 1.0}),
    "entropy_coeff_schedule": (
        "PPO",
        {"entropy_coeff_schedule": [[0, 0.1], [9, 0.0]]},
        {"entropy_coeff": [[0, 0.1], [9, 0.0]]},
    ),
    "episodes_per_batch": ("ES", {"episodes_per_batch": 20, "train_batch_size": 2000}, {"members": 20}),
}


def ours(algo: str, config: dict[str, object]) -> dict[str, object]:
    """All settings, by our names, of a run with these of theirs."""
    (request,) = expand(from_python({"algo": algo, "tuned": False, "accelerator": "cpu", "config": config}))
    return resolve(request).flat


@pytest.mark.parametrize("sampled", [{}, {"input": "sampler"}])
def test_their_default_estimates_ask_for_nothing_where_an_env_is_played(sampled):
    assert ours("DQN", sampled | {"input_evaluation": ["is", "wis"]})["input_evaluation"] is None
    assert ours("DQN", sampled | {"input_evaluation": ["wis"]})["input_evaluation"] == ["wis"]  # which is refused later


def algorithm_with(setting: str) -> str | None:
    return next((algo for algo in MODULES if setting in parser_of(find_algorithm(algo)).hints), None)


@pytest.mark.parametrize("name", list(TABLE))
def test_every_line_of_the_table(name):
    key = TABLE[name]
    if name in EXAMPLES:
        algo, theirs, expected = EXAMPLES[name]
        found = ours(algo, theirs)
        assert {setting: found[setting] for setting in expected} == expected
    elif not key.ours:
        with pytest.raises(UsageError) as refused:
            translate({name.partition(".")[0]: {name.partition(".")[2]: "x"} if "." in name else "x"}, set(), {})
        assert key.note in str(refused.value)
    else:
        algo = algorithm_with(key.ours)
        assert algo is not None, f"{name} becomes {key.ours}, which no algorithm has"
        default = parser_of(find_algorithm(algo)).defaults[key.ours]
        theirs = {"model": {name.partition(".")[2]: default}} if "." in name else {name: default}
        assert ours(algo, theirs)[key.ours] == default


def test_the_docs_have_the_table():
    assert table() in (ROOT / "docs" / "from_rllib.md").read_text()


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        (["--config", '{"num_workers": 8}'], "num_workers 8 (in the inline config): it needs workers"),
        (["--config", '{"hidens": [64]}'], "unknown setting --hidens (in the inline config); nearest: hiddens"),
        (["--config", '{"model": {"fcnet_hidens": [64]}}'], "nearest: model.fcnet_hiddens"),
        (["--run", "IMPALA"], "--run IMPALA: it needs workers, which are not there yet: use PPO or A2C"),
        (
            ["--run", "PPO", "--config", '{"double_q": true}'],
            "PPO has no setting --double (double_q (in the inline config))",
        ),
        (["--stop", '{"episode_len_mean": 3}'], "--stop: there is no episode_len_mean to stop at; there are"),
        (["--stop", '{"time_total_s": -1}'], "--stop: time_total_s -1 is not allowed: give seconds above 0"),
        (["--num_samples", "0"], "--num_samples 0 is not allowed"),
        (["--num-gpus", "0.2"], "num_gpus 0.2: 0.2 is not allowed: give 0 or 1"),
        (["--keep_checkpoints_num", "3"], "are about those of --checkpoint_freq: give it"),
        (["--exploration_fraction", "-1"], "exploration_fraction -1: -1 is not allowed: give a number of at least 0"),
        (["--use-eager", "7"], "use_eager 7: 7 is not allowed: give true or false"),
        (["--min_iter_time_s", "[]"], "min_iter_time_s []: [] is not allowed: give seconds above 0"),
        (["--config", '{"lr": &a [*a]}'], "an alias stands in what it stands for"),
        (["--restore", "a\0b"], "cannot read a\\x00b: embedded null byte"),
        (["--ckpt_path", "x" * 5000], "File name too long"),
        (["--hiddens", "[64]", "--hidden_sizes", "[32]"], "say different things of hidden_sizes: give one of them"),
        (["--callbacks", '{"on_foo": null}'], "on_foo is none of on_episode_start"),
        (["--ray_num_cpus", "4"], "ray_num_cpus 4: it needs workers"),
        (["--stop", '{"a": '], """--stop '{"a": ' is not allowed: give {name: value, ...}"""),
        (["--stop", "[]"], "--stop [] is not allowed: give {name: value, ...}"),
        (["--stop", ""], "--stop '' is not allowed: give {name: value, ...}"),
        (["--stop", '{"training_iteration": 0}'], "--stop: training_iteration 0 is not allowed: give at least 1"),
        (["--stop", '{"env_steps": null}'], "--stop: env_steps None is not allowed: give a number"),
        (["--stop", '{"time_total_s": 1e30}'], "time_total_s 1e+30 is not allowed: give seconds above 0, at most"),
        (["--checkpoint_freq", "-1"], "--checkpoint_freq -1 is out of range: it must be at least 0"),
        (["--checkpoint_freq", ""], "--checkpoint_freq '' is not allowed: give a whole number"),
        (["--max_time", "99999999999:00:00:00"], "Lightning's Trainer: "),
        (["--num_samples", "99999999"], "--num_samples 99999999 is not allowed: give a whole number from 1 to 1000"),
        (["--seed", "[", "--num_samples", "2"], "--seed [ is not allowed: give a whole number"),
        (["--two_steps", "--step2", "abc", "--checkpoint_freq", "1"], "--step2 'abc' is not allowed"),
        (
            ["--stop", '{"episode_reward_mean": 475, "Eval/return": 480}'],
            "--stop: Eval/return 480 and another value of the same limit contradict each other",
        ),
        (["--checkpoint_at_end", "7"], "--checkpoint_at_end '7' is not allowed: give true or false"),
        (["--checkpoint_at_end", "false"], "--checkpoint_at_end false is not allowed: last.ckpt is what a run goes on"),
        (
            ["--checkpoint_at_end", "--enable_checkpointing", "false"],
            "--enable_checkpointing false and --checkpoint_at_end contradict each other",
        ),
        (["--checkpoint_at_end", "--barebones"], "enable_checkpointing"),
        (["--stop", '{"env_steps": NaN}'], "--stop: env_steps 'NaN' is not allowed: give a number"),
        (["--stop", '{"env_steps": 1.5}'], "--total_timesteps 1.5 (--stop) is not allowed: give a whole number"),
        (["--input_evaluation", "wis"], "--input_evaluation wis needs recorded episodes: give --input PATH"),
        (["--input_evaluation", '["simulation"]'], "evaluations play episodes wherever there is an env"),
        (
            ["--input_evaluation", '["dr"]'],
            """--input_evaluation '["dr"]' is not allowed: give [is or wis, ...] or null""",
        ),
        (["-f", "nowhere.yaml"], "-f nowhere.yaml cannot be read: No such file or directory"),
    ],
)
def test_what_has_no_meaning_here_is_one_line(argv, message, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert main(["train", "--max_epochs", "1", *argv]) == 2
    err = capsys.readouterr().err
    assert message in err and err.count("\n") == 1
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a:\n  run: DQN\n  config:\n    lr: [1\n", "-f: x.yaml is neither YAML nor JSON: line 4, 'lr: [1': expected"),
        (
            "a:\n  run: DQN\n  config:\n    hidens: [1]\n",
            "unknown setting --hidens (in x.yaml, a, line 4); nearest: hiddens",
        ),
        ("a:\n  run: DQN\n  run: PPO\n", "line 3: run stands there twice, first on line 2"),
        ("a:\n  run: DQN\n  config:\n    num_workers: 2\n", "num_workers 2 (in x.yaml, a, line 4): it needs workers"),
        ("a:\n  run: DQN\n  lr: hello\n", "--lr 'hello' (in x.yaml, a, line 3) is not allowed"),
        ('{"a": {"config": 3}}', "-f x.yaml, line 1: config must be {setting: value, ...}"),
        ("a: {1: 2}\n", "unknown setting --1"),
        ("a: 3\n", "-f x.yaml, line 1: a must be {run: DQN, env: ..., config: ...}"),
        ("", "-f x.yaml holds no experiment"),
    ],
)
def test_a_malformed_file_is_shown_with_line_and_key(text, message, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "x.yaml").write_text(text)
    assert main(["train", "--max_epochs", "1", "-f", "x.yaml"]) == 2
    assert message in capsys.readouterr().err
    assert [file.name for file in tmp_path.iterdir()] == ["x.yaml"]


SMALL = {
    "tuned": False,
    "env": "short_env:Short",
    "step_per_epoch": 40,
    "learning_starts": 8,
    "train_batch_size": 4,
    "hiddens": [8],
    "evaluation_num_episodes": 2,
    "test_episodes": 2,
    "num_gpus": 0,
}


def test_experiments_of_a_file_run_one_after_the_other_each_with_its_seeds(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    experiments = {
        "one": {
            "run": "DQN",
            "stop": {"training_iteration": 2},
            "num_samples": 2,
            "config": SMALL,
            "checkpoint_freq": 1,
        },
        "two": {"run": "DQN", "stop": {"timesteps_total": 40}, "config": SMALL | {"double_q": False}},
    }
    (tmp_path / "all.yaml").write_text(yaml.safe_dump(experiments))
    argv = ["train", "-f", "all.yaml", "--local-dir", "runs", "--logger", "false", "--enable_progress_bar", "false"]
    assert main([*argv, "--seed", "5"]) == 0
    assert sorted(run.name for run in (tmp_path / "runs").iterdir()) == ["one_seed5", "one_seed6", "two"]
    rows = {run.name: (run / "result.json").read_text().splitlines() for run in (tmp_path / "runs").iterdir()}
    assert {name: len(found) for name, found in rows.items()} == {"one_seed5": 2, "one_seed6": 2, "two": 1}
    assert json.loads((tmp_path / "runs" / "one_seed6" / "config.json").read_text())["seed"] == 6
    kept = sorted(file.name for file in (tmp_path / "runs" / "one_seed5" / "checkpoints").iterdir())
    assert kept == ["checkpoint-0.ckpt", "checkpoint-1.ckpt"]
    assert "run 3 of 3: two, seed 5" in capsys.readouterr().out


def test_a_run_that_fails_does_not_end_the_others(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    config = SMALL | {"env_config": {"breaks_at": 30}}
    experiments = {"bad": {"run": "DQN", "config": config}, "good": {"run": "DQN", "config": SMALL}}
    (tmp_path / "all.yaml").write_text(yaml.safe_dump(experiments))
    argv = ["train", "-f", "all.yaml", "--logger", "false", "--enable_progress_bar", "false", "--max_epochs", "1"]
    assert main(argv) == 1
    assert "run 1 of 2: bad, seed 0 failed: env 0, step 30" in capsys.readouterr().err
    assert (tmp_path / "output" / "good" / "summary.json").exists()


def test_the_kept_checkpoints_are_the_best_ones():
    argv = ["--checkpoint_freq", "2", "--keep_checkpoints_num", "3", "--checkpoint_score_attr", "min-Eval/length"]
    (request,) = expand(from_argv([*argv, "--two_steps", "--max_epochs", "4"]))
    resolved = resolve(request)
    (first,) = resolved.settings.stage1.trainer["callbacks"]
    (second,) = resolved.settings.stage2.trainer["callbacks"]
    assert (first.monitor, first.mode, first.save_top_k, first._every_n_epochs) == ("Eval/length", "min", 3, 2)
    assert second.monitor == "Step2Eval/length"


def test_callbacks_are_called_as_rllib_calls_them(tmp_path, monkeypatch):
    told = []

    def on_episode_end(info):
        episode = info["episode"]
        told.append((episode.length, episode.total_reward, info["env"].unwrapped.total > 0))
        episode.custom_metrics["double"] = 2 * episode.total_reward

    def on_train_result(info):
        info["result"]["callback_ok"] = True
        assert info["result"]["custom_metrics"] == {"double_mean": 6.0, "double_min": 6.0, "double_max": 6.0}

    import lit_rl

    functions = {"on_episode_end": on_episode_end, "on_train_result": on_train_result}
    lit_rl.train(
        config=SMALL | {"callbacks": functions},
        max_epochs=1,
        output_dir=tmp_path,
        experiment_name="x",
        logger="false",
        enable_progress_bar=False,
    )
    assert told == [(3, 3.0, True)] * 13  # 40 env steps
    row = json.loads((tmp_path / "x" / "result.json").read_text())
    assert row["callback_ok"] is True and row["Train/double_mean"] == 6.0
    assert set(CALLBACKS) <= set(dir(Callbacks))


@pytest.mark.parametrize("name", ["sample_batch_size", "rollout_fragment_length"])
def test_targets_follow_env_steps_under_both_names_of_a_fragment(name):
    found = ours("DQN", {name: 1, "target_network_update_freq": 500})
    assert (found["target_update_every"], found["update_per_step"], found["tau"]) == (500, 1.0, 1.0)


def test_callbacks_of_stage_2_stand_beside_those_of_checkpoint_freq():
    (request,) = expand(
        from_python(
            {
                "algo": "DQN",
                "two_steps": True,
                "checkpoint_freq": 1,
                "step2": {"callbacks": {"class_path": "my.Callback"}},
            }
        )
    )
    assert len(request.values["step2"]["callbacks"]) == 2


def test_the_checkpoint_of_the_end_is_one_that_a_run_goes_on_from(tmp_path):
    (request,) = expand(from_python({"config": SMALL, "checkpoint_at_end": True, "max_epochs": 1}))
    assert resolve(request).flat["enable_checkpointing"] is True  # which is where last.ckpt comes from
    assert not {"checkpoint_at_end"} & set(request.values)
