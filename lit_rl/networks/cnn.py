"""The convolutional network of the Atari papers."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn
from torch.nn import functional

# below this side the three convolutions leave no pixel
MIN_SIDE = 36


class NatureCNN(nn.Module):
    """Images of one layout -> 512 features (Mnih et al. 2015, doi:10.1038/nature14236): (B, *shape) -> (B, 512).

    `shape` has exactly two sides >= 36, next to each other; all other axes (colours, stacked frames, on either side)
    become channels: (H, W), (H, W, C), (C, H, W), (K, H, W, C) all work. Pixels are divided by `scale`.
    """

    features = 512

    def __init__(self, shape: tuple[int, ...], scale: float = 255.0) -> None:
        super().__init__()
        rows, columns = sides(shape)
        others = [axis for axis in range(len(shape)) if axis not in (rows, columns)]
        self.scale = scale
        self.order = [0, *(axis + 1 for axis in (*others, rows, columns))]
        self.image_shape = (math.prod(shape[axis] for axis in others), shape[rows], shape[columns])
        height, width = (conv_size(conv_size(conv_size(n, 8, 4), 4, 2), 3, 1) for n in self.image_shape[1:])
        self.layers = nn.Sequential(
            nn.Conv2d(self.image_shape[0], 32, kernel_size=8, stride=4),
            nn.ReLU(),
            nn.Conv2d(32, 64, kernel_size=4, stride=2),
            nn.ReLU(),
            nn.Conv2d(64, 64, kernel_size=3, stride=1),
            nn.ReLU(),
            nn.Flatten(),
            nn.Linear(64 * height * width, self.features),
            nn.ReLU(),
        )

    def forward(self, image: Tensor, dtype: torch.dtype) -> Tensor:
        pixels = image.permute(self.order).reshape(image.shape[0], *self.image_shape)
        # Channels last: on a CPU the gradient of 256 images takes 0.8 of the time. The first layer's weights are divided in
        # place of the pixels, of which there are many more.
        pixels = pixels.to(dtype, memory_format=torch.channels_last)
        first, *others = self.layers
        assert isinstance(first, nn.Conv2d)
        features = functional.conv2d(pixels, first.weight / self.scale, first.bias, first.stride)
        for layer in others:
            features = layer(features)
        return features


def sides(shape: tuple[int, ...]) -> tuple[int, ...]:
    """The axes of `shape` that are an image's height and width; () where it is no image that NatureCNN can see."""
    long = tuple(axis for axis, n in enumerate(shape) if n >= MIN_SIDE)
    return long if len(long) == 2 and long[1] == long[0] + 1 else ()


def conv_size(size: int, kernel: int, stride: int) -> int:
    """The side of a convolution's output without padding."""
    return (size - kernel) // stride + 1
