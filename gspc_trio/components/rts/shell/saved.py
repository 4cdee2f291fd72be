"""What one run-time system leaves to the next: its secret, how it is reached, its RIFs and jobs."""

from __future__ import annotations

import secrets
import socket
from collections.abc import Sequence
from pathlib import Path
from typing import ClassVar

from msgspec import Struct, field
from msgspec.structs import replace

from gspc_trio.components.provision.blocks import SavedBlock, SavedSite
from gspc_trio.core.ids import JobId, RifId
from gspc_trio.nursery.connections.private_file import process_start
from gspc_trio.protocol.hidden import HidesFields

RESUME_GRACE_S = 30.0
"""How long RIFs and jobs are awaited that cannot be heard, and wait for their run-time system."""


class SavedHost(Struct, frozen=True):
    """A host that has a RIF, or is to have one.

    Attributes:
        host, strategy, cores, options: how it is started.
        rif_id, incarnation, pid: of its RIF.
        up: whether that has been up.
        block, node, nodes: the block of which it is, "" for none, which of its nodes it has, and how many
            there are.
        once: it is not started again when it is lost.
    """

    host: str
    strategy: str
    cores: int
    options: dict[str, str]
    rif_id: RifId = ""
    incarnation: int = 0
    pid: int = 0
    up: bool = True
    block: str = ""
    node: int = 0
    nodes: int = 1
    once: bool = False

    @property
    def has_ended(self) -> bool:
        """Whether its RIF is known to run no more."""
        if self.strategy != "local" or not self.pid:
            return False
        try:
            return b"rif_process" not in Path(f"/proc/{self.pid}/cmdline").read_bytes()
        except OSError:
            return True


class SavedJob(Struct, frozen=True):
    """A job whose job server runs on the host of the run-time system.

    Attributes:
        job: its id.
        pid, started: which process that is; ``started`` in ticks since the host did.
    """

    job: JobId
    pid: int
    started: int

    @property
    def has_ended(self) -> bool:
        """Whether that process is known to run no more."""
        return process_start(self.pid) not in (self.started, 0)


class RtsState(HidesFields, frozen=True):
    """What is kept.

    Attributes:
        token: the secret, as hexadecimal digits.
        port: TCP port at which it listens, 0 if it never has.
        epoch: of its grants; the next one takes a higher one.
        instance: by which job servers know that it is the one that they had.
        rifs_named, jobs_named: numbers of RIFs and jobs that were ever named, or more.
        hosts: those that it has.
        jobs: those that nobody is to go on for when their process has ended.
        blocks: batch jobs that host RIFs, with their tickets.
        sites: batch systems that are asked for blocks.
        alive_s: wall-clock time at which it was last seen alive, 0 after an orderly end.
    """

    hidden: ClassVar[frozenset[str]] = frozenset({"token", "blocks"})

    token: str
    instance: str = field(default_factory=lambda: secrets.token_hex(8))
    port: int = 0
    epoch: int = 0
    rifs_named: int = 0
    jobs_named: int = 0
    hosts: tuple[SavedHost, ...] = ()
    jobs: tuple[SavedJob, ...] = ()
    blocks: tuple[SavedBlock, ...] = ()
    sites: tuple[SavedSite, ...] = ()
    alive_s: float = 0.0


def new_state() -> RtsState:
    """Return the state of a run-time system that has been none before."""
    return RtsState(secrets.token_bytes(32).hex())


def starting_hosts(
    hosts: Sequence[str], how: SavedHost, saved: tuple[SavedHost, ...], there: set[str]
) -> list[tuple[list[str], SavedHost]]:
    """Return which hosts to start together, and how: those of before, and new ones that are not there.

    Args:
        hosts: names of new ones; none: this host if there are no others.
        how: how new ones are started; its host does not matter.
        saved: those of before.
        there: names of those that need not be started.
    """
    new = hosts or ([] if saved or there else [socket.gethostname()])
    there = there | {host.host for host in saved}
    together: dict[str, tuple[list[str], SavedHost]] = {}
    added = (replace(how, host=name) for name in new if name not in there)
    for host in (*saved, *added):
        key = repr((host.strategy, host.cores, sorted(host.options.items())))
        together.setdefault(key, ([], host))[0].append(host.host)
    return list(together.values())
