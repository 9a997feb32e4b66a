"""The builder's process, as the run that started it sees it."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

from lit_rl.optimize.native import builder


class BuilderProcess:
    """Compiles graphs one after the other; it dies with the run.

    Args:
        folder: where the libraries go.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        environment = {name: value for name, value in os.environ.items() if name != "TORCH_COMPILE_DISABLE"} | {
            "PYTHONPATH": os.pathsep.join(path for path in sys.path if path),  # the same torch as here
            "TORCHINDUCTOR_VEC_ISA_OK": "1",  # no test compilation for what the CPU is known to have
            "TORCHINDUCTOR_COMPILE_THREADS": "1",
        }
        self._process = subprocess.Popen(
            [sys.executable, builder.__file__, str(folder)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            env=environment,
            start_new_session=True,  # Ctrl-C is not meant for it
        )
        self._said: dict[str, str | None] = {}
        self._news = threading.Condition()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def add(self, job: dict[str, Any]) -> None:
        """One more graph to build."""
        assert self._process.stdin is not None
        with contextlib.suppress(OSError):  # it has died: everybody hears that of what was not built
            self._process.stdin.write(json.dumps(job) + "\n")
            self._process.stdin.flush()

    def result(self, key: str, wait: bool = False) -> tuple[bool, str | None]:
        """Whether a graph has been built or cannot be, and in that case why."""
        with self._news:
            while wait and key not in self._said and self._reader.is_alive():
                self._news.wait(0.5)
        if key in self._said:
            return True, self._said[key]
        return (False, None) if self._reader.is_alive() else (True, "the process that builds has died")

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            what, _, rest = line.rstrip("\n").partition(" ")
            key, _, reason = rest.partition(" ")
            with self._news:
                if what in ("built", "failed"):
                    self._said[key] = reason if what == "failed" else None
                self._news.notify_all()

    def close(self) -> None:
        """End it, whatever it is doing."""
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        for pipe in (self._process.stdin, self._process.stdout):
            with contextlib.suppress(OSError):
                assert pipe is not None
                pipe.close()
        for left in self.folder.glob(f"build-{self._process.pid}-*"):
            shutil.rmtree(left, ignore_errors=True)
