"""What a run-time system knows of a manager, of which it reads as little as it can (ASP-11)."""

from __future__ import annotations

from random import Random

import pytest

from gspc_trio.components.managers.member import MemberManager, Outgoing
from gspc_trio.components.managers.messages import (
    JobWords,
    ManagersAction,
    ManagerSaid,
    ManagersEvent,
    ManagerUp,
    ManagerWords,
    TellJob,
    TellManager,
)
from gspc_trio.components.managers.partitions import Partitions
from gspc_trio.components.rm.events import Added, JobGone, JobJoined
from gspc_trio.components.rm.machine import ResourceManager
from gspc_trio.components.rm.messages import (
    Checkpoint,
    Demand,
    Grant,
    JobCheckpoint,
    Offence,
    Release,
)
from gspc_trio.components.rm.shell.service import AnsweringManager
from gspc_trio.core.ids import NO_GRANT, GrantId, JobId
from gspc_trio.core.resources import Resource
from gspc_trio.core.task import CORE, Requirement, Shape

NODE = Resource("r1.node", "node")
HOST = Added((NODE, *[Resource(f"r1.core{number}", "core", ("r1.node",)) for number in range(6)]), "anna")
PAIR = Shape((Requirement("core"), Requirement("core")))


class Pair:
    """A manager and the run-time system that knows of it, which talk at once."""

    def __init__(self, checkpoint_words: int) -> None:
        self.managers = Partitions(2, 7)
        self.checkpoints = 0
        rm = ResourceManager(7, None)
        self._member = MemberManager(rm, AnsweringManager(rm))
        self._outgoing = Outgoing(self._member, checkpoint_words)
        self.grants: dict[GrantId, Grant] = {}
        self.seen: dict[JobId, GrantId] = {}
        self.tell(ManagerUp(0))

    def tell(self, event: ManagersEvent) -> None:
        """Have the run-time system take something, and the manager what follows from it."""
        for action in self.managers.handle(event, 0.0):
            self._perform(action)
        self.managers.check()

    def _perform(self, action: ManagersAction) -> None:
        if isinstance(action, TellManager):
            self._outgoing.add(self._member.handle(action.event, 0.0))
            for word in self._outgoing.take():
                self.checkpoints += isinstance(word, Checkpoint)
                self.tell(ManagerSaid(0, word))
        elif isinstance(action, TellJob):
            for one in action.words:
                if isinstance(one, Grant):
                    self.grants[one.grant_id] = one
                    self.seen[one.job] = one.grant_id


def lived(seed: int, checkpoint_words: int) -> Pair:
    """Return a manager and its run-time system after jobs have done what a seed says."""
    random, pair = Random(seed), Pair(checkpoint_words)
    pair.tell(HOST)
    for number in range(3):
        pair.tell(JobJoined(f"j{number}"))
    there = ["j0", "j1", "j2"]
    for _ in range(60):
        job = random.choice(there)
        mine = [grant for grant in pair.grants.values() if grant.job == job]
        words: list[Demand | Release] = []
        for grant in mine[: random.randrange(3)]:
            part = grant.resources[:1] if random.random() < 0.5 and len(grant.resources) > 1 else ()
            words.append(Release(job, grant.grant_id, part))
            if not part:
                del pair.grants[grant.grant_id]
            else:
                pair.grants[grant.grant_id] = Grant(job, CORE, grant.grant_id, grant.resources[1:])
        shape = random.choice((CORE, PAIR))
        words.append(Demand(job, shape, random.randrange(4), pair.seen.get(job, NO_GRANT)))
        pair.tell(JobWords(job, tuple(words)))
        if len(there) > 1 and random.random() < 0.02:
            there.remove(job)
            pair.tell(JobGone(job, fenced=True))
            pair.grants = {one: grant for one, grant in pair.grants.items() if grant.job != job}
    return pair


@pytest.mark.parametrize("seed", range(12))
def test_after_a_checkpoint_the_same_is_known_as_when_all_is_read(seed: int):
    all_read, told = lived(seed, 10_000), lived(seed, 3)
    assert all_read.checkpoints == 0 < told.checkpoints
    (expected, found) = [one.managers.members[0].log for one in (all_read, told)]
    assert sorted(found.held()) == sorted(expected.held())
    unmet = [
        sorted((job, len(demand.shape.requirements), left) for job, demand, left in log.unmet())
        for log in (found, expected)
    ]
    assert unmet[0] == unmet[1]
    for resource in HOST.resources:
        name = resource.resource_id
        assert found.newest_given(name, (7, 1)) == expected.newest_given(name, (7, 1))
    assert told.managers.numbering(0) == all_read.managers.numbering(0)
    assert {one for one in found.replay() if isinstance(one, JobJoined)} == {
        one for one in expected.replay() if isinstance(one, JobJoined)
    }


def test_a_checkpoint_from_before_what_was_read_is_not_looked_at():
    pair = lived(0, 10_000)
    (member, _) = pair.managers.members
    held = sorted(member.log.held())
    assert held
    empty = Checkpoint(member.told - 1, (7, 900), (), {})
    assert pair.managers.handle(ManagerSaid(0, empty), 0.0) == []
    assert sorted(member.log.held()) == held
    assert pair.managers.handle(ManagerSaid(0, Checkpoint(member.told, (7, 900), (), {})), 0.0) == []
    assert list(member.log.held()) == []


def test_what_was_said_after_a_checkpoint_counts_beside_it():
    managers = Partitions(2, 7)
    for event in (ManagerUp(0), HOST, JobJoined("j1")):
        managers.handle(event, 0.0)
    told = managers.members[0].told
    one, two = (Grant("j1", CORE, (7, number), (f"r1.core{number}",)) for number in (2, 4))
    managers.handle(JobWords("j1", (Demand("j1", CORE, 2, NO_GRANT),)), 0.0)
    managers.handle(ManagerSaid(0, ManagerWords((("j1", (one, two)),))), 0.0)
    managers.handle(JobWords("j1", (Release("j1", one.grant_id),)), 0.0)
    jobs = (JobCheckpoint("j1", (one, two), (), ()),)
    managers.handle(ManagerSaid(0, Checkpoint(told + 1, (7, 4), jobs, {})), 0.0)
    assert list(managers.members[0].log.held()) == ["r1.core4"]


def test_a_word_that_cannot_be_is_an_offence_and_what_follows_it_is_not_heard():
    rm = ResourceManager(7, None)
    member = MemberManager(rm, AnsweringManager(rm))
    for event in (HOST, JobJoined("j1")):
        member.handle(event, 0.0)
    demand = Demand("j1", CORE, 1, NO_GRANT)
    said = member.handle(JobWords("j1", (Release("j1", (7, 3)), demand)), 0.0)
    (offence,) = said
    assert isinstance(offence, Offence)
    assert offence.reason.startswith("Release: ")
    assert rm.held == 0
