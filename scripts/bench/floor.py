"""What no trainer can go below on this machine: the environment alone, and the products of the networks alone.

``python -m bench.floor W1 OUT.json`` prints µs per env step of the bare environment, and µs per update of the matrix products
and one fused Adam step over all weights, with every result written into memory that is there already; the fastest of 1
and 2 threads and of torch's two precisions of products in float32.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from itertools import product
from typing import Any

import numpy as np
import torch
from torch import Tensor

from bench.workloads import PONG, WORKLOADS, Workload


def fastest(run: Callable[[], Any], seconds: float = 0.5, calls: int = 10) -> float:
    """µs of the fastest of many measurements of a few calls each: the one that the machine disturbed least."""
    run()
    best, end = float("inf"), time.perf_counter() + seconds
    while time.perf_counter() < end:
        began = time.perf_counter()
        for _ in range(calls):
            run()
        best = min(best, time.perf_counter() - began)
    return 1e6 * best / calls


def bare_env(env_id: str, num_envs: int) -> Callable[[], None]:
    """One step of each of the environments, made as Gymnasium makes them, with random actions; games in C++ threads."""
    import gymnasium as gym

    if env_id == PONG:
        from ale_py.vector_env import AtariVectorEnv

        games = AtariVectorEnv("pong", num_envs, stack_num=1)
        games.reset()
        noop = np.zeros(num_envs, np.int64)
        return lambda: games.step(noop) and None

    envs = [gym.make(env_id, disable_env_checker=True) for _ in range(num_envs)]
    for i, env in enumerate(envs):
        env.reset(seed=i)
        env.action_space.seed(i)
    actions = [envs[0].action_space.sample() for _ in range(64)]
    at = 0

    def step() -> None:
        nonlocal at
        for env in envs:
            at = (at + 1) % 64
            _, _, terminated, truncated, _ = env.step(actions[at])
            if terminated or truncated:
                env.reset()

    return step


def bare_update(workload: Workload) -> Callable[[], None]:
    """The products of an update, and one Adam step over all weights that learn."""
    if not workload.nets:
        return bare_convolutions(workload.batch)
    runs: list[Callable[[], Any]] = []
    learned = 0
    for how, layers in workload.nets:
        runs += products(how, layers, workload.batch)
        learned += sum((i + 1) * o for i, o in layers) if how == "learn" else 0
    weights, gradient, first, second = (torch.zeros(learned) for _ in range(4))
    step = torch.ones(())
    adam = {"lr": 1e-3, "beta1": 0.9, "beta2": 0.999, "weight_decay": 0.0, "eps": 1e-8}

    @torch.no_grad()
    def update() -> None:
        for run in runs:
            run()
        torch._fused_adam_([weights], [gradient], [first], [second], [], [step], amsgrad=False, maximize=False, **adam)

    return update


def bare_convolutions(batch: int) -> Callable[[], None]:
    """The network of the Atari papers forwards and backwards, channels last."""
    convolutions = [torch.nn.Conv2d(4, 32, 8, 4), torch.nn.Conv2d(32, 64, 4, 2), torch.nn.Conv2d(64, 64, 3, 1)]
    net = torch.nn.Sequential(*convolutions, torch.nn.Flatten(), torch.nn.Linear(3136, 512), torch.nn.Linear(512, 7))
    pixels = torch.randn(batch, 4, 84, 84).to(memory_format=torch.channels_last)
    weights = list(net.to(memory_format=torch.channels_last).parameters())

    def update() -> None:
        torch.autograd.grad(net(pixels).sum(), weights)

    return update


def products(how: str, layers: list[tuple[int, int]], batch: int) -> list[Callable[[], Tensor]]:
    """The matrix products of one network."""
    runs: list[Callable[[], Tensor]] = []
    for number, (inputs, outputs) in enumerate(layers):
        x, weight, y = torch.randn(batch, inputs), torch.randn(inputs, outputs), torch.empty(batch, outputs)
        runs.append(lambda x=x, weight=weight, y=y: torch.mm(x, weight, out=y))
        if how == "learn":
            dw = torch.empty(inputs, outputs)
            runs.append(lambda x=x, y=y, dw=dw: torch.mm(x.t(), y, out=dw))
        if how == "through" or (how == "learn" and number > 0):
            dx = torch.empty(batch, inputs)
            runs.append(lambda y=y, weight=weight, dx=dx: torch.mm(y, weight.t(), out=dx))
    return runs


def bare_acting(sizes: list[int], rows: int) -> Callable[[], np.ndarray]:
    """A forward pass of a tanh network for ``rows`` observations, in numpy or in torch, whichever is faster."""
    rng = np.random.default_rng(0)
    x = rng.standard_normal((rows, sizes[0]), dtype=np.float32)
    weights = [rng.standard_normal(pair, dtype=np.float32) / 8 for pair in zip(sizes, sizes[1:], strict=False)]
    biases = [np.zeros(size, np.float32) for size in sizes[1:]]
    tensors = [(torch.from_numpy(w), torch.from_numpy(b)) for w, b in zip(weights, biases, strict=True)]
    seen = torch.from_numpy(x)

    def in_numpy() -> np.ndarray:
        y = x
        for w, b in zip(weights[:-1], biases[:-1], strict=True):
            y = y @ w
            y += b
            np.tanh(y, out=y)
        return y @ weights[-1] + biases[-1]

    @torch.no_grad()
    def in_torch() -> np.ndarray:
        y = seen
        for w, b in tensors[:-1]:
            y = torch.addmm(b, y, w).tanh_()
        return torch.addmm(tensors[-1][1], y, tensors[-1][0]).numpy()

    return min((in_numpy, in_torch), key=lambda run: fastest(run, 0.2))


def main() -> None:
    workload = WORKLOADS[sys.argv[1]]
    torch.set_flush_denormal(True)
    update, maths = bare_update(workload), float("inf")
    for threads, precision in product((1, 2), ("highest", "medium")):
        torch.set_num_threads(threads)
        torch.set_float32_matmul_precision(precision)
        maths = min(maths, fastest(update, calls=10 if workload.nets else 1))
    torch.set_num_threads(1)
    env = fastest(bare_env(workload.env, workload.num_envs), 1.0, 100) / workload.num_envs
    with open(sys.argv[2], "w") as file:
        json.dump({"env": env, "update": maths}, file)


if __name__ == "__main__":
    main()
