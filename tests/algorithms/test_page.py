"""docs/algorithms.md: each cell of its tables is what the algorithms do, and its sections are what their code says."""

from __future__ import annotations

import algorithms_page
import gymnasium as gym
import numpy as np
import pytest
import torch

from lit_rl.algorithms import MODULES, find_algorithm
from lit_rl.envs.masks import MASK
from lit_rl.envs.spaces import Spaces, cast_observation, describe
from lit_rl.errors import UsageError
from lit_rl.functional.tree import tree_map

BOX = gym.spaces.Box(-1, 1, (3,), np.float32)
ACTIONS = {
    "Discrete": gym.spaces.Discrete(3, start=-1),
    "MultiDiscrete": gym.spaces.MultiDiscrete([2, 3]),
    "MultiBinary": gym.spaces.MultiBinary(2),
    "Box": gym.spaces.Box(np.array([-2.0, 0.0], np.float32), np.array([1.0, 9.0], np.float32)),
    "Box without bounds": gym.spaces.Box(-np.inf, np.inf, (2,), np.float32),
}
OBSERVATIONS = {
    "Box of floats": gym.spaces.Box(-1, 1, (2, 3), np.float32),
    "float64": gym.spaces.Box(-np.inf, np.inf, (3,), np.float64),
    "of numbers (0-d)": gym.spaces.Box(-1, 1, (), np.float32),
    "of whole numbers": gym.spaces.Box(-5, 5, (3,), np.int64),
    "of bytes": gym.spaces.Box(0, 255, (3,), np.uint8),
    "image": gym.spaces.Box(0, 255, (36, 36, 3), np.uint8),
    "Discrete": gym.spaces.Discrete(4, start=2),
    "MultiDiscrete": gym.spaces.MultiDiscrete([3, 2], start=[1, 0]),
    "MultiBinary": gym.spaces.MultiBinary([2, 2]),
    "Dict": gym.spaces.Dict({"a": BOX, "b": gym.spaces.Discrete(2)}),
    "Tuple": gym.spaces.Tuple((BOX, gym.spaces.MultiBinary(2))),
    "nested": gym.spaces.Dict({"a": gym.spaces.Tuple((BOX, gym.spaces.Dict({"b": gym.spaces.Discrete(3)})))}),
}


def tables():
    """Both tables of the page: {algorithm: {column: cell}}."""
    found = []
    for block in algorithms_page.PAGE.read_text("utf-8").split(algorithms_page.MARK)[0].split("\n\n"):
        lines = [[cell.strip() for cell in line.strip("|").split("|")] for line in block.strip().splitlines()]
        if lines and lines[0][0] == "algorithm":
            found.append({row[0]: dict(zip(lines[0][1:], row[1:], strict=True)) for row in lines[2:]})
    return found


ACTS, SEES = tables()


def cells(table, columns):
    assert list(table) == list(MODULES) and all(set(row.values()) <= {"yes", "-"} for row in table.values())
    return [(name, column, row[column] == "yes") for name, row in table.items() for column in columns]


def make(name, spaces, **settings):
    torch.manual_seed(0)
    algorithm = find_algorithm(name)
    return algorithm(spaces, algorithm.Config(hidden_sizes=[8], **settings))


def actions_of(algorithm, obs, count):
    """What its policy does greedily, while exploring, and at random."""
    policy = algorithm.policy
    noise = policy.noise(1, count, torch.Generator().manual_seed(0), 0, count)[0]
    with torch.no_grad():
        found = [policy.act(obs).action, policy.act(obs, noise).action, policy.random(obs, noise)]
    return [policy.env_action(action.numpy()) for action in found]


@pytest.mark.parametrize("name, kind, takes", cells(ACTS, ACTIONS))
def test_each_kind_of_action_is_taken_or_refused_by_name(name, kind, takes):
    spaces = Spaces(BOX, ACTIONS[kind])
    if not takes:
        with pytest.raises(UsageError) as caught:
            make(name, spaces)
        assert describe(spaces.action) in str(caught.value) and "\n" not in str(caught.value)
        return
    for found in actions_of(make(name, spaces), torch.randn(20, 3), 20):
        assert all(spaces.action.contains(a) for a in found)


@pytest.mark.parametrize("name, _, takes", cells(ACTS, ["action masks"]))
def test_masks_are_kept_to(name, _, takes):
    masked = [kind for kind in ("Discrete", "MultiDiscrete") if ACTS[name][kind] == "yes"]
    assert bool(masked) == takes
    for kind in masked:
        size = 3 if kind == "Discrete" else 5
        spaces = Spaces(gym.spaces.Dict({"obs": BOX, MASK: gym.spaces.MultiBinary(size)}), ACTIONS[kind])
        allowed = torch.tensor([1, 0, 1, 1, 0][:size], dtype=torch.int8)
        obs = {"obs": torch.randn(200, 3), MASK: allowed.expand(200, size)}
        for found in actions_of(make(name, spaces), obs, 200):
            shown = set(map(tuple, found.reshape(200, -1).tolist()))
            assert shown <= ({(-1,), (1,)} if kind == "Discrete" else {(0, 0), (0, 1)})


@pytest.mark.parametrize("name, _, takes", cells(ACTS, ["`--use_lstm`"]))
def test_who_remembers(name, _, takes):
    kind = next(kind for kind in ACTIONS if ACTS[name][kind] == "yes")
    if takes:
        algorithm = make(name, Spaces(BOX, ACTIONS[kind]), use_lstm=True)
        assert algorithm.policy.remembers and algorithm.plan.sequence == 20
    else:
        with pytest.raises(TypeError, match="use_lstm"):
            make(name, Spaces(BOX, ACTIONS[kind]), use_lstm=True)


@pytest.mark.parametrize("name, kind, sees", cells(SEES, OBSERVATIONS))
def test_each_kind_of_observation_is_seen(name, kind, sees):
    assert sees and list(SEES[name]) == list(OBSERVATIONS)
    space = OBSERVATIONS[kind]
    action = ACTIONS["Discrete" if ACTS[name]["Discrete"] == "yes" else "Box"]
    space.seed(0)
    shown = [cast_observation(space, space.sample())[0] for _ in range(3)]
    obs = tree_map(lambda *x: torch.from_numpy(np.concatenate(x)), *shown)
    algorithm = make(name, Spaces(space, action))
    for found in actions_of(algorithm, obs, 3):
        assert all(action.contains(a) for a in found)


def test_its_sections_are_what_the_code_says():
    written = algorithms_page.PAGE.read_text("utf-8").split(algorithms_page.MARK)[1]
    assert written.strip() == algorithms_page.generated().strip(), "run python scripts/algorithms_page.py"
    for name in MODULES:
        assert "Differences from the paper" in algorithms_page.about(name), "says where it differs from its paper"


@pytest.mark.parametrize("name", MODULES)
def test_hidden_layers_are_as_wide_as_they_are_told_and_followed_by_the_activation(name):
    kind = next(kind for kind in ACTIONS if ACTS[name][kind] == "yes")
    algorithm = find_algorithm(name)
    made = algorithm(Spaces(BOX, ACTIONS[kind]), algorithm.Config(hidden_sizes=[13, 7], activation="elu"))
    networks = {"actor": made.policy.actor, "critic": made.policy.critic}
    for network in [network for network in networks.values() if network is not None]:
        widths = [tuple(p.shape) for p in network.parameters() if p.ndim >= 2]
        assert any(shape[-2] == 13 for shape in widths) and any(shape[-2:] == (7, 13) for shape in widths)
        assert sum(isinstance(m, torch.nn.ELU) for m in network.modules()) == 2
    with pytest.raises(UsageError, match="--activation sine is unknown; known: relu, tanh"):
        algorithm(Spaces(BOX, ACTIONS[kind]), algorithm.Config(activation="sine"))
