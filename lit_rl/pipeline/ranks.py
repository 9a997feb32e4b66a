"""The processes of one run, its ranks: how they start, what they take from the first one, and that they end together."""

from __future__ import annotations

import atexit
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from datetime import timedelta
from pathlib import Path
from types import TracebackType
from typing import NamedTuple

import pytorch_lightning as pl
import torch
from torch.distributed import Store, TCPStore  # type: ignore[attr-defined]

from lit_rl.errors import RankError, UsageError

SECONDS_BETWEEN_LOOKS = 0.5
SECONDS_TO_END = 10.0  # for a rank that is told by a failed collective that another one is gone
SECONDS_FOR_THE_FIRST = 3.0  # for the first rank to say what a later one is about to say
ANYWHERE = timedelta(minutes=30)  # a rank may wait this long for the others, as in torch's process groups

STARTER = "LIT_RL_STARTED_BY"  # rank and process id of the rank that started this one
_BROKEN = re.compile(r"gloo|nccl|TCPStore|connection (was )?(closed|reset|refused)|broken pipe|by peer", re.IGNORECASE)

_current: Ranks | None = None
_runs = 0  # of this process, which may call train() more than once
_store: Store | None = None
_started: dict[int, subprocess.Popen[bytes]] = {}  # the ranks that this process started, alive or not


class Place(NamedTuple):
    """Where a rank stands and where all of them meet."""

    rank: int
    world: int
    local_rank: int
    local_world: int
    address: str
    port: int | None


class Ranks:
    """This process among those of its run.

    Ranks that torchrun or a cluster started are there already; otherwise :meth:`first` starts the others, as Lightning
    would, by the command that started this one. As a context it makes sure that no rank goes on without the others: where
    one has died, the others leave with a RankError that names it, or are ended by a thread that watches.
    """

    def __init__(self, place: Place | None = None, launches: bool = False) -> None:
        global _current, _runs
        _current, _runs = self, _runs + 1
        self.place = place or Place(0, 1, 0, 1, "127.0.0.1", None)
        self.rank, self.world = self.place.rank, self.place.world
        self._launches = launches
        self._run = f"lit_rl/{_runs}"
        self._pids: dict[int, int] = {}  # of the other ranks on this machine, as far as they are known
        self._ending = threading.Event()

    @classmethod
    def of(cls, trainer: pl.Trainer) -> Ranks:
        """The ranks that a Trainer of these flags runs on."""
        environment = getattr(trainer.strategy, "cluster_environment", None)
        if environment is None:
            return cls()
        local_world = trainer.world_size // trainer.num_nodes
        launches = not environment.creates_processes_externally
        ours = launches and trainer.num_nodes == 1
        port = int(os.environ.get("MASTER_PORT", 0)) if ours else int(environment.main_port)
        address = "127.0.0.1" if ours else environment.main_address
        place = Place(trainer.global_rank, trainer.world_size, trainer.local_rank, local_world, address, port)
        return cls(place, launches)

    def first(self, make: Callable[[], str]) -> str:
        """What ``make`` returns on rank 0, where alone it runs, on every rank; the others run from here on.

        Raises:
            UsageError: ``make`` raised it.
        """
        if self.world == 1:
            if self._launches:  # a strategy for several ranks with one of them
                self._connect()
            return make()
        if STARTER in os.environ:  # known before the store is, which may have gone with it
            rank, pid = map(int, os.environ[STARTER].split())
            self._pids[rank] = pid
        threading.Thread(target=self._watch, name="ranks", daemon=True).start()
        store, key = self._connect(), f"{self._run}/first"
        if self.rank == 0:
            try:
                store.set(key, "made " + make())
            except UsageError as error:
                store.set(key, f"error {error}")
                raise
        if self._launches:
            self._launch()
        store.set(f"{self._run}/pid/{self.rank}", f"{os.getpid()} {socket.gethostname()}")
        said: str = store.get(key).decode()
        what, _, word = said.partition(" ")
        if what == "error":
            raise UsageError(word)
        return word

    def meet(self, trainer: pl.Trainer) -> None:
        """Wait for all ranks; from here on each may end by itself."""
        if self.world > 1:
            self._ending.set()
            trainer.strategy.barrier()

    def __enter__(self) -> Ranks:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._ending.set()
        if self.world == 1 or error is None:
            return
        lost = self._lost() if _is_broken_connection(error) else {}
        _end_started(1.0)
        if lost:
            raise RankError(self._described(lost), quiet=not self._speaks(lost)) from None

    def _connect(self) -> Store:
        global _store
        if _store is None:
            on_this_machine = self.place.local_world == self.world
            if on_this_machine:  # gloo would listen on the address that the machine's name has
                os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo" if sys.platform == "linux" else "lo0")
            # Lightning would take all cores of the machine for the ranks, whatever --num_threads says
            os.environ.setdefault("OMP_NUM_THREADS", str(torch.get_num_threads()))
            _store = _open_store(self.place, self._launches and on_this_machine)
        return _store

    def _launch(self) -> None:
        """Start the other ranks of this machine by the command that started this process."""
        if _started:
            return
        node = self.place.rank // self.place.local_world
        os.environ |= {"NODE_RANK": str(node), "LOCAL_RANK": "0", "WORLD_SIZE": str(self.world)}
        for local_rank in range(1, self.place.local_world):
            rank = self.place.rank + local_rank
            environment = os.environ | {"LOCAL_RANK": str(local_rank), "RANK": str(rank)}
            environment[STARTER] = f"{self.rank} {os.getpid()}"
            # A session of its own: Ctrl-C and signals to the group are for the first rank, which tells the others.
            _started[rank] = subprocess.Popen(
                [sys.executable, *sys.orig_argv[1:]], env=environment, stdin=subprocess.DEVNULL, start_new_session=True
            )
        atexit.register(_end_started, 60.0)

    def _watch(self) -> None:
        """End this process some time after another rank has died, if it is still there then."""
        while not self._ending.wait(SECONDS_BETWEEN_LOOKS):
            if lost := self._gone():
                if self._ending.wait(SECONDS_TO_END):
                    return
                if self._speaks(lost):
                    print(f"lit-rl: error: {self._described(lost)}", file=sys.stderr, flush=True)
                _end_started(0.0)
                os._exit(1)

    def _lost(self) -> dict[int, int]:
        """The ranks that have died: a peer's connection may close a moment before its process has ended."""
        deadline = time.monotonic() + SECONDS_TO_END
        while not (lost := self._gone()) and time.monotonic() < deadline:
            time.sleep(0.1)
        return lost

    def _gone(self) -> dict[int, int]:
        """Process ids, by rank, of the other ranks on this machine that are no more."""
        gone = {rank: process.pid for rank, process in _started.items() if process.poll() is not None}
        for rank in range(self.world):
            if rank not in (self.rank, *self._pids, *_started):
                with suppress(RuntimeError):  # the store went with the first rank
                    if _store is not None and _store.check([f"{self._run}/pid/{rank}"]):
                        pid, host = _store.get(f"{self._run}/pid/{rank}").decode().split(" ", 1)
                        if host == socket.gethostname():
                            self._pids[rank] = int(pid)
        return gone | {rank: pid for rank, pid in self._pids.items() if _has_ended(pid)}

    def _speaks(self, lost: dict[int, int]) -> bool:
        """Whether this is the rank that says so: the first that is left of those on this machine."""
        here = range(self.rank - self.place.local_rank, self.rank)
        return all(rank in lost for rank in here)

    def _described(self, lost: dict[int, int]) -> str:
        names = [f"rank {rank} (process {pid}) {_how(_started.get(rank))}" for rank, pid in sorted(lost.items())]
        return f"{', '.join(names)}; the run stops, and its last checkpoint is as it was"


def what_to_print(message: str) -> str | None:
    """An error message as this rank prints it: with its number, and None where the first rank says the same."""
    known = _current is not None and _current.world > 1
    environment = os.environ if not known else {}
    if not known and not {"RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"} <= environment.keys():
        return message
    rank = _current.rank if known and _current is not None else int(environment["RANK"])
    key = f"lit_rl/{max(_runs, 1)}/error"
    with suppress(RuntimeError, ValueError):  # the store went with the first rank
        store = _store
        if store is None:  # flags were wrong before anything was known of the ranks
            world, port = int(environment["WORLD_SIZE"]), int(environment["MASTER_PORT"])
            store = _open_store(Place(rank, world, 0, 1, environment["MASTER_ADDR"], port), False)
        if rank == 0:
            store.set(key, message)
            return message
        store.wait([key], timedelta(seconds=SECONDS_FOR_THE_FIRST))
        if store.get(key).decode() == message:
            return None
    return f"rank {rank}: {message}" if rank else message


def _open_store(place: Place, here_only: bool) -> Store:
    """Where the ranks leave word for each other; torch's process group finds it there too."""
    from torch.distributed.rendezvous import rendezvous

    if not here_only:
        os.environ |= {"MASTER_ADDR": place.address, "MASTER_PORT": str(place.port)}
        store: Store = next(rendezvous("env://", place.rank, place.world, timeout=ANYWHERE))[0]
        return store
    with socket.socket() as listener:  # by itself, the store would listen on every interface
        listener.bind((place.address, place.port or 0))
        listener.listen(128)
        port = listener.getsockname()[1]
        os.environ |= {"MASTER_ADDR": place.address, "MASTER_PORT": str(port)}
        return TCPStore(
            place.address, port, None, True, ANYWHERE, False, multi_tenant=True, master_listen_fd=listener.detach()
        )


def _is_broken_connection(error: BaseException) -> bool:
    return isinstance(error, RuntimeError) and bool(_BROKEN.search(str(error)))


def _end_started(patience: float) -> None:
    """End the ranks that this process started, after ``patience`` seconds to do so themselves."""
    deadline = time.monotonic() + patience
    for process in _started.values():
        with suppress(subprocess.TimeoutExpired):
            process.wait(max(0.0, deadline - time.monotonic()))
    for process in _started.values():
        if process.poll() is None:
            process.kill()
            process.wait()


def _has_ended(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    except OSError:
        return False
    try:  # what has ended and was not waited for yet still takes signals
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except OSError:
        return False


def _how(process: subprocess.Popen[bytes] | None) -> str:
    code = None if process is None else process.returncode
    if code is None:
        return "has ended"
    if code < 0:
        return f"was ended by {signal.Signals(-code).name}"
    return f"has ended with exit code {code} (its messages are above)"
