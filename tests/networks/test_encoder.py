import numpy as np
import pytest
import torch
from gymnasium import spaces
from torch.fx.experimental.proxy_tensor import make_fx

from lit_rl.errors import UsageError
from lit_rl.functional.tree import tree_leaves, tree_map
from lit_rl.networks.cnn import NatureCNN
from lit_rl.networks.encoder import Encoder

MIXED = spaces.Dict(
    {
        "action_mask": spaces.MultiBinary(5),
        "card": spaces.Discrete(3, start=-1),
        "hand": spaces.Tuple((spaces.MultiDiscrete([2, 3], start=[0, 10]), spaces.MultiBinary(2))),
        "speed": spaces.Box(-1, 1, (1,)),
    }
)


def mixed_obs():
    return {
        "action_mask": torch.ones(2, 5, dtype=torch.uint8),
        "card": torch.tensor([-1, 1]),
        "hand": (torch.tensor([[1, 12], [0, 10]]), torch.tensor([[0, 1], [1, 1]], dtype=torch.uint8)),
        "speed": torch.tensor([[0.5], [-0.5]]),
    }


def test_a_flat_float_observation_passes_untouched():
    obs = torch.randn(3, 4)
    assert Encoder(spaces.Box(-np.inf, np.inf, (4,)))(obs) is obs
    obs = {"obs": torch.randn(3, 4), "action_mask": torch.ones(3, 2)}
    masked = spaces.Dict({"obs": spaces.Box(-1, 1, (4,)), "action_mask": spaces.MultiBinary(2)})
    assert Encoder(masked)(obs) is obs["obs"]


@pytest.mark.parametrize(
    ("space", "obs", "code"),
    [
        (spaces.Box(-1, 1, (2, 2)), torch.tensor([[[1.0, 2.0], [3.0, 4.0]]]), [1, 2, 3, 4]),
        (spaces.Box(-1, 1, ()), torch.tensor([0.5]), [0.5]),
        (spaces.Box(0, 9, (2,), np.int64), torch.tensor([[7, 8]]), [7, 8]),
        (spaces.Box(0, 255, (2,), np.uint8), torch.tensor([[0, 255]], dtype=torch.uint8), [0, 1]),
        (spaces.Box(0, 4, (1, 2), np.uint8), torch.tensor([[[1, 4]]], dtype=torch.uint8), [0.25, 1]),
        (spaces.Discrete(3), torch.tensor([2]), [0, 0, 1]),
        (spaces.Discrete(3, start=2), torch.tensor([2]), [1, 0, 0]),
        (spaces.MultiDiscrete([2, 3]), torch.tensor([[1, 0]]), [0, 1, 1, 0, 0]),
        (spaces.MultiDiscrete([[2], [2]]), torch.tensor([[[1], [0]]]), [0, 1, 1, 0]),
        (spaces.MultiBinary((2, 2)), torch.tensor([[[1, 0], [0, 1]]], dtype=torch.uint8), [1, 0, 0, 1]),
    ],
    ids=str,
)
def test_every_space_has_its_code(space, obs, code):
    encoder = Encoder(space)
    encoded = encoder(obs)
    assert encoded.tolist() == [code]
    assert encoded.dtype == torch.float32
    assert encoder.features == len(code)


def test_nested_parts_are_concatenated_without_the_action_mask():
    encoder = Encoder(MIXED)
    assert encoder.features == 3 + 5 + 2 + 1
    assert encoder(mixed_obs()).tolist() == [
        [1, 0, 0] + [0, 1, 0, 0, 1] + [0, 1] + [0.5],
        [0, 0, 1] + [1, 0, 1, 0, 0] + [1, 1] + [-0.5],
    ]


def test_the_order_of_the_keys_in_an_observation_does_not_matter():
    obs = mixed_obs()
    assert torch.equal(Encoder(MIXED)(dict(reversed(obs.items()))), Encoder(MIXED)(obs))


def test_the_code_is_in_the_modules_precision():
    encoder = Encoder(MIXED).double()
    assert encoder(mixed_obs()).dtype == torch.float64
    assert Encoder(spaces.Box(-1, 1, (4,))).double()(torch.randn(3, 4)).dtype == torch.float64
    assert Encoder(spaces.Box(0, 255, (36, 36), np.uint8)).double()(torch.zeros(1, 36, 36)).dtype == torch.float64


def test_encoders_without_weights_put_nothing_into_checkpoints():
    assert Encoder(MIXED).state_dict() == {}


def test_an_average_of_all_parameters_and_buffers_encodes_alike():
    first, second = Encoder(MIXED), Encoder(MIXED)
    with torch.no_grad():
        for mine, other in zip(first.buffers(), second.buffers(), strict=True):
            mine.lerp_(other, 0.005)
    assert torch.equal(first(mixed_obs()), second(mixed_obs()))


@pytest.mark.parametrize(
    "shape", [(40, 48), (40, 48, 1), (1, 40, 48), (40, 48, 3), (4, 40, 48), (4, 40, 48, 3), (12, 40, 48)], ids=str
)
def test_images_of_every_layout_go_through_the_cnn(shape):
    encoder = Encoder(spaces.Box(0, 255, shape, np.uint8))
    assert isinstance(encoder.parts[0], NatureCNN)
    obs = torch.randint(0, 256, (2, *shape), dtype=torch.uint8)
    assert encoder(obs).shape == (2, 512)
    assert encoder.features == 512


def test_the_layout_of_an_image_is_only_a_layout():
    last, first = (Encoder(spaces.Box(0, 255, shape, np.uint8)) for shape in ((40, 48, 3), (3, 40, 48)))
    first.load_state_dict(last.state_dict())
    image = torch.randint(0, 256, (2, 40, 48, 3), dtype=torch.uint8)
    torch.testing.assert_close(first(image.permute(0, 3, 1, 2).contiguous()), last(image))


@pytest.mark.parametrize(("shape", "order"), [((40, 48, 3), (0, 3, 1, 2)), ((2, 40, 48, 3), (0, 1, 4, 2, 3))])
def test_pixels_reach_the_first_convolution_in_place_and_between_0_and_1(shape, order):
    encoder = Encoder(spaces.Box(0, 255, shape, np.uint8))
    seen = []
    first, relu = encoder.parts[0].layers[:2]
    relu.register_forward_pre_hook(lambda _, inputs: seen.append(inputs[0]))
    image = torch.randint(0, 256, (2, *shape), dtype=torch.uint8)
    encoder(image)
    torch.testing.assert_close(seen[0], first(image.permute(order).reshape(2, -1, 40, 48) / 255))


def test_the_cnn_is_that_of_the_paper():
    layers = Encoder(spaces.Box(0, 255, (4, 84, 84), np.uint8)).parts[0].layers
    kinds = [torch.nn.Conv2d, torch.nn.ReLU] * 3 + [torch.nn.Flatten, torch.nn.Linear, torch.nn.ReLU]
    assert [type(layer) for layer in layers] == kinds
    convolutions = [layers[i] for i in (0, 2, 4)]
    assert [(c.in_channels, c.out_channels, c.kernel_size[0], c.stride[0]) for c in convolutions] == [
        (4, 32, 8, 4),
        (32, 64, 4, 2),
        (64, 64, 3, 1),
    ]
    assert (layers[7].in_features, layers[7].out_features) == (64 * 7 * 7, 512)
    assert sum(p.numel() for p in layers.parameters()) == 1_684_128


@pytest.mark.parametrize("shape", [(7, 7, 3), (35, 40, 3), (128,), (64, 40, 48), (40, 3, 48)], ids=str)
def test_bytes_that_are_no_image_are_flattened(shape):
    encoder = Encoder(spaces.Box(0, 255, shape, np.uint8))
    assert encoder.features == np.prod(shape)
    assert encoder(torch.full((1, *shape), 255, dtype=torch.uint8)).unique().tolist() == [1.0]


def test_an_encoder_is_captured_once_and_holds_for_other_observations():
    space = spaces.Dict({"mixed": MIXED, "image": spaces.Box(0, 255, (36, 36, 3), np.uint8)})
    encoder = Encoder(space)

    def obs(shift):
        image = torch.full((2, 36, 36, 3), 50 * shift, dtype=torch.uint8)
        return {"mixed": tree_map(lambda x: x.roll(shift, 0), mixed_obs()), "image": image}

    with torch.no_grad():
        graph = make_fx(lambda *leaves: encoder(_like(obs(0), leaves)))(*tree_leaves(obs(0)))
        torch.testing.assert_close(graph(*tree_leaves(obs(1))), encoder(obs(1)))


def _like(tree, leaves):
    remaining = iter(leaves)
    return tree_map(lambda _: next(remaining), tree)


@pytest.mark.parametrize("space", [spaces.Text(5), spaces.Tuple((spaces.Sequence(spaces.Discrete(2)),))], ids=str)
def test_other_spaces_are_refused_by_name(space):
    with pytest.raises(UsageError, match=r"(Text|Sequence) cannot be encoded; known: Box, "):
        Encoder(space)


@pytest.mark.parametrize("space", [spaces.Dict({"action_mask": spaces.MultiBinary(2)}), spaces.Box(-1, 1, (0,))])
def test_a_space_with_nothing_to_see_is_refused(space):
    with pytest.raises(UsageError, match="nothing that a policy could see"):
        Encoder(space)
