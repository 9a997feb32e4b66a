"""The program that compiles captured graphs to shared libraries, in a process of its own beside the run.

Every line of stdin is a job in JSON; for each it says ``built KEY`` or ``failed KEY REASON`` on stdout. When stdin ends, the
run that started it has ended or needs no more, and it ends too, with the compiler that it may have started. It imports
nothing of this package, which need not be installed.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import queue
import signal
import sys
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any


def file_name(key: str, content: bytes) -> str:
    """The name of a library, which says what graph it is of and whether the file is whole."""
    return f"{key}-{hashlib.sha256(key.encode() + content).hexdigest()[:32]}.pt2"


def main(folder: Path) -> None:
    os.nice(5)
    os.umask(0o077)
    jobs: queue.SimpleQueue[str] = queue.SimpleQueue()
    threading.Thread(target=_read, args=(jobs,), daemon=True).start()
    with tempfile.TemporaryDirectory(prefix=f"build-{os.getpid()}-", dir=folder) as work:
        os.environ["TORCHINDUCTOR_CACHE_DIR"] = os.environ["TMPDIR"] = tempfile.tempdir = work
        while True:
            job = json.loads(jobs.get())
            try:
                with _one_at_a_time(folder, job["key"]):
                    if not any(folder.glob(f"{job['key']}-*.pt2")):  # another run may have built it meanwhile
                        _keep(folder, job["key"], build(job, Path(work)), Path(work))
            except Exception as error:
                print(f"failed {job['key']} {reason(error)}", flush=True)
            else:
                print(f"built {job['key']}", flush=True)


def _read(jobs: queue.SimpleQueue[str]) -> None:
    for line in sys.stdin:
        jobs.put(line)
    os.killpg(0, signal.SIGKILL)  # the run cleans up behind its builder, or the next one does


@contextlib.contextmanager
def _one_at_a_time(folder: Path, key: str) -> Iterator[None]:
    """Wait for another run that builds the same; the lock of a run that died is free."""
    import fcntl

    path = folder / f"{key}.lock"
    with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW, 0o600), "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        try:
            yield
        finally:
            path.unlink(missing_ok=True)


def build(job: dict[str, Any], work: Path) -> bytes:
    """The library of one graph."""
    import torch
    import torch._inductor.config as inductor

    torch.set_num_threads(job["threads"])
    torch.set_float32_matmul_precision(job["precision"])
    # compiling the headers beforehand takes longer than it saves
    inductor.cpp_cache_precompile_headers = inductor.aot_inductor.precompile_headers = False
    names: dict[str, Any] = {"torch": torch, "device": torch.device, "inf": float("inf"), "nan": float("nan")}
    exec(job["code"], names)

    class Graph(torch.nn.Module):
        def forward(self, *inputs: Any) -> Any:
            return names["forward"](self, *inputs)

    inputs = tuple(
        torch.empty_strided(shape, stride, dtype=getattr(torch, dtype)).zero_()
        for shape, stride, dtype in job["inputs"]
    )
    with torch.no_grad():
        exported = torch.export.export(Graph(), inputs, strict=False)
        made = Path(torch._inductor.aoti_compile_and_package(exported, package_path=str(work / f"{job['key']}.pt2")))
    content = made.read_bytes()
    made.unlink()
    return content


def _keep(folder: Path, key: str, content: bytes, work: Path) -> None:
    whole = work / "whole"
    with open(whole, "wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    os.replace(whole, folder / file_name(key, content))


def reason(error: Exception) -> str:
    """Why a build failed, in a few words."""
    said = " ".join(f"{type(error).__name__}: {error}".split())
    if "No space left on device" in said or "Disk quota exceeded" in said:
        return "no space is left on the disk"
    if "InvalidCxxCompiler" in said:
        return "there is no C++ compiler (install g++, or name one in the environment variable CXX)"
    return said[:200]


if __name__ == "__main__":
    sys.path.pop(0)  # this file's folder, which holds no module for anybody else
    main(Path(sys.argv[1]))
