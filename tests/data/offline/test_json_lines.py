"""Episodes as JSON lines: what is written is read back, and what cannot be learned from is named."""

from __future__ import annotations

import gzip
import json

import numpy as np
import pytest
from algorithms.tester import SeenOtherwise
from recorded_episodes import episodes, record, spaces_of
from tiny_envs import FromThree
from tiny_runs import Signs

from lit_rl.data.offline.data_set import DataSet
from lit_rl.data.offline.json_lines import JsonLines
from lit_rl.data.offline.writers import open_writer, writing
from lit_rl.errors import UsageError
from lit_rl.functional.tree import tree_map


def assert_alike(one, two):
    tree_map(np.testing.assert_array_equal, two.obs, one.obs)
    np.testing.assert_array_equal(one.action, two.action)
    np.testing.assert_array_equal(one.reward, two.reward)
    assert (one.terminated, one.truncated) == (two.terminated, two.truncated)


@pytest.mark.parametrize("name", ["a.jsonl", "a.jsonl.gz"])
@pytest.mark.parametrize(
    ("env", "config"),
    [(Signs, {}), (Signs, {"start": None, "truncates": False}), (SeenOtherwise, {"start": 2})],
    ids=["discrete", "continuous", "dict"],
)
def test_what_is_written_is_read_back(tmp_path, name, env, config):
    path = record(tmp_path / name, 5, env, **config)
    found = JsonLines(path)
    spaces = spaces_of(env, **config)
    assert found.spaces == spaces and len(found) == 5
    for i, episode in enumerate(episodes(5, env, **config)):
        assert_alike(found.read(i, spaces), episode)


def test_log_probabilities_and_the_header_are_read_back(tmp_path):
    (episode,) = episodes(1)
    log_prob = np.log([0.5, 0.25, 0.1, 1.0])
    with writing(str(tmp_path / "a.jsonl"), spaces_of(), "Signs-v0", {"gamma": 0.9}) as writer:
        writer.write(episode._replace(log_prob=log_prob))
    found = JsonLines(tmp_path / "a.jsonl")
    np.testing.assert_array_equal(found.read(0, spaces_of()).log_prob, log_prob)
    assert found.env_id == "Signs-v0"
    assert json.loads((tmp_path / "a.jsonl").read_text().splitlines()[0])["gamma"] == 0.9


def test_a_data_set_that_could_not_be_finished_is_not_there(tmp_path):
    with pytest.raises(KeyboardInterrupt), writing(str(tmp_path / "a.jsonl"), spaces_of(), None, {}) as writer:
        writer.write(next(episodes(1)))
        raise KeyboardInterrupt
    assert not list(tmp_path.iterdir())


def test_a_file_that_exists_is_kept_and_a_run_that_goes_on_adds_to_it(tmp_path):
    path = record(tmp_path / "a.jsonl", 2)
    with pytest.raises(UsageError, match="exists already"):
        open_writer(path, spaces_of())
    with open(path, "a") as file:
        file.write('{"id": 2, "observ')  # a process that was killed
    writer = open_writer(path, spaces_of(), append=True)
    writer.write(next(episodes(1)))
    writer.close()
    assert [json.loads(line).get("id") for line in open(path)] == [None, 0, 1, 2]


def spoiled(**changes):
    """A good episode's line with some of its entries changed or (None) missing."""
    obs = [[1.0, 0.0], [-1.0, 0.25], [1.0, 0.5]]
    line = {"observations": obs, "actions": [1, 0], "rewards": [1.0, 0.0], "terminated": True} | changes
    return json.dumps({name: x for name, x in line.items() if x is not None})


NAN = [[1.0, 0.0], [float("nan"), 0.25], [1.0, 0.5]]
BAD = {
    "the last observation is missing": spoiled(observations=[[1.0, 0.0], [-1.0, 0.25]]),
    "a reward is nan at step 1": spoiled(rewards=[1.0, float("nan")]),
    "observation 1 holds NaN or infinity": spoiled(observations=NAN),
    r"action 7 at step 1 lies outside Discrete\(2\)": spoiled(actions=[1, 7]),
    "action 0.5 at step 0 lies outside": spoiled(actions=[0.5, 0]),
    "it has no step": spoiled(observations=[[1.0, 0.0]], actions=[], rewards=[]),
    "it has 1 actions and 2 rewards": spoiled(actions=[1]),
    r"shape \(3, 1\), and Box\(2,\) float32 needs \(3, 2\)": spoiled(observations=[[1.0], [1.0], [1.0]]),
    "its observations are no array of numbers": spoiled(observations=[[1.0, 0.0], [1.0], [1.0]]),
    "its rewards are no array of numbers": spoiled(rewards=[1.0, None]),
    "it has no rewards; it has observations, actions, terminated": spoiled(rewards=None),
    "action_logp of the shape": spoiled(action_logp=[0.0]),
    "the file is cut off or damaged": spoiled()[:30],
    "its line is no JSON object": "[1, 2]",
    "a base64 array": spoiled(observations={"base64": "AAAA", "dtype": "uint8", "shape": [7]}),
}


@pytest.mark.parametrize("reason", BAD)
def test_a_bad_episode_is_named_with_its_file_and_dropped_on_demand(tmp_path, reason):
    path = tmp_path / "mine.jsonl"
    path.write_text("\n".join([spoiled(), spoiled(), BAD[reason]]) + "\n")
    with pytest.raises(UsageError, match=rf"mine.jsonl, episode 2: .*{reason}.*--skip_bad_episodes") as error:
        DataSet(str(path), spaces_of())
    assert "\n" not in str(error.value)
    data = DataSet(str(path), spaces_of(), skip_bad_episodes=True)
    assert (data.episodes, len(data.skipped)) == (2, 1) and "1 bad ones dropped" in str(data)


def test_a_file_that_is_cut_off_in_the_middle_keeps_its_whole_episodes(tmp_path):
    whole = open(record(tmp_path / "a.jsonl", 99), "rb").read()
    for name, content in (("b.jsonl", whole[:-150]), ("b.jsonl.gz", gzip.compress(whole)[:-150])):
        (tmp_path / name).write_bytes(content)
        with pytest.raises(UsageError, match=f"{name}, episode [0-9]+: .*cut off or damaged"):
            DataSet(str(tmp_path / name))
        data = DataSet(str(tmp_path / name), skip_bad_episodes=True)
        assert 2 <= data.episodes < 99 and data.skipped


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        ("nowhere.jsonl", "there is no .*nowhere.jsonl; give minari:<id>"),
        ("no*.jsonl", "there is no .*"),
        ("empty.jsonl", "empty.jsonl is empty: it holds no episode"),
        ("header.jsonl", "header.jsonl is empty"),
        ("foreign.jsonl", "has format 'other', version 3; this release reads 'lit_rl.episodes', version 1"),
        ("plain.gz", "plain.gz is no gzip file"),
        ("folder", "holds no .jsonl file; for a Minari one, minari-path:"),
        ("nameless.jsonl", "does not say its spaces: add --env ID, or a header line"),
    ],
)
def test_what_is_no_data_set_is_refused_in_one_line(tmp_path, given, reason):
    header = (tmp_path / "a.jsonl", 1)
    record(*header)
    first = header[0].read_text().splitlines()[0]
    for name, text in (("empty.jsonl", ""), ("header.jsonl", first), ("plain.gz", "no"), ("nameless.jsonl", spoiled())):
        (tmp_path / name).write_text(text)
    (tmp_path / "foreign.jsonl").write_text('{"format": "other", "version": 3}\n')
    (tmp_path / "folder").mkdir()
    with pytest.raises(UsageError, match=reason) as error:
        DataSet(str(tmp_path / given))
    assert "\n" not in str(error.value)


def test_spaces_must_be_the_same_everywhere(tmp_path):
    one, other = record(tmp_path / "a.jsonl", 2), record(tmp_path / "b.jsonl", 2, start=2)
    with pytest.raises(
        UsageError, match=r"b.jsonl has the action space Discrete\(2, start=2\), and .*a.jsonl has Disc"
    ):
        DataSet(str(tmp_path / "*.jsonl"))
    with pytest.raises(UsageError, match="and the environment has"):
        DataSet(other, spaces_of())
    assert DataSet(one, spaces_of()).episodes == 2


def test_a_header_written_by_hand_says_the_spaces(tmp_path):
    box = {"type": "Box", "shape": [2], "dtype": "float32", "low": -1, "high": [1, "inf"]}
    spaces = {"observation": box, "action": {"type": "Discrete", "n": 2, "start": 0, "dtype": "int64"}}
    header = {"format": "lit_rl.episodes", "version": 1, "spaces": spaces}
    (tmp_path / "a.jsonl").write_text(f"{json.dumps(header)}\n{spoiled()}\n{spoiled()}\n")
    found = DataSet(str(tmp_path / "a.jsonl")).spaces
    assert found.observation.high.tolist() == [1.0, np.inf] and found.action.n == 2
    del spaces["action"]
    (tmp_path / "b.jsonl").write_text(json.dumps(header) + "\n" + spoiled() + "\n")
    with pytest.raises(UsageError, match="b.jsonl: its header: this is no description of spaces"):
        DataSet(str(tmp_path / "b.jsonl"))


def test_indices_count_from_the_spaces_start(tmp_path):
    path = record(tmp_path / "a.jsonl", 2, FromThree, act=lambda obs, env, rng: env.action_space.sample())
    assert set(JsonLines(path).read(0, spaces_of(FromThree)).action) <= {3, 4}


def test_a_packed_file_that_was_cut_off_is_appended_to_behind_its_last_whole_line(tmp_path):
    path = tmp_path / "a.jsonl.gz"
    writer = open_writer(str(path), spaces_of(), "Signs-v0")
    played = list(episodes(5))
    for episode in played[:3]:
        writer.write(episode)
    cut = path.read_bytes()  # flushed, without the member's end: what a killed process leaves
    writer.close()
    path.write_bytes(cut)
    again = open_writer(str(path), spaces_of(), "Signs-v0", append=True)
    for episode in played[3:]:
        again.write(episode)
    again.close()
    found = JsonLines(path)
    assert len(found) == 5
    for i, episode in enumerate(played):
        assert_alike(found.read(i, spaces_of()), episode)
    assert [file.name for file in tmp_path.iterdir()] == ["a.jsonl.gz"]
