"""What a run-time system keeps in mind of a resource manager elsewhere, and tells the next one (RTS-4)."""

from __future__ import annotations

from collections import deque
from random import Random

import pytest

from gspc_trio.components.rm.events import (
    Added,
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
from gspc_trio.components.rm.machine import ResourceManager
from gspc_trio.components.rm.messages import (
    Demand,
    Grant,
    Interrupt,
    Lapsed,
    Refuse,
    Release,
    Revoke,
    Revoked,
)
from gspc_trio.components.rm.replay_log import ENDING, ReplayLog
from gspc_trio.components.rts.events import RmAnswered
from gspc_trio.core.ids import NO_GRANT, GrantId
from gspc_trio.core.machine import Tick
from gspc_trio.core.resources import Resource
from gspc_trio.core.task import CORE, Requirement, Shape
from gspc_trio.records.facts import ResourceChanged

NODE = Resource("r1.node", "node")
CORES = tuple(Resource(f"r1.core{n}", "core", ("r1.node",)) for n in range(3))
HOST = Added((NODE, *CORES), "anna")
PAIR = Shape((Requirement("core"), Requirement("core")))


def grant(job: str, number: int, *cores: int, shape: Shape = CORE) -> Grant:
    return Grant(job, shape, (5, number), tuple(f"r1.core{n}" for n in cores))


def replay_log() -> ReplayLog:
    made = ReplayLog(4)
    made.said(HOST)
    assert made.answered(HOST, "")
    made.said(JobJoined("j1", 2.0, 1))
    return made


def test_what_is_there_held_and_wanted_is_told_again_in_an_order_that_gives_nothing_away() -> None:
    known = replay_log()
    known.said(JobWeighed("j1", 3.0))
    known.said(JobWeighed("j1", 3.0, 4))
    known.said(Demand("j1", CORE, 3, NO_GRANT))
    known.heard(grant("j1", 1, 0))
    known.heard(grant("j1", 2, 1))
    known.said(Release("j1", (5, 1)))
    known.said(Coming("r2"))
    known.said(Coming("r3"))
    known.said(Settled("r3"))
    known.said(Rested(("r1.core2", "r1.core0")))
    known.said(Resumed(("r1.core0",)))
    assert known.epoch == 5
    assert known.replay() == [
        JobJoined("j1", 3.0, 4),
        Claimed("j1", (grant("j1", 2, 1),), whole=True),
        HOST,
        Rested(("r1.core2",)),
        Coming("r2"),
        Demand("j1", CORE, 1, NO_GRANT),
    ]
    assert known.newest_given("r1.core0", (5, 9)) == (5, 1)
    assert known.newest_given("r1.core2", (5, 9)) == NO_GRANT
    assert known.newest_given("r1.core0", (4, 9)) == (4, 9), "of an epoch of before nothing is known"


def test_credit_counts_from_the_last_grant_that_the_job_had_seen() -> None:
    known = replay_log()
    known.said(Demand("j1", CORE, 1, NO_GRANT))
    known.heard(grant("j1", 1, 0))
    known.said(Demand("j1", CORE, 2, NO_GRANT))  # sent before the grant came
    assert known.replay()[-1] == Demand("j1", CORE, 1, NO_GRANT)
    known.said(Demand("j1", CORE, 2, (5, 1)))
    assert known.replay()[-1] == Demand("j1", CORE, 2, NO_GRANT)
    known.said(Demand("j1", CORE, 0, (5, 1)))
    assert known.replay()[-1] == HOST


@pytest.mark.parametrize("end", [Interrupt("j1"), Refuse("j1", CORE, "no")])
def test_a_demand_that_is_over_is_not_told_again(end: Interrupt | Refuse) -> None:
    known = replay_log()
    known.said(Demand("j1", CORE, 1, NO_GRANT))
    if isinstance(end, Refuse):
        known.heard(end)
    else:
        known.said(end)
    assert known.replay()[-1] == HOST


def test_what_may_still_run_of_a_job_that_has_gone_is_claimed_and_revoked_again() -> None:
    known = replay_log()
    known.heard(grant("j1", 1, 0, 1, shape=PAIR))
    known.heard(grant("j1", 2, 2))
    known.said(JobGone("j1"))
    known.said(Revoked((5, 2), ("r1.core2",)))
    known.said(Revoked((5, 1), ("r1.core0",)))
    left = Grant(ENDING, CORE, (5, 1), ("r1.core1",))
    assert known.replay() == [JobJoined(ENDING), Claimed(ENDING, (left,)), HOST, JobGone(ENDING)]
    known.left(("r1.core1",))
    (added,) = known.replay()
    assert isinstance(added, Added)
    assert added.resources == (NODE, CORES[0], CORES[2])


def test_what_may_still_run_where_a_host_was_not_answered_is_held_before_it_is_revoked_again() -> None:
    known = ReplayLog(4)
    left = Grant(ENDING, CORE, (5, 1), ("r1.core1",))
    for event in (JobJoined(ENDING), Claimed(ENDING, (left,)), JobGone(ENDING), HOST):
        known.said(event)
    assert known.replay() == [JobJoined(ENDING), Claimed(ENDING, (left,)), HOST, JobGone(ENDING)]


def test_a_part_that_was_given_back_is_not_claimed_and_what_lapsed_is_ended() -> None:
    known = replay_log()
    known.heard(grant("j1", 1, 0, 1, shape=PAIR))
    known.said(Release("j1", (5, 1), ("r1.core0",)))
    assert known.replay()[1] == Claimed("j1", (grant("j1", 1, 1),), whole=True)
    known.heard(Lapsed("j1", ((5, 1),), "removed"))
    known.heard(Revoke((5, 1), ("r1.core1",)))
    assert known.replay()[1:3] == [
        Claimed("j1", (), whole=True),
        JobJoined(ENDING),
    ]


def test_what_was_not_answered_is_asked_again_and_what_was_waits_on() -> None:
    known = replay_log()
    more, going = Added((Resource("r1.gpu0", "gpu", ("r1.node",)),), "anna"), Removed(("r1.core0",), "wait")
    known.said(going)
    assert known.answered(going, "")
    known.said(more)
    assert known.replay()[-2:] == [going, more]
    assert not known.answered(going, ""), "it was told again: the RTS knows"
    assert known.answered(more, "r1.node is held")
    assert known.replay()[-1] == going


class World:
    """Two jobs at a run-time system, and a resource manager behind a connection that breaks at any time."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.now = 0.0
        self.replay_log = ReplayLog(1)
        self.to_rm: deque[RmEvent] = deque()
        self.to_rts: deque[object] = deque()
        self.rm = ResourceManager(2)
        self.held: dict[str, dict[GrantId, set[str]]] = {"j1": {}, "j2": {}}
        self.seen = dict.fromkeys(self.held, NO_GRANT)
        self.at_host: dict[GrantId, set[str]] = {}  # of jobs that have gone, until it is revoked
        for event in (JobJoined("j1"), JobJoined("j2"), HOST):
            self.say(event)

    def say(self, event: RmEvent) -> None:
        self.replay_log.said(event)
        self.to_rm.append(event)

    def cut(self) -> None:
        """The connection is lost, with all that was on its way; the resource manager begins anew."""
        self.to_rts.clear()
        self.rm = ResourceManager(self.replay_log.epoch + 1)
        self.replay_log.epoch += 1
        self.to_rm = deque(self.replay_log.replay())

    def step(self) -> None:
        self.now += 0.01
        random, job = self.random, self.random.choice(sorted(self.held))
        action = random.randrange(14)
        if action < 4:
            self.deliver_to_rm()
        elif action < 8:
            self.deliver_to_rts()
        elif action < 11:
            shape = random.choice([CORE, PAIR, Shape((Requirement("node"),))])
            self.say(Demand(job, shape, random.randrange(3), self.seen[job]))
        elif action == 11 and self.held[job]:
            self.release(job, random.choice(sorted(self.held[job])))
        elif action == 12:
            self.leave(job)
        elif not random.randrange(4):
            self.cut()

    def release(self, job: str, grant_id: GrantId) -> None:
        del self.held[job][grant_id]
        self.say(Release(job, grant_id))

    def leave(self, job: str) -> None:
        self.at_host.update(self.held.pop(job))  # what runs goes on until it is revoked
        del self.seen[job]
        self.say(JobGone(job))
        new = f"j{int(job[1:]) + 2}"
        self.held[new], self.seen[new] = {}, NO_GRANT
        self.say(JobJoined(new))

    def deliver_to_rm(self) -> None:
        if not self.to_rm:
            return
        event = self.to_rm.popleft()
        actions = self.rm.handle(event, self.now)
        self.rm.check()
        self.to_rts += [action for action in actions if not isinstance(action, ResourceChanged)]
        if isinstance(event, Added | Removed):
            self.to_rts.append(RmAnswered(event))

    def deliver_to_rts(self) -> None:
        word = self.to_rts.popleft() if self.to_rts else None
        if isinstance(word, Grant | Refuse | Lapsed):
            self.replay_log.heard(word)
        if isinstance(word, Grant):
            if word.job in self.held:
                self.held[word.job][word.grant_id] = set(word.resources)
                self.seen[word.job] = word.grant_id
                self.check()
        elif isinstance(word, Lapsed) and word.job in self.held:
            for grant_id in word.grant_ids:
                self.held[word.job].pop(grant_id, None)
        elif isinstance(word, Revoke):
            self.replay_log.heard(word)
            self.at_host.pop(word.grant_id, None)
            self.say(Revoked(word.grant_id, word.resources))
        elif isinstance(word, RmAnswered):
            self.replay_log.answered(word.event, word.refusal)

    def check(self) -> None:
        """No two have the same, nor a node and its cores."""
        used = [names for held in self.held.values() for names in held.values()]
        used += self.at_host.values()
        each = [name for names in used for name in names]
        assert len(each) == len(set(each)), used
        assert "r1.node" not in each or len(each) == 1, used

    def settle(self) -> None:
        while self.to_rm or self.to_rts:
            self.deliver_to_rm()
            self.deliver_to_rts()
        self.rm.handle(Tick(), self.now)


@pytest.mark.parametrize("seeds", [range(100), range(100, 200)], ids=["first", "second"])
def test_nothing_is_lost_or_given_twice_however_often_the_connection_breaks(seeds: range) -> None:
    for seed in seeds:
        world = World(seed)
        for _ in range(250):
            world.step()
        world.settle()
        for job in world.held:
            world.say(Interrupt(job))
        world.settle()
        for job, held in world.held.items():
            for grant_id in sorted(held):
                world.release(job, grant_id)
        world.settle()
        classes = world.rm.status().classes
        assert {name: entry.free for name, entry in classes.items()} == {"node": 1, "core": 3}, seed
        assert not any(world.held.values()), seed
        assert not world.at_host, seed
