from __future__ import annotations

import gc
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import numpy as np
import pytest
import tiny_envs
from gymnasium.vector import AutoresetMode

from lit_rl.envs.vector import make_vector_env
from lit_rl.errors import EnvError, UsageError

ACT = np.zeros(2, np.int64)


def alive(pid):
    """Whether a process runs still; a zombie does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


def wait_until(true, seconds=10.0):
    end = time.monotonic() + seconds
    while not true() and time.monotonic() < end:
        time.sleep(0.02)
    return true()


@pytest.mark.parametrize("kind", ["sync", "async"])
def test_final_observations_are_the_real_ones_from_envs_that_reuse_their_array(kind):
    envs = make_vector_env(tiny_envs.Reusing, {"length": 2, "truncates": True}, 2, kind, autoreset="same_step")
    assert envs.metadata["autoreset_mode"] == AutoresetMode.SAME_STEP
    obs, _ = envs.reset(seed=[3, 4])
    episode = float(obs[0, 0])
    envs.step(ACT)
    obs, reward, terminated, truncated, info = envs.step(ACT)
    assert [final.tolist() for final in info["final_obs"]] == [[episode, 2]] * 2
    assert obs.tolist() == [[episode + 1, 0]] * 2
    assert reward.tolist() == [1, 1] and not terminated.any() and truncated.all()
    envs.close()


@pytest.mark.parametrize("kind", ["sync", "async"])
def test_disabled_resets_are_the_callers(kind):
    envs = make_vector_env(tiny_envs.Counting, {"length": 1}, 2, kind, autoreset="disabled")
    assert envs.metadata["autoreset_mode"] == AutoresetMode.DISABLED
    envs.reset(seed=[1, 2])
    obs, _, terminated, _, _ = envs.step(ACT)
    assert terminated.all() and obs[:, 1].tolist() == [1, 1]
    obs, _ = envs.reset(seed=[5, 6], options={"reset_mask": np.array([True, False])})
    assert obs[:, 1].tolist() == [0, 1]
    envs.close()


def test_envs_in_this_process_tell_the_infos_of_ends_only_unless_all_are_wanted():
    class Telling(tiny_envs.Counting):
        def step(self, action):
            return *super().step(action)[:4], {"t": self.t}

    envs = make_vector_env(Telling, {"length": 2}, 2, "sync", autoreset="same_step")
    envs.reset(seed=[1, 2])
    assert envs.step(ACT)[4] == {}
    assert envs.step(ACT)[4]["final_info"]["t"].tolist() == [2, 2]
    envs.every_info = True
    assert envs.step(ACT)[4]["t"].tolist() == [1, 1]
    envs.close()


@pytest.mark.parametrize("kind", ["sync", "async"])
def test_actions_that_do_not_start_at_zero_reach_the_env_as_they_are(kind):
    envs = make_vector_env(tiny_envs.FromThree, {}, 2, kind, autoreset="same_step")
    envs.reset(seed=0)
    assert envs.step(np.array([3, 4]))[1].tolist() == [3.0, 4.0]
    envs.close()


@pytest.mark.parametrize("kind", ["sync", "async"])
def test_an_env_that_raises_names_itself_its_step_and_its_traceback(kind):
    envs = make_vector_env(tiny_envs.Stopping, {"length": 9}, 2, kind, autoreset="same_step", first_index=6)
    envs.reset(seed=0)
    envs.step(ACT)
    envs.step(ACT)
    with pytest.raises(EnvError, match=r"(?s)env [67], step 3 .*raised StopIteration.*next\(iter\(\(\)\)\)"):
        envs.step(ACT)
    envs.close()


def test_an_error_that_cannot_be_rebuilt_reaches_the_run():
    envs = make_vector_env(tiny_envs.Crashing, {}, 1, "async", autoreset="same_step")
    envs.reset(seed=0)
    with pytest.raises(EnvError, match="raised Unpicklable: bad"):
        envs.step(ACT[:1])
    envs.close()


def test_a_worker_that_dies_is_named_and_the_others_end():
    envs = make_vector_env(tiny_envs.Dying, {}, 2, "async", autoreset="same_step", first_index=4)
    envs.reset(seed=0)
    pids = [process.pid for process in envs.processes]
    with pytest.raises(EnvError, match=r"env [45], step 1: its worker process ended by itself \(exit code 7\)"):
        envs.step(ACT)
    envs.close()
    assert not any(map(alive, pids))


def test_an_env_that_fails_only_in_its_worker_is_an_error_and_leaves_no_process(capfd):
    main = os.getpid()

    def only_here():
        if os.getpid() != main:
            raise ValueError("not in a worker")
        return tiny_envs.Counting()

    with pytest.raises(EnvError, match="env 0, step 0: its worker process ended"):
        make_vector_env(only_here, {}, 1, "async", autoreset="same_step")
    assert "not in a worker" in capfd.readouterr().err


def test_no_process_file_or_thread_remains_after_close():
    def count():
        gc.collect()
        return len(os.listdir("/proc/self/fd"))

    def round_trip():
        envs = make_vector_env(tiny_envs.Counting, {}, 2, "async", autoreset="same_step")
        envs.reset(seed=0)
        pids = [process.pid for process in envs.processes]
        envs.close()
        return pids

    round_trip()
    before = count()
    pids = round_trip() + round_trip()
    assert not any(map(alive, pids))
    assert count() <= before


def test_close_does_not_wait_for_a_step_that_was_interrupted():
    envs = make_vector_env(tiny_envs.Sleeping, {}, 2, "async", autoreset="same_step")
    envs.reset(seed=0)
    pids = [process.pid for process in envs.processes]
    envs.step_async(ACT)
    began = time.monotonic()
    envs.close()
    assert time.monotonic() - began < 5
    assert not any(map(alive, pids))


def test_workers_do_not_inherit_the_runs_signal_handlers():
    before = signal.signal(signal.SIGTERM, lambda *_: None)  # as Lightning has one while it fits
    try:
        envs = make_vector_env(tiny_envs.Counting, {}, 1, "async", autoreset="same_step")
    finally:
        signal.signal(signal.SIGTERM, before)
    os.kill(envs.processes[0].pid, signal.SIGTERM)
    assert wait_until(lambda: not envs.processes[0].is_alive())
    envs.close()


def test_workers_made_in_another_thread_outlive_it():
    made = []
    thread = threading.Thread(
        target=lambda: made.append(make_vector_env(tiny_envs.Counting, {}, 1, "async", autoreset="same_step"))
    )
    thread.start()
    thread.join()
    time.sleep(0.05)
    envs = made[0]
    envs.reset(seed=0)
    assert envs.step(ACT[:1])[1].tolist() == [1.0]
    envs.close()


RUN = """
import signal, time
import gymnasium as gym
import numpy as np
from lit_rl.envs.vector import make_vector_env

class Mine(gym.Env):
    observation_space, action_space = gym.spaces.Box(-1, 1, (1,)), gym.spaces.Discrete(2)
    def reset(self, *, seed=None, options=None):
        return np.zeros(1, np.float32), {}
    def step(self, action):
        time.sleep(0.01)
        return np.zeros(1, np.float32), 1.0, False, False, {}

signal.signal(signal.SIGTERM, lambda *_: None)  # as Lightning has one while it fits
signal.signal(signal.SIGINT, signal.default_int_handler)  # ignored in what a shell started in the background
envs = make_vector_env(Mine, {}, 2, "async", autoreset="same_step")
envs.reset(seed=0)
print(*[process.pid for process in envs.processes], flush=True)
while True:
    try:
        envs.step(np.zeros(2, np.int64))
    except KeyboardInterrupt:
        print("interrupted", [process.is_alive() for process in envs.processes], flush=True)
        envs.close()
        print("closed", [process.is_alive() for process in envs.processes], flush=True)
        envs = make_vector_env(Mine, {}, 2, "async", autoreset="same_step")
        envs.reset(seed=0)
        print(*[process.pid for process in envs.processes], flush=True)
"""


@pytest.fixture
def run():
    """A process that steps two async workers, of an env class defined in its ``__main__``, in a group of its own."""
    root = Path(__file__).parents[2]
    process = subprocess.Popen(
        [sys.executable, "-c", RUN], stdout=subprocess.PIPE, text=True, start_new_session=True, cwd=root
    )
    yield process
    process.kill()
    process.wait()
    process.stdout.close()


def test_signals_to_the_group_reach_the_run_alone_and_its_workers_end_with_it(run):
    pids = [int(word) for word in run.stdout.readline().split()]
    assert len(pids) == 2
    os.killpg(run.pid, signal.SIGTERM)
    time.sleep(0.05)
    os.killpg(run.pid, signal.SIGINT)
    assert run.stdout.readline() == "interrupted [True, True]\n"
    assert run.stdout.readline() == "closed [False, False]\n"

    pids = [int(word) for word in run.stdout.readline().split()]
    assert len(pids) == 2 and all(map(alive, pids))
    run.kill()
    run.wait()
    assert wait_until(lambda: not any(map(alive, pids)))


def test_native_envs_reset_in_the_next_step_and_take_the_first_of_several_seeds():
    envs = make_vector_env("CartPole-v1", {}, 2, "native", autoreset="same_step")
    assert envs.metadata["autoreset_mode"] == AutoresetMode.NEXT_STEP
    first = envs.reset(seed=[5, 6])[0].copy()
    assert np.array_equal(first, envs.reset(seed=5)[0])
    assert first.shape == (2, 4)
    envs.step(ACT)
    with pytest.raises(EnvError, match="native envs, vector step 2 raised"):
        envs.step(np.array([7, 7]))
    envs.close()


@pytest.mark.parametrize(
    ("env", "config", "autoreset", "says"),
    [
        ("Acrobot-v1", {}, "same_step", "choose sync or async"),
        ("CartPol-v1", {}, "same_step", "CartPole-v1"),
        (tiny_envs.Counting, {}, "same_step", "needs an environment id"),
        ("CartPole-v1", {"gravitas": 1}, "same_step", "does not fit"),
        ("CartPole-v1", {}, "disabled", "choose sync or async"),
    ],
)
def test_native_is_refused_where_it_cannot_be(env, config, autoreset, says):
    with pytest.raises(UsageError, match=says):
        make_vector_env(env, config, 2, "native", autoreset=autoreset)
