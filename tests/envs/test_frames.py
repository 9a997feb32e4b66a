from __future__ import annotations

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.wrappers import FrameStackObservation
from recorded_env import Recorded

from lit_rl.envs.frames import StackFrames, frame_space, stack_spaces
from lit_rl.envs.spaces import Spaces
from lit_rl.errors import UsageError

BOX = gym.spaces.Box(np.array([-1.0, -np.inf], np.float32), np.array([2.0, 5.0], np.float32))
IMAGE = gym.spaces.Box(0, 255, (5, 4), np.uint8)
MASK = gym.spaces.Box(0, 1, (2,), np.int8)
ACTION = gym.spaces.Discrete(2)
NESTED = gym.spaces.Dict({"a": gym.spaces.Tuple((IMAGE, gym.spaces.Discrete(3))), "action_mask": MASK})


@pytest.mark.parametrize("depth", [1, 2, 4])
def test_stacks_are_those_of_gymnasium(depth):
    ours, theirs = StackFrames(Recorded(), depth), FrameStackObservation(Recorded(), depth)
    seen = [env.reset(seed=3)[0] for env in (ours, theirs)]
    for step in range(30):
        if depth > 1:
            assert np.array_equal(*seen) and seen[0].dtype == seen[1].dtype
            assert ours.observation_space == theirs.observation_space
        else:  # one frame is no stack
            assert seen[0].tolist() == seen[1][0].tolist() and ours.observation_space == Recorded.observation_space
        after = [env.step(0) for env in (ours, theirs)]
        ended = after[0][2] or after[0][3]
        seen = [env.reset()[0] for env in (ours, theirs)] if ended else [step[0] for step in after]


@pytest.mark.parametrize("space", [BOX, IMAGE, NESTED], ids=["flat", "image", "nested"])
def test_the_space_of_a_frame_can_be_told_from_that_of_stacks_and_travels_in_a_checkpoint(space):
    spaces = stack_spaces(Spaces(space, ACTION), 3)
    assert spaces.observation != space and frame_space(spaces) == space
    assert Spaces.from_plain(spaces.to_plain()) == spaces


def test_boxes_are_stacked_and_masks_and_numbers_are_not():
    stacked = stack_spaces(Spaces(NESTED, ACTION), 3).observation
    image, number = stacked["a"]
    assert image.shape == (3, 5, 4) and number == gym.spaces.Discrete(3) and stacked["action_mask"] == MASK
    flat = stack_spaces(Spaces(BOX, ACTION), 3).observation
    assert flat.high.tolist() == [[2.0, 5.0]] * 3


@pytest.mark.parametrize("space", [gym.spaces.Discrete(4), gym.spaces.Dict({"action_mask": MASK})])
def test_what_has_no_box_cannot_be_stacked(space):
    with pytest.raises(UsageError, match=r"--frame_stack 2 needs observations with a Box, not (Discrete|Dict)"):
        stack_spaces(Spaces(space, ACTION), 2)
