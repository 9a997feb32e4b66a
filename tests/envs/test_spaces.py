from __future__ import annotations

import io

import gymnasium as gym
import numpy as np
import pytest
import torch
from gymnasium.spaces import Box, Dict, Discrete, MultiBinary, MultiDiscrete, Tuple

from lit_rl.envs.spaces import Spaces, Stored, check_observation, describe, storage
from lit_rl.errors import UsageError

ALL = [
    Box(-np.inf, np.inf, (4,), np.float64),
    Box(np.array([-1.0, -np.inf], np.float32), np.array([2.0, 3.0], np.float32)),
    Box(0, 255, (8, 8, 3), np.uint8),
    Box(np.array([-3, 2**60]), np.array([4, 2**60 + 1]), (2,), np.int64),
    Box(-1, 1, (), np.float32),
    Discrete(5),
    Discrete(3, start=-1),
    MultiDiscrete([2, 3]),
    MultiDiscrete([2, 3], start=[1, 2]),
    MultiDiscrete([[2, 3], [4, 5]]),
    MultiBinary(4),
    MultiBinary([2, 3]),
    Dict({"b": Discrete(2), "a": Tuple([MultiBinary(2), Box(0, 1, (2,))])}),
]


@pytest.mark.parametrize("space", ALL, ids=describe)
def test_spaces_come_back_from_a_file_that_holds_only_plain_data(space):
    file = io.BytesIO()
    torch.save(Spaces(space, Discrete(2)).to_plain(), file)
    file.seek(0)
    again = Spaces.from_plain(torch.load(file, weights_only=True))
    assert again == Spaces(space, Discrete(2))
    assert again.observation.dtype == space.dtype
    assert storage(again.observation) == storage(space)


def test_the_order_of_a_dict_survives():
    space = Dict([("z", Discrete(2)), ("a", Discrete(3))])
    assert list(Spaces.from_plain(Spaces(space, space).to_plain()).observation.spaces) == ["z", "a"]


def test_bounds_of_images_do_not_fill_the_checkpoint():
    assert Spaces(ALL[2], ALL[2]).to_plain()["observation"]["high"] == 255


@pytest.mark.parametrize("plain", [{}, {"observation": {"type": "Text"}, "action": {}}, None, {"observation": 3}])
def test_what_is_no_description_of_spaces_is_refused(plain):
    with pytest.raises(UsageError, match="no description of spaces"):
        Spaces.from_plain(plain)


@pytest.mark.parametrize(
    ("space", "kept"),
    [
        (Box(-1, 1, (3,), np.float64), ((3,), np.float32)),
        (Box(-1, 1, (3,), np.float16), ((3,), np.float32)),
        (Box(-1, 1, (), np.float32), ((), np.float32)),
        (Box(0, 255, (2, 2), np.uint8), ((2, 2), np.uint8)),
        (Box(0, 9, (2,), np.int32), ((2,), np.int64)),
        (Discrete(3, start=5), ((), np.int64)),
        (MultiDiscrete([2, 3]), ((2,), np.int64)),
        (MultiBinary(4), ((4,), np.uint8)),
    ],
)
def test_how_observations_are_kept(space, kept):
    assert storage(space) == Stored(kept[0], np.dtype(kept[1]))
    assert storage(Dict({"a": space, "b": Tuple([space])})) == {"a": storage(space), "b": (storage(space),)}


def test_spaces_that_nothing_can_keep_are_named():
    for space in (gym.spaces.Text(3), gym.spaces.Sequence(Discrete(2)), gym.spaces.Graph(Discrete(2), None)):
        for fails in (storage, lambda s: Spaces(s, s).to_plain()):
            with pytest.raises(UsageError, match=f"{type(space).__name__} spaces are not supported; use Box"):
                fails(Dict({"a": space}) if fails is storage else space)


def test_descriptions_are_short():
    assert describe(Box(-1, 1, (4,))) == "Box(4,) float32"
    assert describe(Discrete(3, start=1)) == "Discrete(3, start=1)"
    assert describe(Dict({"a": Discrete(2)})) == "Dict(a: Discrete(2))"


def test_samples_pass_the_check_of_observations():
    for space in ALL:
        check_observation(space, space.sample())
    check_observation(Box(-1, 1, (2,)), [0, 1])


@pytest.mark.parametrize(
    ("space", "observation"),
    [
        (Box(-1, 1, (2,)), np.zeros(3)),
        (Box(-1, 1, (2,)), np.zeros((1, 2))),
        (Box(-1, 1, (2,)), None),
        (Discrete(3), 0.5),
        (Dict({"a": Discrete(3)}), {"b": 1}),
        (Dict({"a": Discrete(3)}), 1),
        (Tuple([Discrete(3)]), (1, 2)),
    ],
)
def test_observations_that_contradict_their_space_are_named(space, observation):
    with pytest.raises(UsageError, match="but observation_space is"):
        check_observation(space, observation)
