"""Every action of the resource manager, and its state at rest, judged against the naive model."""

from __future__ import annotations

from collections import Counter
from typing import Any

from gspc_trio.components.rm.events import Removed
from gspc_trio.components.rm.explain import ManagerStatus
from gspc_trio.components.rm.messages import ClassStatus, Grant, Interrupt, Lapsed, Recall, Refuse, Revoke
from gspc_trio.components.rm.parts import NEVER
from gspc_trio.core.machine import Tick
from gspc_trio.core.task import Shape
from gspc_trio.records.facts import GrantChanged, ResourceChanged
from tests.components.rm.model import Live, Model, is_plain, is_preferring, sizes


class Judge(Model):
    """Sends events and judges what comes of them."""

    # One event ----------------------------------------------------------------------------------------------

    def send(self, event: Any) -> list[Any]:
        """Let the machine take the event, and judge each action in turn."""
        self.was_reserved = bool(self.rm.status().reserved)
        actions = self.rm.handle(event, self.now)
        for action in actions:
            judge = getattr(self, "on_" + type(action).__name__)
            judge(action, event)
        free = {self.pool.there[name].resource_class for name in self.free()}
        self.idle = {name: self.idle.get(name, self.now) for name in free}
        self.note_declined()
        return actions

    def note_declined(self) -> None:
        """Who waits for what he prefers though there is something else for him, and who may not wait."""
        among = self.free() - self.closed()
        for key, ages in self.ages.items():
            shape = key[1]
            if not ages:
                self.declined.pop(key, None)
                self.hasty.discard(key)
            elif is_plain(shape) or self.insisting(shape, self.now, self.now) is None:
                self.declined.pop(key, None)
                self.hasty.add(key)
            elif is_preferring(shape):
                kind = shape.requirements[0].resource_class
                self.declined[key] = self.idle.get(kind, NEVER)
            elif self.solution(shape, among, empty=False) is None:
                self.declined.pop(key, None)
            else:
                self.declined.setdefault(key, self.now)

    def start_of(self, key: tuple[str, Shape]) -> float:
        """Since when he has waited for what he prefers though there was something else for him."""
        return max(self.ages[key][0], self.declined.get(key, NEVER))

    def on_Grant(self, grant: Grant, _event: Any) -> None:
        assert grant.grant_id > self.last
        self.last = grant.grant_id
        ages = self.ages[grant.job, grant.shape]
        assert ages, "a grant without credit"
        free = self.free() - self.leaving
        shape = grant.shape
        assert len(grant.resources) == len(shape.requirements)
        for name, requirement in zip(grant.resources, shape.requirements, strict=True):
            assert name in self.fitting(requirement, free), f"{name} is not free or not right"
            for other in grant.resources:
                assert other not in self.pool.ancestors(name)
        assert len(set(grant.resources)) == len(grant.resources)
        hosts = {name.partition(".")[0] for name in grant.resources}
        assert not shape.same_host or len(hosts) == 1
        self.judge_memory(grant)
        self.judge_turn(grant)
        self.judge_patience(grant)
        if ages.pop(0) != (ages or [None])[0]:
            self.hasty.discard((grant.job, shape))
        units = sum(self.pool.leaves(name) for name in grant.resources)
        self.grants[grant.grant_id] = Live(grant, self.now, units)
        self.sent.setdefault(grant.job, []).append(grant)

    def judge_memory(self, grant: Grant) -> None:
        host = grant.resources[0].partition(".")[0]
        needed = sizes(grant.shape)
        assert len(grant.memories) == len(needed)
        mine: list[tuple[str, int, int]] = []
        for (memory, offset), size in zip(grant.memories, needed, strict=True):
            assert 0 <= offset <= self.pool.memories(host)[memory] - size
            mine.append((memory, offset, size))
        others = [(p[0], p[1], n) for live in self.grants.values() for p, n in live.memories]
        for index, (memory, offset, size) in enumerate(mine):
            for other, start, length in (*others, *mine[:index]):
                assert other != memory or offset + size <= start or start + length <= offset, "memory twice"

    def judge_turn(self, grant: Grant) -> None:
        """Of those who take any of the class, the job with least for its weight comes first, then age."""
        if not is_plain(grant.shape) or self.was_reserved or self.rm.status().reserved:
            return  # a reservation goes by age
        mine = self.ratio(grant.job)
        for (job, shape), ages in self.ages.items():
            if not ages or not is_plain(shape) or shape.requirements != grant.shape.requirements:
                continue
            if job == grant.job:
                assert self.ages[job, grant.shape][0] <= ages[0], "an older one of the job waits"
            else:
                assert mine <= self.ratio(job), f"{job} holds less for its weight"

    def judge_patience(self, grant: Grant) -> None:
        """Nobody is given what he does not prefer before he has waited for what he does."""
        key = grant.job, grant.shape
        if key in self.hasty or self.was_reserved or self.rm.status().reserved:
            return
        strict = self.insisting(grant.shape, self.ages[key][0], self.now)
        if strict is None:
            return
        for name, requirement in zip(grant.resources, strict.requirements, strict=True):
            there = set(self.pool.there)
            assert name in self.fitting(requirement, there), f"{name} though {strict} is worth waiting for"

    def on_Recall(self, recall: Recall, event: Any) -> None:
        waiting = {key for key, ages in self.ages.items() if ages}
        for grant_id in recall.grant_ids:
            live = self.grants[grant_id]
            assert live.job == recall.job
            assert not live.recalled
            assert live.lease_until is None
            live.recalled = True
            if isinstance(event, Removed):
                continue
            assert self.now >= live.since + self.limits.recall_after_s
            assert waiting - {(live.job, live.shape)} or self.rm.status().reserved

    def on_Refuse(self, refuse: Refuse, event: Any) -> None:
        ages = self.ages[refuse.job, refuse.shape]
        assert ages
        ages.clear()
        if refuse.kind == "interrupted":
            assert isinstance(event, Interrupt)
            return
        assert self.coming is not None, "nobody knows what comes"
        assert not self.alone(refuse.shape, self.coming, there=True), "what comes could meet it"
        assert not refuse.shape.wait
        assert self.solution(refuse.shape, self.usable(), empty=True) is None, refuse.reason

    def on_Lapsed(self, lapsed: Lapsed, event: Any) -> None:
        assert isinstance(event, Removed) or all(self.grants[g].robbed for g in lapsed.grant_ids)
        for grant_id in lapsed.grant_ids:
            self.lapsed.add(grant_id)

    def on_Revoke(self, revoke: Revoke, _event: Any) -> None:
        live = self.grants[revoke.grant_id]
        assert live.left == set(revoke.resources)
        assert live.lease_until is None
        live.lease_until = self.now + self.limits.lease_s

    def on_GrantChanged(self, record: GrantChanged, event: Any) -> None:
        live = self.grants[record.grant_id]
        if record.held:
            assert live.left == set(record.resources)
            return
        names = set(record.resources)
        assert names <= live.left
        if isinstance(event, Tick):
            assert live.lease_until is not None
            assert live.lease_until <= self.now
            for name in names:
                self.pool.lost_below |= self.pool.ancestors(name)
        live.units -= sum(self.pool.leaves(name) for name in names)
        live.left -= names
        if not live.left:
            del self.grants[record.grant_id]
            self.over[record.grant_id] = live.job

    def on_ResourceChanged(self, record: ResourceChanged, _event: Any) -> None:
        if record.state == "removed":
            name = record.resource_id
            assert name not in self.held()
            del self.pool.there[name]
            self.pool.lost_below.discard(name)
            self.leaving.discard(name)
            for live in self.grants.values():
                left = [(place, size) for place, size in live.memories if place[0] != name]
                live.robbed = live.robbed or len(left) < len(live.memories)
                live.memories = left

    # At rest --------------------------------------------------------------------------------------------

    def everything_adds_up(self) -> None:
        self.rm.check()
        status = self.rm.status()
        assert not any(live.robbed and live.lease_until is None for live in self.grants.values())
        self.judge_counts(status)
        demand: dict[str, int] = {}
        for job in self.jobs:
            for text, unmet in status.jobs[job].demand.items():
                demand[job + text] = unmet
        texts: dict[str, int] = {}
        for (job, shape), ages in self.ages.items():
            if ages:
                texts[job + str(shape)] = texts.get(job + str(shape), 0) + len(ages)
        assert demand == texts
        self.judge_idleness(status)
        for job in self.jobs:
            waiting = [shape for (owner, shape), ages in self.ages.items() if owner == job and ages]
            explained = self.rm.explain(job)
            assert sorted(str(s) for s in waiting) == sorted(e.shape for e in explained)
            assert all(entry.reason and entry.place >= 1 for entry in explained)

    def judge_counts(self, status: ManagerStatus) -> None:
        free, held = self.free(), self.held()
        for name in {r.resource_class for r in self.pool.there.values()} | set(status.classes):
            members = {n for n, r in self.pool.there.items() if r.resource_class == name}
            if not members and name not in status.classes:
                continue
            assert status.classes[name] == ClassStatus(
                total=len(members),
                free=len(members & free),
                held=len(members & held),
                blocked=len(members - free - held),
            )

    def judge_idleness(self, status: ManagerStatus) -> None:
        """Nobody waits for what is free, except for what he prefers; nor for the impossible."""
        free, closed = self.free(), self.closed()
        reserved = status.reserved
        for (job, shape), ages in self.ages.items():
            if not ages:
                continue
            among = free - closed
            strict = self.insisting(shape, self.start_of((job, shape)), self.now)
            found = self.solution(strict or shape, among, empty=False)
            assert found is None, f"{job} waits for {strict or shape} while {found} are free"
            if self.coming is None or shape.wait:
                continue
            if self.solution(shape, self.usable(), empty=True) is None:
                on_one_host = len(shape.requirements) == 1 or shape.same_host or not self.pool.there
                assert self.coming, f"{shape} is impossible"
                if on_one_host:
                    assert self.alone(shape, self.coming, there=False), f"{shape} is impossible"
                else:  # how what comes stands to what is there is not looked at: in doubt it is awaited
                    everything = Counter(r.resource_class for r in (*self.pool.there.values(), *self.coming))
                    needed = Counter(need.resource_class for need in shape.requirements)
                    assert needed <= everything, f"{shape} is impossible"
                assert any(entry.awaits for entry in self.rm.explain(job)), f"{shape}: for what?"
        if reserved:
            owner = reserved.job
            assert any(job == owner and ages for (job, _), ages in self.ages.items())
