"""Native updates: the same as eager within 1e-5, and eager with one line wherever they cannot be."""

from __future__ import annotations

import math
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch
from torch import nn

from lit_rl.algorithms.base import Loss
from lit_rl.optimize import Compile, GradientStep, NativeGradient
from lit_rl.optimize.native.builder import reason
from lit_rl.optimize.native.cache import Cache
from lit_rl.optimize.native.capture import Uncapturable, capture
from lit_rl.optimize.native.passes import rewrite


@pytest.fixture(scope="module", autouse=True)
def compiling(tmp_path_factory: pytest.TempPathFactory):
    """A cache folder for these tests alone, and auto as users have it."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.mktemp("libraries")))
        patch.delenv("TORCH_COMPILE_DISABLE")
        yield


class Net(nn.Module):
    """A loss that can be captured, and some that cannot."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.linear, self.lstm = nn.Linear(3, 2), nn.LSTM(2, 2)
        self.register_buffer("mean", torch.ones(2))
        self.scale = 1.0

    def loss(self, x, weight):
        out = torch.tanh(self.linear(x)) - self.mean
        value = self.scale * weight * out.square().mean()
        return Loss(value, {"loss": value, "weight": weight}, (out.sum(1), {"kept": 1}))

    def draws(self, x):
        return Loss((self.linear(x) * torch.randn(2)).sum(), {})

    def looks(self, x):
        return Loss(self.linear(x).sum() * (2 if x.sum() > 0 else 1), {})

    def counts(self, x):
        self.mean.add_(1.0)
        return Loss((self.linear(x) - self.mean).sum(), {})

    def recurs(self, x):
        return Loss(self.lstm(self.linear(x))[0].sum(), {})

    def times(self, x, weight: float):
        return Loss(self.linear(x).sum() * weight, {})


def step(net: Net, compile: Compile, steady: bool = False) -> GradientStep:
    optimize = GradientStep({"net": list(net.linear.parameters())}, settings={"lr": 0.01})
    optimize.gradient = NativeGradient(compile, steady)
    return optimize


def paths(optimize: GradientStep) -> list[str]:
    (history,) = optimize.gradient.history().values() or [[]]
    return [entry["path"] for entry in history]


def batch(rows: int = 8) -> tuple[torch.Tensor, torch.Tensor]:
    return torch.randn(rows, 3), torch.tensor(2.0)


def assert_agree(one: nn.Module, other: nn.Module) -> None:
    for name, x in one.state_dict().items():
        torch.testing.assert_close(x, other.state_dict()[name], rtol=0, atol=1e-5, msg=lambda m, n=name: f"{n}: {m}")


@pytest.fixture(scope="module")
def built(compiling: None) -> Path:
    """The folder with the library of ``Net.loss`` for 8 rows, which was built beside a run."""
    torch.set_num_threads(1)
    net = Net()
    optimize = step(net, "auto")
    updates = 0
    optimize.gradient.count = lambda: updates
    began = time.monotonic()
    while paths(optimize)[-1:] != ["native"]:
        assert time.monotonic() - began < 240, optimize.gradient.paths
        optimize("net", net.loss, *batch())
        updates += 1
        optimize.gradient.poll(seconds_left=math.inf if updates > 1 else 1.0)
        time.sleep(0.1)
    (history,) = optimize.gradient.history().values()
    assert history == [{"from_update": 0, "path": "eager"}, {"from_update": updates, "path": "native"}]
    optimize.gradient.poll(math.inf)
    (library,) = Cache().folder.iterdir()
    assert library.suffix == ".pt2" and library.stat().st_mode & 0o077 == 0
    return library.parent


def test_native_and_eager_agree(built):
    one, other = Net(), Net()
    optimize, eagerly = step(one, "auto"), step(other, False)
    for update in range(100):
        x, weight = torch.randn(8, 3), torch.tensor(1.0 + update)  # the value of a schedule is never baked in
        found, expected = (s("net", n.loss, x, weight) for s, n in ((optimize, one), (eagerly, other)))
        assert found[0].keys() == expected[0].keys() and found[1][1] == {"kept": 1}
        torch.testing.assert_close([*found[0].values(), found[1][0]], [*expected[0].values(), expected[1][0]])
        if update == 50:  # what a loss reads is read where it lies
            one.mean.fill_(3.0)
            other.mean.fill_(3.0)
    assert_agree(one, other)
    assert paths(optimize) == ["native"]  # from the first update on, as it was built before


def test_the_same_tensors_with_other_numbers_are_read_anew(built):
    one, other = Net(), Net()
    optimize, eagerly = step(one, "auto"), step(other, False)
    x, weight = batch()
    for update in range(6):
        x.normal_()
        weight.fill_(update)
        if update == 4:
            optimize.gradient.check_again()
        found, expected = (s("net", n.loss, x, weight) for s, n in ((optimize, one), (eagerly, other)))
        torch.testing.assert_close([*found[0].values(), found[1][0]], [*expected[0].values(), expected[1][0]])
    x, weight = torch.randn(3, 8).t(), torch.tensor(2.0)  # not contiguous: its copy must not be taken for it
    for _ in range(3):
        x.normal_()
        found, expected = (s("net", n.loss, x, weight) for s, n in ((optimize, one), (eagerly, other)))
        torch.testing.assert_close(found[1][0], expected[1][0])
    assert_agree(one, other)
    assert paths(optimize) == ["native"]


def test_minibatches_of_other_shapes_types_and_strides_are_computed_right(built):
    one, other = Net(), Net()
    optimize, eagerly = step(one, "auto"), step(other, False)
    for x in (torch.randn(8, 3), torch.randn(5, 3), torch.randn(3, 8).T, torch.randn(16, 3)[::2]):
        optimize("net", one.loss, x, torch.tensor(2.0))
        eagerly("net", other.loss, x, torch.tensor(2.0))
    assert_agree(one, other)
    assert optimize.gradient.state()["net"] and not optimize.gradient.state()["net 2"]


def test_a_loss_that_reads_a_number_that_changed_goes_eager_and_says_so(built):
    one, other = Net(), Net()
    optimize, eagerly = step(one, "auto"), step(other, False)
    for scale in (1.0, 3.0, 3.0, 3.0):
        one.scale = other.scale = scale
        x, weight = batch()
        if scale == 3.0:
            optimize.gradient.check_again()  # as at the beginning of an epoch
        optimize("net", one.loss, x, weight)
        eagerly("net", other.loss, x, weight)
    assert_agree(one, other)
    assert paths(optimize) == ["eager"]
    (entry,) = optimize.gradient.history()["net"]
    assert "native and eager gradients differ" in entry["why"]


def test_a_damaged_library_is_built_again_or_done_without(built, monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    folder = Cache().folder
    for file in built.glob("*.pt2"):
        (folder / file.name).write_bytes(file.read_bytes()[:-1000])
    net = Net()
    optimize = step(net, "auto")
    optimize("net", net.loss, *batch())
    assert paths(optimize) == ["eager"] and not list(folder.iterdir())


def test_torchs_own_switch_turns_auto_off(built, monkeypatch):
    monkeypatch.setenv("TORCH_COMPILE_DISABLE", "1")
    net = Net()
    optimize = step(net, "auto")
    optimize("net", net.loss, *batch())
    assert paths(optimize) == ["eager"]


def test_a_steady_run_changes_nothing_midway(built):
    net = Net()
    optimize = step(net, "auto", steady=True)
    optimize("net", net.loss, *batch())
    assert optimize.gradient.history()["all"][0]["path"] == "eager"  # whatever the cache holds
    optimize = step(net, True, steady=True)
    optimize("net", net.loss, *batch())
    assert paths(optimize) == ["native"]


def test_a_steady_run_goes_on_by_the_path_it_took(built):
    net = Net()
    first = step(net, True, steady=True)
    first("net", net.loss, *batch())
    again = step(net, True, steady=True)
    again.gradient.go_on({"net": ""})
    again("net", net.loss, *batch())
    assert paths(again) == ["eager"]
    again = step(net, True, steady=True)
    again.gradient.go_on(first.gradient.state())
    again("net", net.loss, *batch())
    assert paths(again) == ["native"]
    with pytest.warns(match="were native before: this run ends with other last bits"):
        step(net, False, steady=True).gradient.go_on(first.gradient.state())
    again = step(net, True, steady=True)
    again.gradient.go_on({"net": "another"})
    with pytest.warns(match="other native code than before"):
        again("net", net.loss, *batch())


@pytest.mark.parametrize(
    "name, why",
    [
        ("draws", "it draws random numbers"),
        ("looks", "value"),
        ("counts", "it changes a tensor"),
        ("recurs", "mkldnn_rnn_layer.default, a fused kernel"),
    ],
)
def test_a_loss_that_is_not_pure_stays_eager_and_says_so_once(name, why):
    net = Net()
    with pytest.raises(Uncapturable, match=why):
        capture(getattr(net, name), list(net.linear.parameters()), (torch.ones(8, 3),))
    optimize = step(net, True)
    with pytest.warns(match="updates of net stay eager: ") as said:
        for _ in range(3):
            optimize("net", getattr(net, name), torch.ones(8, 3))
    assert len(said) == 1 and "\n" not in str(said[0].message) and paths(optimize) == ["eager"]


@pytest.mark.parametrize("closure", [True, False])
def test_a_loss_that_is_given_what_would_be_baked_in_stays_eager(closure):
    one, other = Net(), Net()
    optimize, eagerly = step(one, True), step(other, False)
    what = "its loss is no method" if closure else "its loss is given something else than tensors"
    with pytest.warns(match=what) as said:
        for weight in (1.0, 2.0, 3.0):
            for s, net in ((optimize, one), (eagerly, other)):
                if closure:
                    s("net", lambda x, net=net, weight=weight: net.times(x, weight), torch.ones(8, 3))
                else:
                    s("net", net.times, torch.ones(8, 3), weight)
    assert len(said) == 1
    assert_agree(one, other)


@pytest.mark.parametrize("python", ["/bin/false", "/nowhere/python"])
def test_without_a_process_that_builds_updates_stay_eager(monkeypatch, tmp_path, python):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(sys, "executable", python)
    net = Net()
    optimize = step(net, True)
    with pytest.warns(match="updates of net stay eager: .*(has died|can be started)") as said:
        for _ in range(3):
            optimize("net", net.loss, *batch())
    assert len(said) == 1 and paths(optimize) == ["eager"]
    optimize.gradient.close()


def test_a_builder_dies_with_its_run(tmp_path):
    start = (
        "import sys, time; from pathlib import Path; from lit_rl.optimize.native.process import BuilderProcess; "
        "process = BuilderProcess(Path(sys.argv[1])); print(process._process.pid, flush=True); time.sleep(100)"
    )
    run = subprocess.Popen([sys.executable, "-c", start, str(tmp_path)], stdout=subprocess.PIPE, text=True)
    assert run.stdout is not None
    builder = int(run.stdout.readline())
    os.kill(builder, 0)
    run.kill()
    run.wait()
    began = time.monotonic()
    while is_running(builder):
        assert time.monotonic() - began < 30
        time.sleep(0.05)


def is_running(pid: int) -> bool:
    try:
        return "(Z)" not in Path(f"/proc/{pid}/stat").read_text().replace(" Z ", "(Z)")
    except FileNotFoundError:
        return False


def test_without_a_folder_updates_stay_eager(monkeypatch, tmp_path):
    (tmp_path / "lit_rl").write_text("a file")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    net = Net()
    with pytest.warns(match="updates stay eager: .* cannot be made"):
        optimize = step(net, True)
    optimize("net", net.loss, *batch())
    assert paths(optimize) == ["eager"]


@pytest.mark.parametrize(
    "error, said",
    [
        (OSError(28, "No space left on device"), "no space is left on the disk"),
        (
            RuntimeError("CppCompileError: /x.cpp: fatal error:\n No space left on device"),
            "no space is left on the disk",
        ),
        (RuntimeError("InvalidCxxCompiler: No working C++ compiler found"), "there is no C++ compiler"),
        (ValueError("what\nit is"), "ValueError: what it is"),
    ],
)
def test_a_failed_build_says_why_in_a_few_words(error, said):
    assert reason(error).startswith(said)


def test_the_gradient_of_a_layer_with_few_inputs_is_a_wide_product():
    net = nn.Linear(3, 16)
    captured = capture(lambda x: Loss((net(x) ** 2).mean(), {}), list(net.parameters()), (torch.randn(8, 3),))
    x = torch.randn(8, 3)
    (before,) = captured.graph(x, *captured.live)
    rewrite(captured.graph)
    (product,) = captured.graph.graph.find_nodes(op="call_function", target=torch.ops.aten.mm.default)
    assert product.args[0].args[0].op == "placeholder"  # x' g, not g' x
    (after,) = captured.graph(x, *captured.live)
    torch.testing.assert_close(after, before, rtol=0, atol=1e-6)


def test_a_rewritten_graph_computes_the_same():
    net = Net()
    captured = capture(net.loss, list(net.linear.parameters()), batch())
    x, weight = 10 * torch.randn(8, 3), torch.tensor(3.0)
    before = captured.graph(x, weight, *captured.live)
    rewrite(captured.graph)
    assert "tanh.default" not in captured.graph.code
    torch.testing.assert_close(captured.graph(x, weight, *captured.live), before, rtol=0, atol=1e-6)


def test_a_loss_without_tensors_is_no_graph():
    net = Net()
    with pytest.raises(Uncapturable, match="it is given no tensors"):
        capture(lambda: Loss(net.linear.weight.sum(), {}), list(net.linear.parameters()), ())


def test_what_is_handed_back_as_it_came_is_a_copy():
    net, given = Net(), torch.ones(4, 3)
    found = capture(lambda x: Loss(net.linear(x).sum(), {}, x), list(net.linear.parameters()), (given,))
    copy = found.graph(given, *found.live)[found.aux]
    assert torch.equal(copy, given) and copy.data_ptr() != given.data_ptr()


def test_shapes_beyond_the_first_ones_are_told_of_once():
    net = Net()
    optimize = step(net, "auto")
    with pytest.warns(match="its minibatches have more than 4 shapes") as said:
        for _ in range(3):
            for rows in range(1, 10):
                optimize("net", net.loss, torch.ones(rows, 3), torch.tensor(1.0))
    assert len(said) == 1
