"""A run-time system as a site of a co-allocation service (COA-2).

All parts of a request at one site get their resources by one grant. A process is made ready on each of them;
when the service says that all parts are ready everywhere, the programs start.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Mapping, Sequence
from contextlib import AsyncExitStack, suppress
from functools import partial
from pathlib import Path

import trio
from msgspec import DecodeError, Struct
from msgspec.msgpack import decode

from gspc_trio.components.coallocation.agents.delegation import (
    CredentialUse,
    UseCredential,
)
from gspc_trio.components.coallocation.agents.service import PeerGone as SiteGone
from gspc_trio.components.coallocation.agents.service import PeerSaid, SiteOffered
from gspc_trio.components.coallocation.agents.words import (
    CredentialLent,
    CredentialWanted,
    DownMessage,
    PartNeed,
    PartOutputs,
    PartResources,
    PartsAccepted,
    PartsDone,
    PartsGo,
    PartsReady,
    PartsRequest,
    PlacedPart,
    SiteOffer,
    UpMessage,
    batch_queue,
)
from gspc_trio.components.coallocation.running import PartProgram
from gspc_trio.components.coallocation.shell.kept import KeptGrant, KeptGrants
from gspc_trio.components.coallocation.shell.pilots import left_pilots, open_pilots, pilot_cores
from gspc_trio.components.coallocation.shell.programs import (
    PART_VARIABLE,
    RANK_VARIABLE,
    InsideBarrier,
    NotReady,
    ProgramFailed,
    in_time,
    named_at,
    run_inside,
)
from gspc_trio.components.coallocation.shell.single import SingleRuns
from gspc_trio.components.rts.shell.acquire import AcquireRefused, Resources, open_resources
from gspc_trio.components.rts.shell.client import RunTimeSystem, join_rts
from gspc_trio.components.rts.shell.delegation import minted
from gspc_trio.components.rts.shell.direct import CallFailed
from gspc_trio.core.code import Program
from gspc_trio.core.held import RESOURCES_VARIABLE
from gspc_trio.core.ids import ResourceId, RifId
from gspc_trio.core.task import Requirement, Shape
from gspc_trio.nursery.connections.connection_file import ConnectionFileError
from gspc_trio.nursery.connections.errors import ConnectionProblem
from gspc_trio.nursery.connections.rpc import PeerGone, RemoteError
from gspc_trio.nursery.scopes.scope import open_scope

log: logging.Logger = logging.getLogger(__name__)

LOOK_S = 2.0
"""How often a run-time system is asked what it has."""

AGAIN_S = 1.0
"""A run-time system that is gone is looked for again after so long."""

OUTPUT_CHARACTERS_MAX = 4 << 20
"""Of what the programs of a request print here so much is told, of each the last."""

COUNT_MAX = 100_000
"""So many resources a request may want at a site."""

KNOWN_MAX = 1000
"""So many programs of parts a site remembers."""


class _Place(Struct):
    """One resource of a request: its part, the number within the part, and what its program has printed."""

    part: PlacedPart
    rank: int
    resource: ResourceId
    program: PartProgram
    output: str = ""


class _Run:
    """A request at a site."""

    def __init__(self) -> None:
        self.scope = trio.CancelScope()
        self.go = trio.Event()
        self.refused = trio.Event()
        self.resources: PartResources = ()
        self.places: list[_Place] = []
        self.ready = 0

    def stop(self, scope: trio.CancelScope) -> None:
        """Stop its programs; those that wait at their own barrier are told so, and end by themselves."""
        if not self.go.is_set() and any(place.program.start == "inside" for place in self.places):
            self.refused.set()
        else:
            scope.cancel()

    def told(self) -> str:
        """Return what programs are told of the resources of their job."""
        return ",".join(one for _, names in self.resources for one in names)

    def outputs(self) -> PartOutputs:
        """Return what the programs of each part have printed."""
        found: dict[int, str] = {}
        most = OUTPUT_CHARACTERS_MAX // max(1, len(self.places))
        for place in self.places:
            found[place.part.part] = found.get(place.part.part, "") + place.output[-most:]
        return tuple(sorted(found.items()))


class RtsSite:
    """One run-time system; :meth:`run` serves the service.

    Args:
        name: of the site.
        rts: the run-time system, or its connection file.
        put: takes what the site says to the service.
        place: returns the names of the services from the top to this one's.
        lends: it gives resources to whoever asks the service, not only to who brings a credential.
    """

    def __init__(
        self,
        name: str,
        rts: RunTimeSystem | Path,
        put: Callable[[PeerSaid | SiteOffered | SiteGone], None],
        place: Callable[[], tuple[str, ...]],
        lends: bool = True,
    ) -> None:
        self.name = name
        self._rts = rts
        self._put = put
        self._place = place
        self._lends = lends
        self._runs: dict[str, _Run] = {}
        self._hosts: dict[str, frozenset[ResourceId]] = {}
        self._host_of: dict[ResourceId, str] = {}
        self._grants: KeptGrants | None = None
        self._singles: SingleRuns | None = None
        self._shapes: dict[PartNeed, Shape] = {}
        self._tries = 0
        self._known: dict[bytes, PartProgram] = {}
        self._programs: dict[tuple[bytes, str], Program] = {}
        self._system: RunTimeSystem
        self._resources: Resources
        self._nursery: trio.Nursery | None = None

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Serve until cancelled, or until a run-time system that was given open is gone.

        Raises:
            ConnectionFileError, ConnectionProblem: there was no such run-time system at the start.
        """
        started, said = False, ""
        while True:
            try:
                async with AsyncExitStack() as stack:
                    system = self._rts
                    if isinstance(system, Path):
                        system = await stack.enter_async_context(join_rts(system))
                    resources = await stack.enter_async_context(open_resources(system, "co-allocation"))
                    self._system, self._resources = system, resources
                    await self._look()
                    said = ""
                    if not started:
                        started = True
                        task_status.started()
                    await self._serve_system(system)
            except (ConnectionFileError, ConnectionProblem, PeerGone, RemoteError) as error:
                if not started:
                    raise
                if str(error) != said:  # once while it stays the same
                    said = str(error)
                    log.warning("site %s: %s", self.name, said)
            if not isinstance(self._rts, Path):
                return
            await trio.sleep(AGAIN_S)

    def tell(self, message: DownMessage | CredentialWanted) -> None:
        """Take what the service says."""
        if isinstance(message, CredentialWanted):
            if self._nursery is None:
                self._say(CredentialLent(message.request, (), error=f"{self.name} is gone"))
            else:
                self._nursery.start_soon(self._lend, message.request)
            return
        if isinstance(message, PartsRequest):
            if self._nursery is None:
                self._say(PartsDone(message.request, f"{self.name} is gone"))
                return
            if not self._begin_single(message):
                self._begin(message)
            return
        asked = self._runs.get(message.request)
        if isinstance(message, PartsGo):
            if asked is not None:
                asked.resources = message.resources
                asked.go.set()
            elif self._singles is not None:
                self._singles.go(message)
        elif asked is not None:
            asked.stop(asked.scope)
        elif self._singles is not None:
            self._singles.cancel(message)

    def _begin(self, message: PartsRequest, kept: KeptGrant | None = None) -> None:
        """Serve a request in a task of its own.

        Args:
            message: the request.
            kept: what it has been granted already.
        """
        assert self._nursery is not None
        run = self._runs[message.request] = _Run()
        self._nursery.start_soon(self._serve, message, run, kept)

    def _begin_single(self, message: PartsRequest) -> bool:
        """Serve a request without a task; return False if it needs one."""
        singles = self._singles
        if singles is None or len(message.parts) != 1 or not self._lends:
            return False
        (part,) = message.parts
        need = part.need
        if need.count != 1 or need.memory_bytes or part.credential is not None:
            return False
        if batch_queue(need.contact) is not None:
            return False
        try:
            program = self._program_of(need.payload)
        except NotReady:
            return False
        if program.start != "together" or program.max_time_s is not None:
            return False
        shape = self._shapes.get(need)
        if shape is None:
            if len(self._shapes) >= KNOWN_MAX:
                self._shapes.clear()
            shape = self._shapes[need] = Shape((self._requirement(part, ""),))
        singles.begin(message, program, shape)
        return True

    async def _lend(self, request: str) -> None:
        """Have the run-time system mint a credential for a request of a service above."""
        if not self._lends:
            self._say(CredentialLent(request, (), error=self._asks_for_credentials()))
            return
        try:
            credential = await minted(self._system, self.name, request)
        except (PeerGone, RemoteError) as error:
            self._say(CredentialLent(request, (), error=f"{self.name} is gone: {error}"))
        else:
            self._say(CredentialLent(request, (), credential))

    def _asks_for_credentials(self) -> str:
        return f"site {self.name} gives resources only to requests with a credential for it"

    def _say(self, message: UpMessage | CredentialLent) -> None:
        self._put(PeerSaid(self.name, message))

    # What it has

    async def _serve_system(self, system: RunTimeSystem) -> None:
        """Look at what the run-time system has again and again, until it is gone."""
        reason = "the service ends"
        try:
            async with open_scope() as nursery:
                self._nursery = nursery
                grants = self._grants = KeptGrants(system, self._resources, nursery)
                self._singles = SingleRuns(
                    self.name, grants, nursery, self._put, self._host, self._program_at, self._begin
                )
                nursery.start_soon(self._look_again)
                await system.peer.lost.wait()
                reason = system.peer.reason
                self._nursery = None
                self._put(SiteGone(self.name, reason))
                nursery.cancel_scope.cancel()
        finally:
            if self._singles is not None:
                self._singles.forget()
            self._nursery = self._grants = self._singles = None

    async def _look_again(self) -> None:
        while True:
            await trio.sleep(LOOK_S)
            try:
                await self._look()
            except PeerGone:
                return

    async def _look(self) -> None:
        """Tell the service what there is."""
        status = await self._system.status()
        if (left := left_pilots(status)) and self._nursery is not None:
            self._nursery.start_soon(self._take_down, left)
        hosts = {host: frozenset(ids) for host, ids in status.hosts.items()}
        if hosts != self._hosts:
            self._shapes.clear()
        self._hosts = hosts
        self._host_of = {one: host for host, ids in self._hosts.items() for one in ids}
        there = {kind: entry.total for kind, entry in status.classes.items()}
        held = {} if self._grants is None else self._grants.held
        free = {kind: entry.free + held.get(kind, 0) for kind, entry in status.classes.items()}
        memory_bytes = max((one.total_bytes for one in status.memories.values()), default=0)
        features = frozenset(one for rif in status.rifs for one in rif.features)
        names = frozenset(hosts)
        offer = SiteOffer((self.name,), there, free, memory_bytes, features, names, self._lends)
        self._put(SiteOffered(offer))

    async def _take_down(self, rif_ids: Sequence[RifId]) -> None:
        with suppress(PeerGone, RemoteError):
            await self._system.teardown(rif_ids)

    # Requests

    async def _serve(self, wanted: PartsRequest, run: _Run, kept: KeptGrant | None = None) -> None:
        """Get the parts of a request, run their programs, and say how they have ended."""
        error = "cancelled"
        with run.scope:
            try:
                await self._verify(wanted.parts)
                if kept is None:
                    error = await self._hold(wanted, run)
                else:
                    error = await self._run_parts(wanted.request, wanted.parts, kept, run)
            except NotReady as not_ready:
                error = str(not_ready)
            except PeerGone as gone:
                error = f"{self.name} is gone: {gone.reason}"
        del self._runs[wanted.request]
        self._say(PartsDone(wanted.request, error, run.go.is_set(), run.outputs()))

    async def _verify(self, parts: Sequence[PlacedPart]) -> None:
        """Have the run-time system look at the credential; what this very service asks for has none.

        Raises:
            NotReady: there is none, and there should be, or it does not allow this.
        """
        credentials = {part.credential for part in parts}
        if None in credentials:
            if self._lends:
                return
            raise NotReady(self._asks_for_credentials())
        classes = frozenset(part.need.resource_class for part in parts)
        use = CredentialUse(self.name, classes, sum(part.need.count for part in parts), self._place())
        for credential in credentials:
            assert credential is not None
            try:
                await self._system.peer.call(UseCredential(credential, use))
            except RemoteError as error:
                raise NotReady(f"site {self.name}: {error.message}") from None

    async def _hold(self, wanted: PartsRequest, run: _Run) -> str:
        """Acquire all parts by one grant, and run on them; return why not all went well.

        Raises:
            NotReady: they could not be had, or made ready.
        """
        # Memory is that of the host of the first resource.
        parts = sorted(wanted.parts, key=lambda part: not part.need.memory_bytes)
        if not 0 < sum(part.need.count for part in parts) <= COUNT_MAX:
            raise NotReady(f"site {self.name}: a request has 1 to {COUNT_MAX} resources at a site")
        if not pilot_cores(parts):
            return await self._hold_parts(wanted.request, parts, {}, run)
        self._tries += 1
        file = self._rts if isinstance(self._rts, Path) else None
        async with open_pilots(self._system, file, self._resources.job, self._tries, parts) as pilots:
            await self._look()
            return await self._hold_parts(wanted.request, parts, pilots, run)

    async def _hold_parts(
        self, request: str, parts: Sequence[PlacedPart], pilots: Mapping[int, str], run: _Run
    ) -> str:
        grants = self._grants
        if grants is None:
            raise NotReady(f"{self.name} is gone")
        needs: list[Requirement] = []
        for part in parts:
            needs += [self._requirement(part, pilots.get(part.part, ""))] * part.need.count
        cores = pilot_cores(parts)
        for part in parts:  # nobody else gets what would go with the pilots
            if (where := batch_queue(part.need.contact)) is not None:
                needs += [self._requirement(part, pilots[part.part])] * (cores[where] - part.need.count)
        memories = [part.need.memory_bytes for part in parts if part.need.memory_bytes]
        try:
            kept = await grants.acquire(needs, memories)
        except (AcquireRefused, ValueError) as refused:
            raise NotReady(f"site {self.name}: {refused}") from None
        return await self._run_parts(request, parts, kept, run, not pilots)

    async def _run_parts(
        self,
        request: str,
        parts: Sequence[PlacedPart],
        kept: KeptGrant,
        run: _Run,
        may_be_kept: bool = True,
    ) -> str:
        """Run on what was granted, and give it back; return why not all went well."""
        grants, error = self._grants, None
        assert grants is not None
        try:
            programs = [self._program_of(part.need.payload) for part in parts]
            run.places = _places(parts, programs, kept.held.resources)
            if not _is_ready(kept, run.places):  # else that all are ready says this too
                self._say(PartsAccepted(request))
            error = await self._run_on(request, grants, kept, run)
            return error
        finally:
            kept.is_clean = error == "" and may_be_kept
            grants.give_back(kept)

    def _program_of(self, payload: bytes) -> PartProgram:
        """Return what a part runs; jobs that are alike say the same.

        Raises:
            NotReady: it says nothing that can be read.
        """
        known = self._known.get(payload)
        if known is None:
            if len(self._known) >= KNOWN_MAX:
                self._known.clear()
            try:
                known = self._known[payload] = decode(payload, type=PartProgram)
            except DecodeError as error:
                raise NotReady(f"site {self.name}: what is to run there cannot be read: {error}") from None
        return known

    def _program_at(self, payload: bytes, program: PartProgram, directory: str) -> Program:
        """Return what runs at a worker whose process is in a directory."""
        key = payload, directory
        known = self._programs.get(key)
        if known is None:
            if len(self._programs) >= KNOWN_MAX:
                self._programs.clear()
            known = self._programs[key] = _as_program(program, directory)
        return known

    def _requirement(self, part: PlacedPart, pilot: str) -> Requirement:
        need = part.need
        hosts = self._hosts.get(pilot or need.contact) if need.contact != self.name else None
        if pilot and not hosts:
            raise NotReady(f"{pilot} is gone")
        preferred = tuple(sorted(hosts or ()))
        return Requirement(
            need.resource_class, preferred, bool(preferred), features=tuple(sorted(need.features))
        )

    async def _run_on(self, request: str, grants: KeptGrants, kept: KeptGrant, run: _Run) -> str:
        """Make a process ready on each resource, and start the programs when the service says so.

        Raises:
            NotReady: one could not be made ready, or was lost before the start.
        """
        if len(run.places) == 1:
            try:  # as below, but for what a nursery costs
                await self._run_place(request, grants, kept, run, run.places[0])
            except ProgramFailed as error:
                return str(error)
            return "cancelled" if run.refused.is_set() else ""
        failures: list[Exception] = []
        async with open_scope() as nursery:

            async def run_one(place: _Place) -> None:
                try:
                    await self._run_place(request, grants, kept, run, place)
                except (NotReady, ProgramFailed) as error:
                    failures.append(error)
                    run.stop(nursery.cancel_scope)

            for place in run.places[1:]:
                nursery.start_soon(run_one, place)
            await run_one(run.places[0])
        if not failures:
            return "cancelled" if run.refused.is_set() else ""
        if isinstance(failures[0], NotReady):
            raise failures[0]
        return str(failures[0])

    async def _run_place(
        self, request: str, grants: KeptGrants, kept: KeptGrant, run: _Run, place: _Place
    ) -> None:
        """Report that a process is ready, wait for the others, and run its program."""
        name = place.program.program[0]
        try:
            ready = await grants.worker(kept, place.resource, place.program.directory)
            is_inside = place.program.start == "inside"
            if not is_inside:
                self._report(request, run)
                if not await ready.wait_for(run.go):
                    raise NotReady(f"{place.resource} was lost before all parts were ready")
            named = named_at(run.resources, place.program.part, place.rank)
            program = self._program_at(place.part.need.payload, place.program, ready.directory)
            if is_inside:
                barrier = InsideBarrier(run.go, run.refused, run.told, partial(self._report, request, run))
                run_it = partial(run_inside, ready.worker, program, barrier, named)
                told = await in_time(name, place.program.max_time_s, run_it)
            elif place.program.max_time_s is None:
                told = await ready.worker.run(program, named=named)
            else:
                run_it = partial(ready.worker.run, program, named=named)
                told = await in_time(name, place.program.max_time_s, run_it)
            place.output = "" if told is None else str(told["stdout"])
            if told is not None and not run.go.is_set():
                raise NotReady(f"{name} ended before all were ready: it has not called the barrier")
        except CallFailed as error:
            if not run.go.is_set():
                raise NotReady(f"the process at {place.resource} was not ready: {error}") from None
            place.output = error.outcome.stdout.decode(errors="replace")
            raise ProgramFailed(f"{name}: {error}") from None
        except (RemoteError, PeerGone, ConnectionProblem, ValueError) as error:
            if not run.go.is_set():
                raise NotReady(f"the process at {place.resource} was not ready: {error}") from None
            raise ProgramFailed(f"{name} at {place.resource} was lost: {error}") from None

    def _host(self, resource: ResourceId) -> str:
        return self._host_of.get(resource, "")

    def _report(self, request: str, run: _Run) -> None:
        """One more is ready."""
        run.ready += 1
        if run.ready == len(run.places):
            self._say(PartsReady(request, self._told(run.places)))

    def _told(self, places: Sequence[_Place]) -> PartResources:
        """Return the resources of each part with their hosts, as programs are told of them."""
        found: dict[int, tuple[str, ...]] = {}
        for place in places:
            name = f"{place.resource}@{self._host(place.resource)}"
            found[place.part.part] = (*found.get(place.part.part, ()), name)
        return tuple(sorted(found.items()))


def _is_ready(kept: KeptGrant, places: Sequence[_Place]) -> bool:
    """Whether a process is ready on each resource of a grant before its programs are."""
    together = all(place.program.start == "together" for place in places)
    return together and all(place.resource in kept.workers for place in places)


def _as_program(asked: PartProgram, directory: str) -> Program:
    """Return what runs at a worker whose process is in a directory, with the names of what it is told."""
    told = {name: f"{{{name}}}" for name in (RESOURCES_VARIABLE, PART_VARIABLE, RANK_VARIABLE)}
    where = asked.directory or os.getcwd()
    return Program(asked.program, {**told, **asked.environment}, "" if where == directory else where)


def _places(
    parts: Sequence[PlacedPart], programs: Sequence[PartProgram], resources: Sequence[ResourceId]
) -> list[_Place]:
    """Return the resources of a grant, each with its part, in the order of the parts."""
    left = iter(resources)
    found = []
    for part, program in zip(parts, programs, strict=True):
        found += [_Place(part, rank, next(left), program) for rank in range(part.need.count)]
    return sorted(found, key=lambda place: (place.part.part, place.rank))
