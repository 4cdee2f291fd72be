"""Pessimistic sharing (ASP-11): each host belongs to one resource manager, and idle hosts move."""

from __future__ import annotations

from collections.abc import Sequence

from gspc_trio.components.managers.members import (
    Managers,
    Member,
    MovingHost,
    UnmetRequest,
    host_of,
    room_of,
    tops,
    want_view,
)
from gspc_trio.components.managers.messages import (
    JobWords,
    ManagerDown,
    ManagerRecords,
    ManagerSaid,
    ManagerUp,
    ManagerWords,
    TellJob,
    TellManager,
)
from gspc_trio.components.rm.events import (
    Added,
    Advanced,
    Awaited,
    Claimed,
    Coming,
    JobGone,
    JobJoined,
    JobWeighed,
    Removed,
    Rested,
    Resumed,
    RmEvent,
    Settled,
)
from gspc_trio.components.rm.messages import (
    Checkpoint,
    Demand,
    Grant,
    GrantsAhead,
    Interrupt,
    Lapsed,
    Offence,
    Recall,
    Refuse,
    Release,
    Revoke,
    Revoked,
)
from gspc_trio.components.rm.replay_log import ReplayLog
from gspc_trio.components.rts.events import ResourcesLeft, RmAnswered
from gspc_trio.core.ids import GrantId, JobId, ResourceId, host_name
from gspc_trio.core.machine import IllegalEvent, Tick, handles
from gspc_trio.core.task import Shape
from gspc_trio.policies.partitions import (
    DRAIN_AFTER_S,
    HostMove,
    HostView,
    PartitionView,
    WantView,
    plan_moves,
    roomiest,
    smallest,
)
from gspc_trio.records.facts import GrantChanged, Record, ResourceChanged

LOOK_S = 0.1
"""How soon after a demand hosts are looked for elsewhere."""

LOOK_MAX_S = 1.0
"""How often that is done while requests wait and nothing changes."""


class Partitions(Managers):
    """Knows which manager has which host and which job, passes on what is said, and moves hosts.

    A manager is told of the hosts of others as of hosts that are on their way, so it refuses nothing that
    they could meet. When a manager is lost, another one gets its hosts and jobs, with all that is held.
    """

    def __init__(self, count: int, epoch: int) -> None:
        super().__init__(count, epoch)
        self._host_of: dict[str, int] = {}
        self._moves: dict[str, MovingHost] = {}
        self._arriving: set[str] = set()
        self._coming: dict[str, Coming] = {}
        self._ending: dict[GrantId, int] = {}
        self._waiting: dict[tuple[JobId, Shape], UnmetRequest] = {}
        self._idle: set[str] = set()
        self._look_at: float | None = None
        self._pause_s = LOOK_S
        self._retold: set[tuple[GrantId, ResourceId]] = set()

    def deadline(self) -> float | None:
        """Return when hosts are looked for next."""
        return self._look_at

    def newest_given(self, resource_id: ResourceId, grant_id: GrantId) -> GrantId:
        """See Managers."""
        number = self._host_of.get(host_name(resource_id))
        return grant_id if number is None else self._members[number].log.newest_given(resource_id, grant_id)

    def check(self) -> None:
        """Assert that each host and each job is with one manager, and nothing is held at two."""
        held: dict[ResourceId, int] = {}
        for member in self._members:
            for host in member.noted.hosts:
                assert self._host_of.get(host) == member.number, f"{host} is with {member.number}, too"
            for name in member.noted.held():
                assert held.setdefault(name, member.number) == member.number, f"{name} is held at two"
        assert self.why.keys() == self.job_of.keys()
        for host, move in self._moves.items():
            assert self._host_of.get(host, move.source) == move.source, f"{host} moves from where it is not"

    # Jobs ---------------------------------------------------------------------------------------------------

    @handles(JobJoined)
    def _job_joined(self, event: JobJoined) -> None:
        if event.job in self.job_of:
            raise IllegalEvent(f"job {event.job} has joined already")
        members = [one for one in self._members if one.is_up] or self._members
        counts = [*self.job_of.values()]
        rooms = {one.number: (room_of(one.log), counts.count(one.number)) for one in members}
        number = self.job_of[event.job] = roomiest(rooms)
        self.why[event.job] = f"it had the most room when the job came: {rooms[number][0]} free"
        self._tell(number, event)

    @handles(JobWeighed, Interrupt, Claimed, Release, Demand)
    def _of_job(self, event: JobWeighed | Interrupt | Claimed | Release | Demand) -> None:
        number = self.job_of.get(event.job)
        if number is None:
            number = self._serving(event.job)  # which says what is wrong
        self._tell(number, event)
        if self._look_at is None and type(event) is Demand and event.credit:
            self._look_at = self.now + LOOK_S

    @handles(JobWords)
    def _job_said(self, event: JobWords) -> None:
        number = self.job_of.get(event.job)
        if number is None:
            number = self._serving(event.job)
        member = self._members[number]
        if member.is_up:
            member.told += 1
            self.actions.append(TellManager(number, event))
        member.unread.append((member.told, event.words))
        if self._look_at is None and any(type(word) is Demand and word.credit for word in event.words):
            self._look_at = self.now + LOOK_S

    @handles(JobGone)
    def _job_gone(self, event: JobGone) -> None:
        self._tell(self._serving(event.job), event)
        del self.job_of[event.job], self.why[event.job]
        self._look_soon()

    @handles(Revoked)
    def _revoked(self, event: Revoked) -> None:
        number = self._ending.get(event.grant_id)
        if number is None:
            raise IllegalEvent(f"grant {event.grant_id} has not been revoked")
        self._tell(number, event)
        if event.grant_id not in self._members[number].log.ending:
            del self._ending[event.grant_id]
            self._look_soon()

    def _look_soon(self) -> None:
        """A host may be idle now."""
        self._pause_s = LOOK_S
        if self._look_at is not None:
            self._look_at = min(self._look_at, self.now + LOOK_S)

    @handles(Awaited)
    def _awaited(self, event: Awaited) -> None:
        number = self._ending.get(event.grant_id)
        if number is not None:
            self._tell(number, event)

    # Hosts --------------------------------------------------------------------------------------------------

    @handles(Added)
    def _added(self, event: Added) -> None:
        host = host_of(event)
        if self._is_moving(host, event):
            return
        if host not in self._host_of:
            counts = {one.number: 0 for one in self._members if one.is_up} or {
                one.number: 0 for one in self._members
            }
            for number in self._host_of.values():
                if number in counts:
                    counts[number] += 1
            number = self._host_of[host] = smallest(counts)
            self.see_newest()
            self._tell(number, Advanced(self.newest))
        self._tell(self._host_of[host], event)

    @handles(Removed, Rested, Resumed)
    def _of_hosts(self, event: Removed | Rested | Resumed) -> None:
        of_host: dict[str, list[ResourceId]] = {}
        for name in event.resource_ids:
            of_host.setdefault(host_name(name), []).append(name)
        if type(event) is Removed and len(of_host) > 1:
            raise IllegalEvent(f"resources of several hosts are removed at one time: {', '.join(of_host)}")
        for host, names in of_host.items():
            part = type(event)(tuple(names)) if len(of_host) > 1 else event
            if not self._is_moving(host, part):
                self._tell_of(host, part)

    def _tell_of(self, host: str, event: RmEvent) -> None:
        number = self._host_of.get(host)
        if number is not None:
            self._tell(number, event)
        elif type(event) is Removed:
            self.actions.append(RmAnswered(event, f"there is no {event.resource_ids[0]}"))

    def _is_moving(self, host: str, event: RmEvent) -> bool:
        """Whether what is said of the host has to wait until it has moved; one that is emptied stays."""
        move = self._moves.get(host)
        if move is not None and move.asked is None:
            self._stay(host)
            move = None
        if move is not None:
            move.pending.append(event)
        return move is not None

    @handles(Coming)
    def _is_coming(self, event: Coming) -> None:
        self._coming[event.name] = event
        for member in self._members:
            self._tell(member.number, event)

    @handles(Settled)
    def _settled(self, event: Settled) -> None:
        self._coming.pop(event.name, None)
        self._announce(event.name)

    def _announce(self, host: str) -> None:
        """Tell those who do not have the host that they may wait for it, or that there is none."""
        owner = self._host_of.get(host)
        said = self._brings(host) or self._coming.get(host) or Settled(host)
        for member in self._members:
            if member.number != owner:
                self._tell(member.number, said)
            elif host not in self._coming:
                self._tell(member.number, Settled(host))

    def _brings(self, host: str) -> Coming | None:
        """Return what a host that is there has, or is about to have; None if it is not."""
        owner = self._host_of.get(host)
        if owner is None:
            return None
        log = self._members[owner].noted
        if host in log.hosts:
            label, there = log.hosts[host]
            return Coming(host, tuple(there.values()), label)
        asked = [one for one in log.asked if isinstance(one, Added) and host_of(one) == host]
        return Coming(host, asked[0].resources, asked[0].host) if asked else None

    # What managers say --------------------------------------------------------------------------------------

    @handles(ManagerSaid)
    def _heard(self, event: ManagerSaid) -> None:
        number, word = event.number, event.word
        member = self._members[number]
        if type(word) is ManagerWords:
            for job, words in word.by_job:
                if self.job_of.get(job) == number:
                    member.unread.append((0, words))
                    self.actions.append(TellJob(job, words))
            if self._retold or self._arriving or self._moves:
                for record in word.records:
                    self._note(record)
            elif word.records:
                self.actions.append(ManagerRecords(word.records))
        elif type(word) is Checkpoint:
            member.restore(word)
        elif type(word) is Grant:
            if self.job_of.get(word.job) == number:
                member.log.heard(word)
                self.note_newest(word.grant_id)
                self.actions.append(word)
        elif isinstance(word, Refuse | Lapsed | Recall | Offence):
            if self.job_of.get(word.job) == number:
                if isinstance(word, Refuse | Lapsed):
                    member.log.heard(word)
                self.actions.append(word)
        elif isinstance(word, Revoke):
            member.log.heard(word)
            self._ending[word.grant_id] = number
            self.actions.append(word)
        elif isinstance(word, ResourcesLeft):
            self._left(member, word)
        elif isinstance(word, RmAnswered):
            self._answered(member, word)
        else:
            assert isinstance(word, GrantsAhead)
            self._grants_ahead(word)

    def _note(self, record: Record) -> None:
        """A host that goes from one manager to another is there all the time."""
        is_hidden = False
        if isinstance(record, GrantChanged):
            parts = {(record.grant_id, name) for name in record.resources}
            is_hidden = record.held and parts <= self._retold
            self._retold -= parts
        elif isinstance(record, ResourceChanged):
            host = host_name(record.resource_id)
            move = self._moves.get(host)
            is_hidden = host in self._arriving or (move is not None and move.asked is not None)
        if not is_hidden:
            self.actions.append(ManagerRecords((record,)))

    def _left(self, member: Member, word: ResourcesLeft) -> None:
        host = host_name(word.resource_ids[0])
        move = self._moves.get(host)
        if move is not None and move.asked is not None and move.source == member.number:
            return  # it goes to another one; the answer comes next
        member.log.left(word.resource_ids)
        if host not in member.log.hosts:
            self._host_of.pop(host, None)
        self.actions.append(word)
        self._announce(host)

    def _answered(self, member: Member, word: RmAnswered) -> None:
        event = word.event
        host = host_of(event)
        move = self._moves.get(host)
        if move is not None and move.asked == event and move.source == member.number:
            self._leaves(host, move, word)
            return
        was_asked = member.noted.answered(event, word.refusal)
        if event in member.quiet:
            member.quiet.remove(event)
        elif was_asked:
            self.actions.append(word)
        self._arriving.discard(host)
        if isinstance(event, Added):
            if host not in member.noted.hosts:
                self._host_of.pop(host, None)
            self._announce(host)

    # Moves --------------------------------------------------------------------------------------------------

    @handles(Tick)
    def _tick(self, _event: Tick) -> None:
        if self._look_at is None or self.now < self._look_at:
            return
        views = self._views()
        for host, move in list(self._moves.items()):
            if move.asked is None and not self._is_wanted(move.target):
                self._stay(host)
            elif move.asked is None and not self._is_held(host):
                self._ask_to_leave(host, move)
        young_s = self.now - 2 * DRAIN_AFTER_S
        is_new = any(entry.since_s >= young_s for entry in self._waiting.values())
        for planned in plan_moves(views[0], self.now):
            views[1][planned.target, planned.want].had[planned.host] = self.now
            self._begin(planned)
        is_new = is_new or bool(self._moves)
        self._pause_s = LOOK_S if is_new else min(2 * self._pause_s, LOOK_MAX_S)
        self._look_at = self.now + self._pause_s if self._waiting or self._moves else None

    def _views(self) -> tuple[list[PartitionView], dict[tuple[int, int], UnmetRequest]]:
        """Return what is where, and (manager, place of a request) -> what is known of it."""
        parts: list[PartitionView] = []
        entries: dict[tuple[int, int], UnmetRequest] = {}
        waiting: dict[tuple[JobId, Shape], UnmetRequest] = {}
        idle: set[str] = set()
        for member in self._members:
            log = member.roughly()
            is_rough = bool(member.unread)
            held: dict[str, int] = {}
            for name in log.held():
                held[host_name(name)] = held.get(host_name(name), 0) + 1
            bound = {host_name(name) for name in log.resting} | self._moves.keys()
            bound |= {host_of(one) for one in log.asked}
            hosts = []
            for name, (_, there) in log.hosts.items():
                classes: dict[str, int] = {}
                for resource in there.values():
                    classes[resource.resource_class] = classes.get(resource.resource_class, 0) + 1
                features = frozenset(one for resource in there.values() for one in resource.features)
                is_bound = name in bound or not member.is_up
                if name not in held:  # where so much is said, perhaps for this moment alone
                    idle.add(name)
                    is_bound = is_bound or (is_rough and name not in self._idle)
                hosts.append(HostView(name, classes, held.get(name, 0), features, is_bound))
            found: list[tuple[float, int, UnmetRequest, WantView]] = []
            for job, demand, left in log.unmet():
                key = (job, demand.shape)
                entry = waiting[key] = self._waiting.get(key) or UnmetRequest(self.now, {})
                found.append((entry.since_s, len(found), entry, want_view(demand, left, entry, self.now)))
            found.sort(key=lambda one: one[:2])
            wants = [one[3] for one in found] if member.is_up else []
            entries.update(((member.number, place), one[2]) for place, one in enumerate(found))
            weight = sum(log.weight(job) for job, number in self.job_of.items() if number == member.number)
            expects = sum(move.target == member.number for move in self._moves.values())
            parts.append(PartitionView(member.number, weight, hosts, wants, expects))
        self._waiting, self._idle = waiting, idle
        return parts, entries

    def _is_wanted(self, number: int) -> bool:
        return any(True for _ in self._members[number].log.unmet())

    def _is_held(self, host: str) -> bool:
        log = self._members[self._host_of[host]].log
        return any(host_name(name) == host for name in log.held())

    def _begin(self, planned: HostMove) -> None:
        host = planned.host
        move = self._moves[host] = MovingHost(planned.source, planned.target)
        if planned.drains:
            there = self._members[planned.source].noted.hosts[host][1]
            move.rested = tops(tuple(there.values()))
            self._tell(planned.source, Rested(move.rested))
        else:
            self._ask_to_leave(host, move)

    def _ask_to_leave(self, host: str, move: MovingHost) -> None:
        label, there = self._members[move.source].noted.hosts[host]
        # First, or it would refuse who waits for what goes elsewhere and may come back.
        self._tell(move.source, Coming(host, tuple(there.values()), label))
        move.asked = Removed(tuple(there), "refuse")
        self._tell(move.source, move.asked)

    def _leaves(self, host: str, move: MovingHost, word: RmAnswered) -> None:
        """The source has let the host go, or has given something of it to somebody."""
        assert isinstance(word.event, Removed)
        log = self._members[move.source].log
        log.answered(word.event, word.refusal)
        del self._moves[host]
        if word.refusal:
            self._announce(host)
            if move.rested:
                self._tell(move.source, Resumed(move.rested))
        else:
            label, there = log.hosts[host][0], tuple(log.hosts[host][1].values())
            newest = log.newest_of(host)
            log.left(word.event.resource_ids)
            target = self._members[move.target]
            number = target.number if target.is_up else move.source
            self._give(number, host, Added(there, label), newest)
        for event in move.pending:
            self._method_of[type(event)](self, event)

    def _give(self, number: int, host: str, event: Added, newest: dict[ResourceId, GrantId]) -> None:
        """Give a host to a manager, whose grants on it are newer than those of others."""
        member = self._members[number]
        self._host_of[host] = number
        self._arriving.add(host)
        if newest:
            self._tell(number, Advanced(max(newest.values())))
            member.noted.note_newest(newest)
        member.quiet.append(event)
        self._tell(number, event)

    def _stay(self, host: str) -> None:
        """A host that was to be emptied stays where it is."""
        move = self._moves.pop(host)
        self._tell(move.source, Resumed(move.rested))

    # Managers that come and go ------------------------------------------------------------------------------

    @handles(ManagerUp)
    def _up(self, event: ManagerUp) -> None:
        member = self._members[event.number]
        if member.is_up:
            raise IllegalEvent(f"resource manager {event.number} is there already")
        told, asked = member.log.replay(), [*member.log.asked]
        member.is_anew()
        self._retell(member, told, asked)
        self.actions.extend(TellManager(member.number, one) for one in told)
        member.told = member.read = len(told)
        self._look_at = self.now + LOOK_S if self.job_of else None
        for other in self._members:  # nobody could take over what they had
            if other is not member and not other.is_up:
                self._take_over(other, member)

    @handles(ManagerDown)
    def _down(self, event: ManagerDown) -> None:
        member = self._members[event.number]
        if not member.is_up:
            return
        member.is_up = False
        member.losses += 1
        pending: list[RmEvent] = []
        for host, move in list(self._moves.items()):
            if move.source != member.number:
                continue
            if move.asked is not None:
                member.log.unask(move.asked)
            if move.rested:
                member.log.said(Resumed(move.rested))
            del self._moves[host]
            pending += move.pending
        others = [one for one in self._members if one.is_up]
        if others:
            rooms = {one.number: (room_of(one.log), 0) for one in others}
            self._take_over(member, self._members[roomiest(rooms)])
        for said in pending:
            self._method_of[type(said)](self, said)

    def _retell(self, member: Member, told: Sequence[RmEvent], asked: Sequence[Added | Removed]) -> None:
        """What a manager is told is known to all others, but for the answers to what was asked."""
        for event in told:
            if isinstance(event, Added | Removed) and event not in asked and event not in member.quiet:
                member.quiet.append(event)
            if isinstance(event, Added):
                self._arriving.add(host_of(event))
            elif isinstance(event, Claimed):
                self._retold.update((one.grant_id, name) for one in event.grants for name in one.resources)

    def _take_over(self, lost: Member, heir: Member) -> None:
        """Another manager gets the hosts and jobs of one that is lost, and all that is held there."""
        hosts = list(lost.log.hosts)
        if not (hosts or lost.log.asked or lost.number in self.job_of.values()):
            return
        newest = {name: grant_id for host in hosts for name, grant_id in lost.log.newest_of(host).items()}
        asked = [*lost.log.asked]
        told = [event for event in lost.log.replay() if not isinstance(event, Coming)]
        self.see_newest()
        self._tell(heir.number, Advanced(self.newest))
        heir.log.note_newest(newest)
        quiet = [event for event in asked if event in lost.quiet]
        self._retell(heir, told, [event for event in asked if event not in quiet])
        for event in told:
            if isinstance(event, Added | Removed):
                self._host_of[host_of(event)] = heir.number
            self._tell(heir.number, event)
        self._look_at = self.now + LOOK_S
        for grant_id in lost.log.ending:
            self._ending[grant_id] = heir.number
        for job, number in self.job_of.items():
            if number == lost.number:
                self.job_of[job] = heir.number
                self.why[job] = f"manager {lost.number + 1}, which served it, was lost"
        self._members[lost.number] = Member(lost.number, ReplayLog(self.epoch), losses=lost.losses)
        for host in dict.fromkeys((*self._coming, *self._host_of)):
            said = self._brings(host) or self._coming.get(host)
            if said is not None:
                self._tell(lost.number, said)
