"""Several run-time systems, each by a name, as one handle for a job (APP-3, GSPC19 3.5, 4.3.2)."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import TypeAlias

from msgspec.structs import replace

from gspc_trio.components.rm.messages import ClassStatus
from gspc_trio.components.rts.messages import LOCATIONS_MAX, RequestExplanation, RtsStatus
from gspc_trio.components.rts.shell.client import Home, RunTimeSystem, join_rts
from gspc_trio.core.ids import JobId
from gspc_trio.core.similar import did_you_mean

_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_-]{0,31}")

Named: TypeAlias = Mapping[str, RunTimeSystem]

ConnectionFiles: TypeAlias = Path | str | Mapping[str, Path | str]
"""The connection file of a run-time system, or those of several by name."""


class LocationError(ValueError):
    """Names of run-time systems cannot be used, two are names of the same one, or a task names another."""


class RunTimeSystems(RunTimeSystem):
    """Several run-time systems on which one job runs. The first is where it is asked for when it is not said.

    Args:
        named: name -> run-time system.

    Attributes:
        named: all of them, in their order.
        job_ids: name -> what a job of this process is called there, the last one that has joined.

    Raises:
        LocationError: a name cannot be used, or two are names of the same one.
    """

    def __init__(self, named: Named) -> None:
        check_names(named)
        first = next(iter(named.values()))
        super().__init__(first.network, first.address, first.peer, outside=first.outside)
        self.named: dict[str, RunTimeSystem] = dict(named)
        self.home: Home | None = first.home
        self.job_ids: dict[str, JobId] = {}
        known: dict[str, str] = {}
        for name, rts in named.items():
            before = known.setdefault(rts.peer.instance or rts.network.instance, name)
            if before != name:
                raise LocationError(
                    f"{before} and {name} are the same run-time system: give it once, under one name"
                )

    @property
    def embedded(self) -> bool:
        """Whether all of them live in this process."""
        return all(rts.embedded for rts in self.named.values())

    @property
    def has_outsiders(self) -> bool:
        """Whether clients outside this process can reach one of them."""
        return any(rts.has_outsiders for rts in self.named.values())

    async def status(self) -> RtsStatus:
        """Return the state of the first one, with the resource classes of all."""
        told = [await rts.status() for rts in self.named.values()]
        classes: dict[str, ClassStatus] = {}
        for one in told:
            for name, it in one.classes.items():
                so_far = classes.get(name, ClassStatus(0, 0, 0, 0))
                total, free = so_far.total + it.total, so_far.free + it.free
                held, blocked = so_far.held + it.held, so_far.blocked + it.blocked
                classes[name] = ClassStatus(total, free, held, blocked)
        return replace(told[0], classes=classes)

    async def explain(self, job: JobId) -> tuple[RequestExplanation, ...]:
        """Return why each request of a job waits at the first of them that it waits at."""
        for name, rts in self.named.items():
            if waiting := await rts.explain(self.job_ids.get(name, job)):
                reason = f"at {name}: {waiting[0].reason}"
                return (replace(waiting[0], reason=reason), *waiting[1:])
        return ()


def check_names(named: Mapping[str, object]) -> None:
    """Raise LocationError if these cannot be the names of the run-time systems of a job."""
    if not named:
        raise LocationError("no run-time system is named")
    if len(named) > LOCATIONS_MAX:
        raise LocationError(f"a job has at most {LOCATIONS_MAX} run-time systems, not {len(named)}")
    for name in named:
        if not isinstance(name, str) or not _NAME.fullmatch(name):
            raise LocationError(
                f"a run-time system is named by a letter, then letters, digits, - and _, not {name!r:.60}"
            )


def systems_or_files(
    given: Mapping[str, RunTimeSystem | Path | str],
) -> tuple[RunTimeSystems | None, ConnectionFiles | None]:
    """Return several run-time systems that are open as one handle, or their connection files.

    Raises:
        LocationError: a name cannot be used, or two name the same one.
        TypeError: one is neither, or some are files and others are not.
    """
    check_names(given)
    files = {name: one for name, one in given.items() if isinstance(one, str | Path)}
    if len(files) == len(given):
        return None, files
    systems = {name: one for name, one in given.items() if isinstance(one, RunTimeSystem)}
    if len(systems) < len(given):
        raise TypeError(
            "rts names connection files, or what open_rts has opened: all of them one or the other"
        )
    return RunTimeSystems(systems), None


def check_location(at: str, rts: RunTimeSystem) -> None:
    """Raise LocationError if ``at`` names none of the run-time systems of a job."""
    if not at:
        return
    if not isinstance(rts, RunTimeSystems):
        raise LocationError(f"at={at!r} is for a job on several run-time systems, each with a name")
    if at not in rts.named:
        names = ", ".join(rts.named)
        raise LocationError(
            f"there is no run-time system {at!r}; the job has {names}{did_you_mean(at, rts.named)}"
        )


@asynccontextmanager
async def join_several(files: Mapping[str, Path | str]) -> AsyncIterator[RunTimeSystems]:
    """Connect to several running run-time systems by their connection files, for the time of a block.

    Args:
        files: name -> connection file.

    Raises:
        LocationError: a name cannot be used, or two are names of the same one.
        ConnectionFileError: a file is missing, unsafe or not a connection file.
        ConnectFailed: nobody answers there, or the one who does is not ours.
    """
    check_names(files)
    async with AsyncExitStack() as stack:
        named = {name: await stack.enter_async_context(join_rts(Path(file))) for name, file in files.items()}
        yield RunTimeSystems(named)
