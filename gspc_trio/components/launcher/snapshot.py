"""All that a launcher knows at one time: one that takes it over goes on as the first would have."""

from __future__ import annotations

import json

from msgspec import DecodeError, Struct, convert, to_builtins
from msgspec.json import decode, encode

from gspc_trio.components.launcher.events import ClientMoved, Stop
from gspc_trio.components.launcher.jobs import LaunchedJob, ServerLiveness
from gspc_trio.components.launcher.machine import Launcher
from gspc_trio.components.launcher.states import LauncherState
from gspc_trio.components.provision.site_job import SiteSnapshot
from gspc_trio.records.facts import StudyChanged


class LauncherSnapshot(Struct, frozen=True):
    """All that a :class:`Launcher` knows, but for its options.

    It has parts of the launcher itself, and is to be written before the next event.

    Attributes:
        now: time of the last event.
        jobs: that are not known to be gone, and those of the last servers.
        live: names of the former.
        postponed: jobs that wait for a place, in order.
        calls: of the engine: the next number, and those that have not ended.
        accepted, told: what is kept for a server that comes back.
        site: what is known of jobs.
        facts: the last record of the study, and when it was last told that the server was heard.
        state: where the launcher is; this and the others are as its attributes.
    """

    now: float
    jobs: list[LaunchedJob]
    live: list[str]
    postponed: list[LaunchedJob]
    calls: tuple[int, dict[int, tuple[str, str]]]
    accepted: list[int]
    told: list[ClientMoved]
    site: SiteSnapshot
    facts: tuple[StudyChanged, float]
    state: LauncherState
    incarnation: int
    restart_at: float
    unconnected: int
    connection: int | None
    life: ServerLiveness
    return_at: float | None
    stale: str
    stop: Stop
    stop_at: float
    cancel_at: float | None


def snapshot_of(launcher: Launcher) -> LauncherSnapshot:
    """Return all that a launcher knows."""
    kept = launcher._kept
    jobs = {job.uid: job for job in (*launcher._servers.values(), *launcher._jobs.values())}
    return LauncherSnapshot(
        now=launcher.now,
        jobs=[*jobs.values()],
        live=[*launcher._jobs],
        postponed=[*launcher._postponed],
        calls=launcher._calls.state(),
        accepted=[*kept.accepted],
        told=[*kept.told.values()],
        site=launcher._site.snapshot(),
        facts=launcher._facts.state(),
        state=launcher.state,
        incarnation=launcher._incarnation,
        restart_at=launcher._restart_at,
        unconnected=launcher._unconnected,
        connection=launcher._connection,
        life=launcher._liveness,
        return_at=launcher._return_at,
        stale=launcher._stale,
        stop=launcher._stop,
        stop_at=launcher._stop_at,
        cancel_at=launcher._cancel_at,
    )


def restore(launcher: Launcher, known: LauncherSnapshot) -> None:
    """Have a new launcher know what another one with the same options has known."""
    jobs = {job.name: job for job in known.jobs}
    launcher.now, launcher.state = known.now, known.state
    launcher._jobs.update((name, jobs[name]) for name in known.live)
    for job in known.jobs:
        if not job.client_ids:
            launcher._servers.keep(job.incarnation, job)
    for job in known.postponed:
        launcher._postponed.add(job)
    for job in (*launcher._jobs.values(), *known.postponed):
        launcher._clients |= {client.client_id: job for client in job.clients}
    launcher._calls.restore(known.calls)
    for request in known.accepted:
        launcher._kept.accepted.keep(request, None)
    for moved in known.told:
        launcher._kept.told.keep(moved.client_id, moved)
    launcher._site.restore(known.site)
    launcher._facts.restore(known.facts)
    launcher._incarnation, launcher._restart_at = known.incarnation, known.restart_at
    launcher._unconnected, launcher._connection = known.unconnected, known.connection
    launcher._liveness, launcher._return_at, launcher._stale = known.life, known.return_at, known.stale
    launcher._stop, launcher._stop_at, launcher._cancel_at = known.stop, known.stop_at, known.cancel_at


def encode_snapshot(known: LauncherSnapshot) -> bytes:
    """Return a snapshot as JSON; 10,000 jobs take a few milliseconds."""
    try:
        return encode(known)
    except UnicodeEncodeError:  # the name of a file that is no text
        return json.dumps(to_builtins(known, str_keys=True)).encode()


def decode_snapshot(data: bytes) -> LauncherSnapshot:
    """Return the snapshot that JSON tells.

    Raises:
        ValueError: it tells of none.
    """
    try:
        return decode(data, type=LauncherSnapshot)
    except DecodeError:
        return convert(json.loads(data), LauncherSnapshot, str_keys=True)
