"""Files are whole or not there, and reading one can run nothing."""

from __future__ import annotations

import contextlib
import itertools
import multiprocessing
import os
import resource
import signal
import subprocess
import sys
import time
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from counting_module import CountingModule, fit

from lit_rl.callbacks.last import LastCheckpoint
from lit_rl.checkpoint import AtomicCheckpointIO, copy_atomic, load, write_atomic
from lit_rl.errors import UsageError


@contextlib.contextmanager
def disk_that_takes(size: int) -> Iterator[None]:
    """Every file of this process ends at ``size`` bytes: the kernel refuses the rest, as a full disk does."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        signal.signal(signal.SIGXFSZ, handler)


def ours(**content: Any) -> dict[str, Any]:
    return {"hyper_parameters": {"lit_rl": {"algo": "DQN"}}, "state_dict": {}} | content


def save(path: Path, **content: Any) -> None:
    AtomicCheckpointIO().save_checkpoint(ours(**content), path)


def names(folder: Path) -> list[str]:
    return sorted(file.name for file in folder.iterdir())


def test_saved_checkpoint_is_read_back(tmp_path: Path) -> None:
    save(tmp_path / "new" / "a.ckpt", weights=torch.arange(3.0), counters={"env_steps": 7, "why": None})
    checkpoint = load(tmp_path / "new" / "a.ckpt")
    assert checkpoint["weights"].tolist() == [0.0, 1.0, 2.0]
    assert checkpoint["counters"] == {"env_steps": 7, "why": None}
    assert names(tmp_path / "new") == ["a.ckpt"]


@pytest.mark.parametrize("room", [0, 1, 500, 4096, 39_000])
def test_full_disk_leaves_the_previous_checkpoint(tmp_path: Path, room: int) -> None:
    path = tmp_path / "last.ckpt"
    save(path, weights=torch.ones(3))
    before = path.read_bytes()
    with disk_that_takes(room), pytest.raises(UsageError, match="cannot write .*last.ckpt.*untouched") as caught:
        save(path, weights=torch.zeros(10_000))
    assert "\n" not in str(caught.value)
    assert path.read_bytes() == before
    assert names(tmp_path) == ["last.ckpt"]


def test_full_disk_leaves_no_half_of_a_new_file(tmp_path: Path) -> None:
    save(tmp_path / "a.ckpt", weights=torch.zeros(10_000))
    with disk_that_takes(1000):
        with pytest.raises(UsageError, match="cannot write .*summary.json"):
            write_atomic(tmp_path / "summary.json", "x" * 5000)
        with pytest.raises(UsageError, match="cannot write .*best.ckpt"):
            copy_atomic(tmp_path / "a.ckpt", tmp_path / "best.ckpt")
    assert names(tmp_path) == ["a.ckpt"]


def test_full_disk_ends_a_fit_with_one_line_and_the_last_good_checkpoint(tmp_path: Path) -> None:
    fit(CountingModule(), 1, [LastCheckpoint(tmp_path)])
    module = CountingModule()
    with disk_that_takes(2000), pytest.raises(UsageError, match="cannot write .*last.ckpt"):
        fit(module, 3, [LastCheckpoint(tmp_path)], ckpt_path=tmp_path / "last.ckpt")
    assert module.trained_epochs == [1]
    assert load(tmp_path / "last.ckpt")["counters"] == {"env_steps": 20, "updates": 2}


def test_folder_that_cannot_be_made_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(UsageError, match="cannot write .*file/a.ckpt: .*file is a file"):
        save(tmp_path / "file" / "a.ckpt")
    with pytest.raises(UsageError, match="cannot write .*file/more/summary.json: Not a directory"):
        write_atomic(tmp_path / "file" / "more" / "summary.json", "{}")


def test_interrupted_writer_leaves_nothing(tmp_path: Path) -> None:
    class Interrupted:
        def __reduce__(self) -> Any:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        save(tmp_path / "a.ckpt", weights=torch.zeros(10_000), last=Interrupted())
    assert names(tmp_path) == []


def test_leftover_of_a_killed_writer_is_never_read_and_goes_with_the_next_write(tmp_path: Path) -> None:
    child = subprocess.Popen([sys.executable, "-c", ""])
    child.wait()
    leftover, alive = tmp_path / f"last.ckpt.lit_rl-{child.pid}.tmp", tmp_path / f"best.ckpt.lit_rl-{os.getppid()}.tmp"
    other, foreign = tmp_path / "notes.tmp", tmp_path / f"thesis.tex.{child.pid}.tmp"
    for file in (leftover, alive, other, foreign):
        file.write_bytes(b"PK\x03\x04 half")
    with pytest.raises(UsageError, match="has no best.ckpt; it holds no checkpoint at all"):
        load(tmp_path)
    save(tmp_path / "epoch=3.ckpt")
    assert names(tmp_path) == sorted(["epoch=3.ckpt", alive.name, other.name, foreign.name])


def test_writer_killed_at_any_moment_leaves_a_whole_file(tmp_path: Path) -> None:
    def write_for_ever(done: Any) -> None:
        for i in itertools.count():
            save(tmp_path / "last.ckpt", i=i, w=torch.full((100_000,), float(i)))
            done.value = i

    context = multiprocessing.get_context("fork")
    for wait in (0.0, 0.001, 0.003, 0.01):
        done = context.Value("q", -1)
        writer = context.Process(target=write_for_ever, args=(done,))
        writer.start()
        while done.value < 0:
            time.sleep(0.001)
        time.sleep(wait)
        writer.kill()
        writer.join()
        checkpoint = load(tmp_path / "last.ckpt")
        assert checkpoint["i"] >= done.value
        assert torch.equal(checkpoint["w"], torch.full((100_000,), float(checkpoint["i"])))


def test_checkpoint_cut_to_any_length_is_refused_in_one_line(tmp_path: Path) -> None:
    save(tmp_path / "whole.ckpt", weights=torch.arange(20.0))
    whole = (tmp_path / "whole.ckpt").read_bytes()
    cut = tmp_path / "cut.ckpt"
    for length in [*range(0, len(whole) - 80, 7), *range(len(whole) - 80, len(whole))]:
        cut.write_bytes(whole[:length])
        with pytest.raises(UsageError) as caught:
            load(cut)
        assert str(caught.value) == f"{cut} is cut off after {length} bytes"
    with pytest.raises(UsageError, match="is cut off"):
        AtomicCheckpointIO().load_checkpoint(cut)


def test_checkpoint_with_damaged_bytes_never_fails_in_another_way(tmp_path: Path) -> None:
    save(tmp_path / "whole.ckpt", weights=torch.arange(20.0))
    whole = (tmp_path / "whole.ckpt").read_bytes()
    random = np.random.default_rng(0)
    for _ in range(300):
        damaged = bytearray(whole)
        for position in random.integers(len(whole), size=4):
            damaged[position] = random.integers(256)
        (tmp_path / "damaged.ckpt").write_bytes(bytes(damaged))
        try:
            load(tmp_path / "damaged.ckpt")
        except UsageError as error:
            assert "\n" not in str(error)


def test_a_flipped_byte_of_a_weight_is_found(tmp_path: Path) -> None:
    save(tmp_path / "a.ckpt", weights=torch.full((1000,), 7.25))
    content = (tmp_path / "a.ckpt").read_bytes()
    (tmp_path / "a.ckpt").write_bytes(content.replace(b"\0\0\xe8\x40" * 10, b"\0\0\xe8\x41" * 10, 1))
    with pytest.raises(UsageError, match="a.ckpt is damaged: .* is not what was written"):
        load(tmp_path / "a.ckpt")


class Hostile:
    def __init__(self, proof: Path) -> None:
        self.proof = proof

    def __reduce__(self) -> Any:
        return os.mkdir, (str(self.proof),)


def test_hostile_checkpoint_runs_nothing_and_is_named(tmp_path: Path) -> None:
    torch.save(ours(trap=Hostile(tmp_path / "proof")), tmp_path / "hostile.ckpt")
    with pytest.raises(UsageError, match=r"hostile.ckpt needs posix.mkdir to be unpickled"):
        load(tmp_path / "hostile.ckpt")
    with pytest.raises(UsageError, match="needs posix.mkdir"):
        AtomicCheckpointIO().load_checkpoint(tmp_path / "hostile.ckpt", weights_only=False)
    assert not (tmp_path / "proof").exists()


def test_state_that_could_not_be_read_back_is_refused_when_it_is_saved(tmp_path: Path) -> None:
    save(tmp_path / "last.ckpt")
    with pytest.raises(UsageError, match=r"cannot write .*last.ckpt: .*numpy.*could not be read back"):
        save(tmp_path / "last.ckpt", state=np.zeros(3))
    load(tmp_path / "last.ckpt")
    assert names(tmp_path) == ["last.ckpt"]


def test_what_is_no_checkpoint_of_ours_is_refused_with_the_reason(tmp_path: Path) -> None:
    def refused(path: Path) -> str:
        with pytest.raises(UsageError) as caught:
            load(path)
        assert "\n" not in str(caught.value) and str(path) in str(caught.value)
        return str(caught.value)

    assert "there is no checkpoint" in refused(tmp_path / "missing.ckpt")
    (tmp_path / "text.ckpt").write_text("hello")
    assert "is not a checkpoint" in refused(tmp_path / "text.ckpt")
    torch.save(ours(), tmp_path / "old.ckpt", _use_new_zipfile_serialization=False)
    assert "is not a checkpoint" in refused(tmp_path / "old.ckpt")
    with zipfile.ZipFile(tmp_path / "zip.ckpt", "w") as archive:
        archive.writestr("a/b.txt", "c")
    assert "not a checkpoint" in refused(tmp_path / "zip.ckpt")
    torch.save([1, 2], tmp_path / "list.ckpt")
    assert "it holds a list" in refused(tmp_path / "list.ckpt")
    torch.save({"state_dict": {}, "hyper_parameters": {"lr": 1.0}}, tmp_path / "foreign.ckpt")
    assert "not one of lit_rl's" in refused(tmp_path / "foreign.ckpt")
    for odd in (None, [1], {"a": 1}, {1: torch.zeros(1)}):
        torch.save(ours(state_dict=odd), tmp_path / "odd.ckpt")
        assert "something else than weights by name" in refused(tmp_path / "odd.ckpt")
    torch.save({"state_dict": {}}, tmp_path / "foreign.ckpt")
    assert "not one of lit_rl's" in refused(tmp_path / "foreign.ckpt")


def test_folder_stands_for_its_best_checkpoint(tmp_path: Path) -> None:
    save(tmp_path / "stage1" / "last.ckpt")
    with pytest.raises(UsageError, match=r"has no best.ckpt; it holds stage1/last.ckpt: name one of them"):
        load(tmp_path)
    save(tmp_path / "best.ckpt", mark=5)
    assert load(tmp_path)["mark"] == 5


def test_copy_is_exact_and_replaces(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(bytes(range(256)) * 9000)
    (tmp_path / "b").write_text("old")
    copy_atomic(tmp_path / "a", tmp_path / "b")
    assert (tmp_path / "b").read_bytes() == (tmp_path / "a").read_bytes()
    with pytest.raises(UsageError, match="cannot read .*missing"):
        copy_atomic(tmp_path / "missing", tmp_path / "b")
    assert names(tmp_path) == ["a", "b"]


def test_text_is_written_as_utf8_and_bytes_as_they_are(tmp_path: Path) -> None:
    write_atomic(tmp_path / "a", "µ\n")
    assert (tmp_path / "a").read_bytes() == b"\xc2\xb5\n"
    write_atomic(tmp_path / "a", b"\x00\xff")
    assert (tmp_path / "a").read_bytes() == b"\x00\xff"
