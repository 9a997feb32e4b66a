"""Minari data sets: ours are read back, and those of others as their format says."""

from __future__ import annotations

import gymnasium as gym
import minari
import numpy as np
import pytest
from algorithms.tester import SeenOtherwise
from minari.data_collector import EpisodeBuffer
from recorded_episodes import episodes, record, spaces_of
from tiny_runs import Signs

from lit_rl.data.offline.data_set import DataSet
from lit_rl.data.offline.minari_sets import MinariEpisodes
from lit_rl.data.offline.writers import open_writer, writing
from lit_rl.errors import UsageError
from lit_rl.functional.tree import tree_map


@pytest.fixture(autouse=True)
def datasets_path(tmp_path, monkeypatch):
    monkeypatch.setenv("MINARI_DATASETS_PATH", str(tmp_path / "minari"))


@pytest.mark.parametrize("kind", ["minari:signs/half-v0", "minari-path:{}/half-v0"])
@pytest.mark.parametrize(("env", "config"), [(Signs, {}), (SeenOtherwise, {"start": None})], ids=["box", "dict"])
def test_what_is_written_is_read_back(tmp_path, kind, env, config):
    path = record(kind.format(tmp_path), 5, env, **config)
    spaces = spaces_of(env, **config)
    data = DataSet(path, spaces)
    assert (data.episodes, data.held_out_episodes) == (5, 1)
    found = MinariEpisodes(path.partition(":")[2], folder="path" in kind)
    for i, episode in enumerate(episodes(5, env, **config)):
        read = found.read(i, spaces)
        tree_map(np.testing.assert_array_equal, tree_map(np.float32, read.obs), tree_map(np.float32, episode.obs))
        np.testing.assert_array_equal(read.action, episode.action)
        np.testing.assert_array_equal(read.reward, episode.reward)
        assert (read.terminated, read.truncated) == (episode.terminated, episode.truncated)
    with pytest.raises(UsageError, match="exists already"):
        open_writer(path, spaces)


def test_episodes_are_added_in_several_rounds_with_their_log_probabilities(tmp_path, monkeypatch):
    monkeypatch.setattr("lit_rl.data.offline.writers.AT_ONCE", 8)  # two episodes of four steps
    log_prob = np.log([0.5, 0.25, 0.1, 1.0])
    with writing(f"minari-path:{tmp_path}/a-v0", spaces_of(), None, {}) as writer:
        for episode in episodes(5):
            writer.write(episode._replace(log_prob=log_prob))
    data = DataSet(f"minari-path:{tmp_path}/a-v0")
    assert data.episodes == 5
    found = MinariEpisodes(f"{tmp_path}/a-v0", folder=True)
    np.testing.assert_allclose(found.read(4, data.spaces).log_prob, log_prob)


def test_a_data_set_that_could_not_be_finished_is_not_there(tmp_path, monkeypatch):
    monkeypatch.setattr("lit_rl.data.offline.writers.AT_ONCE", 1)
    with pytest.raises(KeyboardInterrupt), writing("minari:half-v0", spaces_of(), None, {}) as writer:
        writer.write(next(episodes(1)))
        raise KeyboardInterrupt
    assert "half-v0" not in minari.list_local_datasets()


def test_a_new_data_set_needs_a_name_with_a_version(tmp_path):
    with pytest.raises(UsageError, match="ends in a version: half-v0"):
        open_writer("minari:half", spaces_of())
    with pytest.raises(UsageError, match="no place for episodes: give a .jsonl"):
        open_writer(f"{tmp_path}/half.csv", spaces_of())


def foreign(observations, rewards=(1.0, 0.5)):
    """Somebody else's data set of one good episode and one with these observations and rewards."""
    good = np.zeros((3, 2), np.float32)
    buffers = [
        EpisodeBuffer(
            observations=obs,
            actions=np.array([0, 1]),
            rewards=list(r),
            terminations=[False, True],
            truncations=[False, False],
            infos={},
        )
        for obs, r in ((good, (1.0, 0.5)), (observations, rewards))
    ]
    box = gym.spaces.Box(-1, 1, (2,), np.float32)
    minari.create_dataset_from_buffers(
        "foreign-v0", buffers, observation_space=box, action_space=gym.spaces.Discrete(2), data_format="hdf5"
    )
    return "minari:foreign-v0"


@pytest.mark.filterwarnings("ignore::UserWarning")
def test_what_minari_accepts_and_nothing_can_learn_from_is_named(tmp_path):
    path = foreign(np.zeros((2, 2), np.float32))
    with pytest.raises(UsageError, match="minari:foreign-v0, episode 1: .*the last observation is missing"):
        DataSet(path)
    assert DataSet(path, skip_bad_episodes=True, validation_fraction=0).episodes == 1
    minari.delete_dataset("foreign-v0")
    with pytest.raises(UsageError, match="episode 1: a reward is nan at step 1"):
        DataSet(foreign(np.zeros((3, 2), np.float32), (1.0, float("nan"))))


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        ("minari:none-v0", "there is no Minari data set none-v0 on this machine; here are half-v0; minari download"),
        ("minari-path:{}/nowhere", "there is no folder"),
        ("minari-path:{}/minari", "holds no Minari data set"),
        ("minari-path:{}/cut-v0/data", "cannot be read"),
    ],
)
def test_what_is_no_data_set_is_refused_in_one_line(tmp_path, given, reason):
    record("minari:half-v0", 2)
    record(f"minari-path:{tmp_path}/cut-v0", 2)
    (hdf5,) = (tmp_path / "cut-v0").rglob("*.hdf5")
    hdf5.write_bytes(hdf5.read_bytes()[:900])
    with pytest.raises(UsageError, match=reason) as error:
        DataSet(given.format(tmp_path))
    assert "\n" not in str(error.value)
