"""Co-allocation requests with their order, run by a tree of simulated services (COA-2 to COA-6).

Clients submit whole requests over connections of their own; services give stages to those below. Clients,
too, are killed, suspended and cut off. The world checks what its programs do, whatever services believe: no
program starts before all that its job waits for has finished, nor more often than its job has attempts, nor
after its client was told of the end. With a journal the top is killed, too, at a time, or when it writes a
record: just before that is durable, or just after. It comes back with what it had noted; so do its clients.
"""

from __future__ import annotations

from collections import Counter, deque
from functools import partial

from attrs import define, field
from msgspec.msgpack import decode

from gspc_trio.components.coallocation.agents.service import ServiceMessage, ToPeer
from gspc_trio.components.coallocation.agents.words import (
    LEASE_S,
    AttachRequest,
    CancelRequest,
    JobReport,
    JobsEnded,
    PartsDone,
    PartsGo,
    PartsRequest,
    PlacedPart,
    RequestDone,
    RequestTaken,
    SubmitParts,
    SubmitRequest,
)
from gspc_trio.components.coallocation.flow import CoJobState
from gspc_trio.components.coallocation.host import (
    NOBODY,
    PARENT_BACK_S,
    CoallocationHost,
    NoteRecords,
    RequestRead,
    RequestRestored,
)
from gspc_trio.components.coallocation.jobs import CoJob, jobs_with_options
from gspc_trio.components.coallocation.journal import NotedRequests
from gspc_trio.components.coallocation.language import JobOrder, order_of, parse_coallocation
from gspc_trio.components.coallocation.running import PartProgram
from gspc_trio.testing.checkers.base import Broken
from gspc_trio.testing.coallocation import (
    END_S,
    FAULTS_UNTIL_S,
    LATE_S,
    SITES,
    CoallocationWorld,
    Connection,
    Held,
    SimulatedSite,
)

CLIENTS = ("client0", "client1", "client2")


@define(eq=False)
class Client:
    """A client of the top: what it has submitted, and what it hears while it is suspended."""

    connection: Connection | None = None
    alive: bool = True
    paused: bool = False
    waiting: deque[ServiceMessage] = field(factory=deque)


@define(eq=False)
class Submitted:
    """A request, and what its client was told.

    Attributes:
        client: whose it is.
        jobs, order: of it.
        reports: number of a job -> how it has ended.
        request_id: by which its service knows it.
        is_cancelled: its client has cancelled it.
    """

    client: str
    jobs: tuple[CoJob, ...]
    order: JobOrder
    reports: dict[int, JobReport] = field(factory=dict)
    request_id: str = ""
    is_cancelled: bool = False


class RequestsWorld(CoallocationWorld):
    """The world with whole requests; see :class:`CoallocationWorld`.

    Args:
        seed, faults, cut_at: as there.
        journal: the top has a journal.
        kill_at: number of the record of it at which the top is killed; -1: never.
        kills_before: it is killed just before the record is durable, not just after.
    """

    def __init__(
        self,
        seed: int,
        faults: bool = True,
        cut_at: int = -1,
        journal: bool = False,
        kill_at: int = -1,
        kills_before: bool = False,
    ) -> None:
        self.noted: NotedRequests | None = NotedRequests() if journal else None
        self.records: int = 0
        self._kill_at, self._kills_before = kill_at, kills_before
        self._of_killed: set[Connection] = set()
        self.clients: dict[str, Client] = {name: Client() for name in CLIENTS}
        self.submitted: dict[str, Submitted] = {}
        self.starts: Counter[tuple[str, int]] = Counter()
        self._ran: dict[str, set[int]] = {}
        super().__init__(seed, faults, cut_at)
        for name in CLIENTS:
            self._connect(name)

    def _machine(self, name: str, instance: str) -> CoallocationHost:
        if name != "top" or self.noted is None:
            return CoallocationHost(name, instance)
        return CoallocationHost(name, instance, True, self.noted.count)

    def _start(self, name: str) -> None:
        super()._start(name)
        if name != "top" or self.noted is None:
            return
        for noted in (*self.noted.closed.values(), *self.noted.requests.values()):
            if name not in self.hosts:
                return  # it was killed again while it read its journal
            read = self._read(NOBODY + noted.request_id, noted.told)
            begun, reports = dict(noted.begun), tuple(noted.reports.values())
            stages = tuple(noted.stages.values())
            was = noted.request_id in self.noted.closed, noted.is_cancelled
            self._feed(name, RequestRestored(noted.request_id, read, begun, reports, stages, *was))

    def _write(self, name: str, action: NoteRecords) -> None:
        assert self.noted is not None
        for record in action.records:
            self.records += 1
            if self.records == self._kill_at:
                self._note(f"{name} was killed at {type(record).__name__}")
                if not self._kills_before:
                    self.noted.take(record)
                self._kill(name)
                return
            self.noted.take(record)

    def _plan(self) -> None:
        at_s = self._random.uniform(2.0, FAULTS_UNTIL_S - 15.0)
        client = self._random.choice(CLIENTS)
        kind = self._random.choice(("kill", "pause", "other", "other", "other", "other"))
        if self.noted is not None and kind != "other":
            if self._kill_at < 0 and self._random.random() < 0.5:
                self._kill_at, self._kills_before = self._random.randint(2, 150), self._random.random() < 0.5
            else:
                self._at(at_s, partial(self._kill, "top"))
        elif kind == "kill":
            self._at(at_s, partial(self._kill_client, client))
        elif kind == "pause":
            self._at(at_s, partial(self._pause_client, client))
        else:
            super()._plan()

    # Clients

    def _connect(self, name: str) -> None:
        client = self.clients[name]
        client.connection = Connection((("top", name), (name, "top")))
        self.hosts["top"].peers[name] = client.connection

    def _come_back(self, name: str) -> None:
        """A client looks for the top that is started again, and asks for its requests."""
        client = self.clients[name]
        if not client.alive or (client.connection is not None and client.connection.open):
            return
        if "top" not in self.hosts:
            self._at(self.now + 0.5, partial(self._come_back, name))
            return
        self._connect(name)
        for request, submitted in self.submitted.items():
            if submitted.client == name and request not in self.answers and submitted.request_id:
                self._send(name, "top", AttachRequest(request, submitted.request_id))
                if submitted.is_cancelled:  # the top may not have heard it
                    self._told_s[request] = self.now
                    self._send(name, "top", CancelRequest(request))

    def _kill_client(self, name: str) -> None:
        client = self.clients[name]
        if client.alive and client.connection is not None:
            self._note(f"{name} was killed")
            self._cut(client.connection)
            self._lose_client(name)

    def _lose_client(self, name: str) -> None:
        self.clients[name].alive = False
        self.clients[name].waiting.clear()
        for request, submitted in self.submitted.items():
            if submitted.client == name:
                self.answers.setdefault(request, PartsDone(request, "its client is gone"))
                self._told_s.setdefault(request, self.now)

    def _pause_client(self, name: str) -> None:
        if not self.clients[name].paused:
            self._note(f"{name} was suspended for {3 * LEASE_S:g} s")
            self.clients[name].paused = True
            self._at(self.now + 3 * LEASE_S, partial(self._resume_client, name))

    def _resume_client(self, name: str) -> None:
        client = self.clients[name]
        client.paused = False
        while client.waiting:
            self._hear(name, client.waiting.popleft())

    def _submit(self, name: str) -> None:
        random = self._random
        client = random.choice(CLIENTS)
        text = self._text(name)
        tree = parse_coallocation(text)
        submitted = self.submitted[name] = Submitted(client, jobs_with_options(tree, {}), order_of(tree))
        assert len(submitted.jobs) == submitted.order.jobs
        connection = self.clients[client].connection
        if not self.clients[client].alive or connection is None or not connection.open:
            self.answers[name] = PartsDone(name, "its client is gone")
            return
        _, credentials = self._brought()
        self._send(client, "top", SubmitRequest(name, text, credentials=credentials))
        if self._faults and random.random() < 0.15:
            self._at(self.now + random.uniform(0.0, 4.0), partial(self._cancel_request, client, name))

    def _cancel_request(self, client: str, name: str) -> None:
        if self.clients[client].alive:
            self.submitted[name].is_cancelled = True
            self._told_s.setdefault(name, self.now)
            self._send(client, "top", CancelRequest(name))

    def _text(self, request: str) -> str:
        """Return a request; each job has its name and number as arguments, to know it by."""
        random = self._random
        stated = random.random() < 0.4
        number = 0

        def job() -> str:
            nonlocal number
            number += 1
            most = min(site.cores for site in self.sites.values())
            parts = []
            for _ in range(random.choice((1, 1, 1, 2))):
                contact = random.choice(("", "", "", f"(contact={random.choice(list(SITES))})"))
                count = random.choice(("1", "2 1", str(max(1, most // 2))))
                parts.append(f"&(executable=x)(arguments={request} {number})(count={count}){contact}")
            more = random.choice(("", "", "(on_error=3)")) + random.choice(("", "(barrier_timeout=2)"))
            more += random.choice(("", "", "(attempts=2)"))
            if stated and number > 1:
                awaited = random.sample(range(1, number), min(number - 1, random.randint(0, 2)))
                more += f"(wait={','.join(map(str, awaited))})" if awaited else ""
            if len(parts) == 1:
                return parts[0] + more
            return f"+{more}" + "".join(f"({part})" for part in parts)

        def stages(depth: int) -> str:
            found = []
            for _ in range(random.randint(1, 3)):
                deeper = depth < 3 and random.random() < 0.5
                found.append(stages(depth + 1) if deeper else job())
            return "*" + "".join(f"({one})" for one in found)

        return stages(1)

    def _hear(self, name: str, message: ServiceMessage) -> None:
        client = self.clients[name]
        if client.paused:
            client.waiting.append(message)
        elif isinstance(message, RequestTaken):
            self.submitted[message.request].request_id = message.request_id
        elif isinstance(message, JobsEnded):
            for report in message.ends:
                self._take_report(message.request, report)
        elif isinstance(message, RequestDone):
            submitted = self.submitted[message.request]
            if message.request in self.answers:
                raise Broken(f"{message.request} is answered twice")
            left = set(range(1, len(submitted.jobs) + 1)) - set(submitted.reports)
            if left:
                raise Broken(f"{message.request} is over ({message.error}), and {sorted(left)} have no end")
            self.answers[message.request] = PartsDone(message.request, message.error)
            self._told_s.setdefault(message.request, self.now)

    def _take_report(self, request: str, report: JobReport) -> None:
        submitted = self.submitted[request]
        known_before = submitted.reports.get(report.number)
        if self.noted is not None and known_before is not None:
            if known_before.state != report.state:
                raise Broken(f"job {report.number} of {request} has ended in two ways: {report}")
            return  # it is told again after a crash
        if report.number in submitted.reports:
            raise Broken(f"the end of job {report.number} of {request} is told twice")
        submitted.reports[report.number] = report
        is_whole = self._has_finished(request, report.number)
        if report.state == CoJobState.FINISHED and not is_whole:
            raise Broken(f"job {report.number} of {request} is said to have finished, and has not")
        # What a service that is gone had begun before it was told of, nobody knows.
        lost = ("is gone", "its service has ended", "does not have it any more")
        known = not any(words in one.reason for one in submitted.reports.values() for words in lost)
        if report.state == CoJobState.NOT_RUN and known and self.starts[request, report.number]:
            raise Broken(f"job {report.number} of {request} is said to be not run, and was started")

    def _has_finished(self, request: str, number: int) -> bool:
        parts = self.submitted[request].jobs[number - 1].parts
        return len(self._ran.get(f"{request} {number}", ())) == len(parts)

    # Who says what to whom

    def _connection(self, name: str, to: str) -> Connection | None:
        if name in self.clients:
            return self.clients[name].connection
        return super()._connection(name, to)

    def _say(self, name: str, action: ToPeer) -> None:
        self._check_said(name, action)
        self._send(name, action.who, action.message)

    def _arrive(self, connection: Connection, who: str, other: str, message: ServiceMessage) -> None:
        if not connection.reaches(who):
            return
        if who in self.clients:
            self._hear(who, message)
        elif isinstance(message, SubmitRequest):
            self._hand(who, self._read(other, message))
        else:
            super()._arrive(connection, who, other, message)

    def _read(self, who: str, told: SubmitRequest) -> RequestRead:
        tree = parse_coallocation(told.text)
        return RequestRead(who, told, tree, jobs_with_options(tree, {}), order_of(tree, told.is_stated))

    def _lost(self, connection: Connection, who: str, other: str) -> None:
        connection.noticed = connection.noticed or who != connection.killed
        if who in self.clients:
            if self.clients[who].alive and connection in self._of_killed:
                self._forget_untaken(who)
                self._come_back(who)
            elif self.clients[who].alive:
                self._lose_client(who)
        else:
            super()._lost(connection, who, other)

    def _forget_untaken(self, name: str) -> None:
        """A client does not know what became of a request that it has not heard of."""
        for request, submitted in self.submitted.items():
            if submitted.client == name and not submitted.request_id:
                self.answers.setdefault(request, PartsDone(request, "its service is gone"))

    def _kill(self, name: str) -> None:
        if name == "top" and name in self.hosts:
            self._of_killed |= set(self.hosts[name].peers.values())
        super()._kill(name)

    # What programs do

    def _key(self, part: PlacedPart) -> str:
        return " ".join(decode(part.need.payload, type=PartProgram).program[1:])

    def _failure(self) -> str:
        return self._random.choice(("",) * 12 + ("exit status 1",))

    def _check_said(self, name: str, action: ToPeer) -> None:
        message = action.message
        if not isinstance(message, PartsRequest | PartsGo):
            return
        allocations = self.hosts[name].service.allocations.values()
        allocation = next(one for one in allocations if one.id_below == message.request)
        wanted = allocation.wanted
        if not isinstance(wanted, SubmitParts):
            return  # a service above decides
        key = " ".join(decode(wanted.needs[0].payload, type=PartProgram).program[1:])
        if isinstance(message, PartsRequest):
            if next(iter(allocation.doors)) == action.who:
                self._ready[key] = set()
            return
        missing = set(range(len(wanted.needs))) - self._ready[key]
        if missing:
            raise Broken(f"{key} starts while its parts {sorted(missing)} are not ready")
        if self.now >= self._held_s[message.request] + wanted.barrier_timeout_s:
            raise Broken(f"{key} starts after its barrier was over")
        self._go.add(key)

    def _check_start(self, held: Held) -> None:
        parts = held.request.parts
        request, number = self._key(parts[0]).split(" ")
        if f"{request} {number}" not in self._go:
            raise Broken(f"parts of {request} start, and nobody has said so")
        # A service that is cut off may have been told to start; it stops that itself in its lease. A stage
        # goes on for longer without the service above, if that has a journal; what was suspended begins then.
        name = held.request.request
        is_of_stage = self.noted is not None and not name.startswith("top.") and ".^/" not in name
        more_s = PARENT_BACK_S + 3 * LEASE_S if is_of_stage else 0.0
        if self.now > self._told_s.get(request, END_S) + LEASE_S + LATE_S + more_s:
            raise Broken(f"parts of {request} start after its end was told, or asked for")
        order = self.submitted[request].order
        for other in order.waits(int(number)):
            if not self._has_finished(request, other):
                raise Broken(f"job {number} of {request} starts, and job {other} has not finished")
        self.starts[request, int(number)] += len(parts)
        job = self.submitted[request].jobs[int(number) - 1]
        if self.starts[request, int(number)] > len(job.parts) * job.attempts:
            raise Broken(f"job {number} of {request} starts {job.attempts + 1} times")

    def _end(self, site: SimulatedSite, held: Held, error: str, ran: bool) -> None:
        runs = site.held.get(held.request.request) is held and held.state == "running"
        if runs and not error:
            for part in held.request.parts:
                self._ran.setdefault(self._key(part), set()).add(part.part)
        super()._end(site, held, error, ran)


def coallocation_broken(seed: int) -> str:
    """Simulate a tree of co-allocation services, and return what did not hold, or ""."""
    try:
        CoallocationWorld(seed).run()
        RequestsWorld(seed, journal=seed % 2 == 1).run()
    except Exception as error:
        return f"{type(error).__name__}: {error} (of co-allocation services)"
    return ""
