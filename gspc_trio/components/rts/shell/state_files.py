"""State files of a run-time system, for the next one: how it is reached, and which RIFs it had.

The next one has the same address, secrets and hosts. RIFs that live come back to it, with their work; what
they and the job servers hold they say themselves.
"""

from __future__ import annotations

import logging
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import trio
from msgspec.structs import replace

from gspc_trio.components.provision.strategy import EMBEDDED
from gspc_trio.components.rts.events import JobServerEnded, RifRestored
from gspc_trio.components.rts.shell.saved import RESUME_GRACE_S, RtsState, SavedHost, SavedJob, new_state
from gspc_trio.components.rts.shell.service import RtsService
from gspc_trio.components.rts.state import ManagedRif, RifState
from gspc_trio.nursery.connections.private_file import process_start
from gspc_trio.protocol.address import WebSocketAddress, parse_address
from gspc_trio.records.shell.durable_files import (
    ASIDE,
    THIS_MACHINE,
    FileSystem,
    create_aside,
    put_in_place,
)
from gspc_trio.records.shell.own_directory import own_directory

SAVE_INTERVAL_S = 0.2
"""How long after a change it is saved at the latest."""

ALIVE_INTERVAL_S = 1.0
"""How often the file says that its run-time system lives."""

OLD_WORK_S = RESUME_GRACE_S + 15.0
"""After so long without a run-time system its RIFs have ended: some silence, the wait, and time to stop."""

NAMES_AHEAD = 1000
"""So many names are taken to have been given out beyond those noted when nobody could note the last ones."""

log: logging.Logger = logging.getLogger(__name__)

_FILE = "rts.json"


class StateError(ValueError):
    """The state cannot be used; one line says why, and what to do."""


class StateKeeper:
    """Keeps the state of one run-time system in a directory; made by :func:`open_state`.

    Args:
        folder: the directory.
        state: what the last one left.
        clock: seconds since 1970.
        files: the file system that the directory is in.

    Attributes:
        state: what the last one left, with the epoch for this one.
    """

    def __init__(
        self,
        folder: Path,
        state: RtsState,
        clock: Callable[[], float] = time.time,
        files: FileSystem = THIS_MACHINE,
    ) -> None:
        self.folder = folder
        self._files = files
        self.before = state
        self._clock = clock
        self._restored = self._failed = False
        self.state: RtsState = replace(state, epoch=max(int(clock()), state.epoch + 1))

    def try_out(self) -> None:
        """See that there is room: whoever wants a state is told at once if it cannot be kept.

        Raises:
            StateError: it cannot be written.
        """
        try:
            self._files.close(create_aside(self._files, self.folder, _encoded(self.before)))
            self._files.remove(self.folder / ASIDE)
        except OSError as error:
            raise StateError(
                f"the state {self.folder} cannot be written: {error.strerror or error}"
            ) from None

    @property
    def hosts_to_start(self) -> tuple[SavedHost, ...]:
        """Hosts of the last one whose RIFs do not come back: it ended in good order, and they with it."""
        ended = not self.before.alive_s
        there = self.before.hosts
        return tuple(host for host in there if (ended or not host.rif_id) and not host.once)

    def restore(self, service: RtsService) -> None:
        """Tell a new service, before it listens, what the last one had."""
        before = self.before
        service.machine.skip_names(before.rifs_named, before.jobs_named)
        too_late = self._clock() - before.alive_s > OLD_WORK_S
        if before.alive_s:
            there = {host.block for host in before.hosts}
            if blocks := [saved for saved in before.blocks if saved.block in there]:
                service.enrolments.restore(blocks)
            for host in before.hosts:
                if host not in self.hosts_to_start:
                    gone = too_late or host.has_ended
                    known = (
                        host.rif_id,
                        host.incarnation,
                        host.host,
                        host.strategy,
                        host.cores,
                        host.options,
                    )
                    of = (host.block, host.node, host.nodes, host.once)
                    service.restore(RifRestored(*known, gone, not host.up, *of))
        for job in before.jobs:
            if job.has_ended:
                service.restore(JobServerEnded(job.job))

    async def follow(self, service: RtsService) -> None:
        """Save what changes, until cancelled; then that it ended in good order."""
        for where in map(parse_address, service.addresses):
            if isinstance(where, WebSocketAddress):
                self.state = replace(self.state, port=where.port)
                break
        try:
            while True:
                now = self._clock()
                rifs, jobs = service.machine.named
                news = replace(
                    self.state,
                    hosts=self._hosts(service),
                    jobs=self._jobs(service),
                    blocks=service.saved_blocks(),
                    sites=service.sites.kept(),
                    rifs_named=_ahead(rifs, self.state.rifs_named),
                    jobs_named=_ahead(jobs, self.state.jobs_named),
                )
                if news != self.state or now - self.state.alive_s > ALIVE_INTERVAL_S:
                    self._save(replace(news, alive_s=now))
                await trio.sleep(SAVE_INTERVAL_S)
        finally:
            rifs, jobs = service.machine.named
            self._save(replace(self.state, rifs_named=rifs, jobs_named=jobs, alive_s=0.0))

    def _hosts(self, service: RtsService) -> tuple[SavedHost, ...]:
        """Those that have a RIF, and those of before that have not been started yet."""
        rifs = {
            rif.host: _saved(rif)
            for rif in service.machine.rifs
            if rif.state is not RifState.STOPPING
            and rif.strategy != EMBEDDED  # which ends with this process
            and not (rif.once and rif.state is RifState.LOST)
        }
        if not self._restored:
            rifs = {saved.host: saved for saved in self.before.hosts} | rifs
        return tuple(rifs.values())

    def _jobs(self, service: RtsService) -> tuple[SavedJob, ...]:
        """Jobs whose process can be looked for; a journaled one may be taken over when that has ended."""
        noted = {saved.job: saved for saved in self.state.jobs}
        here, found = socket.gethostname(), []
        for job in service.machine.jobs:
            saved = noted.get(job.job)
            if saved is None and job.host == here and job.pid and not job.grace_s:
                started = process_start(job.pid)
                saved = SavedJob(job.job, job.pid, started) if started else None
            if saved is not None:
                found.append(saved)
        return tuple(found)

    def note_port(self, port: int) -> None:
        """Keep where a service listens that has nothing else to keep."""
        self._save(replace(self.state, port=port))

    def restored(self) -> None:
        """The hosts of before were asked for: those that are not there now are no longer kept."""
        self._restored = True

    def _save(self, state: RtsState) -> None:
        """Write it down; a disk that takes no more ends nobody's work, it is only tried again."""
        self.state = state
        try:
            self._write(state)
            self._failed = False
        except OSError as error:
            if not self._failed:
                log.warning("the state %s cannot be written: %s", self.folder, error.strerror or error)
            self._failed = True
            self.state = replace(state, alive_s=0.0)  # so that it is tried again

    def _write(self, state: RtsState) -> None:
        self._files.close(put_in_place(self._files, self.folder / _FILE, _encoded(state)))


def _encoded(state: RtsState) -> bytes:
    from gspc_trio.protocol.plain import to_json  # only here: most have no state

    return to_json(state).encode()


def _saved(rif: ManagedRif) -> SavedHost:
    up = rif.state in (RifState.UP, RifState.AWAY) and not rif.fresh
    known = (rif.host, rif.strategy, rif.cores, dict(rif.options), rif.rif_id, rif.incarnation, rif.pid)
    return SavedHost(*known, up, rif.block, rif.node, rif.nodes, rif.once)


def _ahead(named: int, noted: int) -> int:
    """Return what to note of a number of names: more than can be given out before it is noted again."""
    return noted if named + NAMES_AHEAD // 2 <= noted else named + NAMES_AHEAD


@contextmanager
def open_state(folder: Path) -> Iterator[StateKeeper]:
    """The state in a directory, for one run-time system at a time.

    Raises:
        StateError: others can look into the directory, another run-time system uses it, it is damaged, or
            nothing can be written there.
        OSError: the directory cannot be made.
    """
    with own_directory(folder, "a run-time system that runs uses the state", StateError):
        keeper = StateKeeper(folder, load_state(folder))
        keeper.try_out()
        yield keeper


def load_state(folder: Path, files: FileSystem = THIS_MACHINE) -> RtsState:
    """Return what the last run-time system has left in a directory, or a new state if there was none.

    Raises:
        StateError: it is damaged.
        OSError: it cannot be read.
    """
    from gspc_trio.protocol.plain import from_json

    path = folder / _FILE
    try:
        state = from_json(files.read(path), RtsState)
        bytes.fromhex(state.token)
        return state
    except FileNotFoundError:
        return new_state()
    except ValueError as error:
        raise StateError(f"{path} is damaged ({error}): remove it, and bootstrap the hosts again") from error
