"""The RTS machine among RIFs that die at any time, users that ask for anything, an RM that keeps count.

Requirements: RTS-3.
"""

from __future__ import annotations

import math
from collections import deque
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from gspc_trio.components.rif.messages import AddResources, DagReport, RemoveResources, RifHello, StopRif
from gspc_trio.components.rm.events import (
    Added,
    Coming,
    JobGone,
    JobJoined,
    Removed,
    Rested,
    Resumed,
    Settled,
)
from gspc_trio.components.rm.messages import Revoke, Revoked
from gspc_trio.components.rts import actions, events
from gspc_trio.components.rts.machine import Rts
from gspc_trio.components.rts.messages import JobEnd, RegisterJob, RifGone, RifUp
from gspc_trio.components.rts.state import Limits, RifState
from gspc_trio.core.machine import IllegalEvent, Tick
from gspc_trio.core.resources import Resource
from gspc_trio.core.task import TaskState

HOSTS = ("anna", "bert", "cleo")


class World:
    """Shell, RIFs, RM and jobs around the machine; actions are carried out at once, their effects wait."""

    def __init__(self) -> None:
        self.machine = Rts(frozenset({"local", "batch"}), Limits(come_up_s={"batch": math.inf}))
        self.now = 0.0
        self.asks: set[int] = set()
        self.ask = 0
        self.link = 0
        self.processes: dict[tuple[str, int], int | None] = {}
        self.dying: list[tuple[str, int]] = []
        self.live_links: set[int] = set()
        self.revokes: list[actions.TellRif] = []
        self.calls: deque[actions.AskRif] = deque()
        self.rm: set[str] = set()
        self.rm_jobs: set[str] = set()
        self.rm_waits: set[str] = set()
        self.rm_says: deque[Any] = deque()
        self.resting: set[str] = set()
        self.coming: dict[str, tuple[Resource, ...] | None] = {}
        self.seen: dict[str, dict[str, set[str]]] = {}
        self.stopped = False

    def give(self, event: Any) -> None:
        for action in self.machine.handle(event, self.now):
            getattr(self, f"on_{type(action).__name__}")(action)
        self.machine.check()

    def settle_rm(self) -> None:
        while self.rm_says:
            self.give(self.rm_says.popleft())

    def new_ask(self) -> int:
        self.ask += 1
        self.asks.add(self.ask)
        return self.ask

    def on_StartRif(self, action: actions.StartRif) -> None:
        running = [key for key in self.processes if key[0] == action.rif_id]
        assert not running, "two incarnations of one RIF at one time"
        self.processes[action.rif_id, action.incarnation] = None

    def on_KillRif(self, action: actions.KillRif) -> None:
        key = (action.rif_id, action.incarnation)
        assert key in self.processes
        assert key not in self.dying, "killed twice"
        self.dying.append(key)

    def on_DropLink(self, action: actions.DropLink) -> None:
        self.live_links.discard(action.link)

    def on_AskRif(self, action: actions.AskRif) -> None:
        assert action.link in self.live_links
        assert action.link not in [call.link for call in self.calls], "one request at a time"
        self.calls.append(action)

    def on_TellRif(self, action: actions.TellRif) -> None:
        assert action.link in self.live_links
        if not isinstance(action.message, StopRif):
            self.revokes.append(action)

    def on_TellStrategy(self, action: actions.TellStrategy) -> None:
        assert action.block
        assert not (action.is_connected and action.lost)

    def on_CloseJobAt(self, action: actions.CloseJobAt) -> None:
        assert set(action.links) <= self.live_links

    def on_TellRm(self, action: actions.TellRm) -> None:
        getattr(self, f"rm_{type(action.event).__name__}")(action.event)

    def rm_Added(self, event: Added) -> None:
        ids = {resource.resource_id for resource in event.resources}
        assert ids.isdisjoint(self.rm)
        for resources in self.seen.values():
            known = {name for ids in resources.values() for name in ids}
            assert ids <= known, "jobs are told of resources before the RM can grant them"
        assert not self.rm_waits & {p for one in event.resources for p in one.parents}
        self.rm |= ids
        self.rm_says.append(events.RmAnswered(event))

    def rm_Removed(self, event: Removed) -> None:
        ids = set(event.resource_ids)
        assert ids <= self.rm
        if event.policy == "refuse":
            self.rm_says.append(events.RmAnswered(event, "held"))
        elif event.policy == "wait":
            self.rm_waits |= ids
            self.rm_says.append(events.RmAnswered(event))
        else:
            self.rm -= ids
            self.rm_waits -= ids
            self.rm_says.append(events.RmAnswered(event))
            self.rm_says.append(events.ResourcesLeft(event.resource_ids))

    def rm_Rested(self, event: Rested) -> None:
        self.resting.update(event.resource_ids)

    def rm_Resumed(self, event: Resumed) -> None:
        assert self.resting.issuperset(event.resource_ids)
        self.resting.difference_update(event.resource_ids)

    def rm_Coming(self, event: Coming) -> None:
        assert self.coming.get(event.name, "nothing") != event.resources
        self.coming[event.name] = event.resources

    def rm_Settled(self, event: Settled) -> None:
        del self.coming[event.name]

    def rm_JobJoined(self, event: JobJoined) -> None:
        assert event.job not in self.rm_jobs
        self.rm_jobs.add(event.job)

    def rm_JobGone(self, event: JobGone) -> None:
        self.rm_jobs.remove(event.job)

    def rm_Revoked(self, event: Revoked) -> None:
        assert set(event.resources) <= self.rm

    def on_AcceptJob(self, action: actions.AcceptJob) -> None:
        self.seen[action.job] = {}

    def on_RefuseJob(self, _: actions.RefuseJob) -> None:
        assert self.stopped or self.machine._lives.stopping

    def on_TellJobs(self, action: actions.TellJobs) -> None:
        for job in action.jobs:
            if isinstance(action.message, RifUp):
                names = {resource.resource_id for resource in action.message.resources}
                self.seen[job][action.message.rif_id] = names
            elif isinstance(action.message, RifGone):
                del self.seen[job][action.message.rif_id]

    def on_Answer(self, action: actions.Answer) -> None:
        self.asks.remove(action.ask)

    def on_QuestionRefused(self, action: actions.QuestionRefused) -> None:
        assert action.reason
        self.asks.remove(action.ask)

    def on_RifChanged(self, _: object) -> None:
        pass

    def on_JobChanged(self, _: object) -> None:
        pass

    def on_TaskCounts(self, _: object) -> None:
        pass

    def on_Stopped(self, _: actions.Stopped) -> None:
        assert not self.processes
        self.stopped = True

    def end(self, key: tuple[str, int], again: bool = False) -> None:
        del self.processes[key]
        if key in self.dying:
            self.dying.remove(key)
        self.give(events.RifEnded(*key, "it died", again=again))

    def answer_call(self, refuse: bool) -> None:
        call = self.calls.popleft()
        if call.link not in self.live_links:
            refuse = True
        if refuse:
            self.give(events.RifRefused(call.link, call.call, "no"))
        else:
            assert isinstance(call.message, AddResources | RemoveResources)
            self.give(events.RifAnswered(call.link, call.call, DagReport(())))


class RtsAmongOthers(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.world = World()

    def resources(self) -> list[str]:
        return [name for rif in self.world.machine.rifs for name in rif.resources]

    @rule(hosts=st.lists(st.sampled_from(HOSTS), min_size=1, max_size=3), cores=st.integers(0, 2))
    def bootstrap(self, hosts: list[str], cores: int) -> None:
        world = self.world
        world.give(events.BootstrapAsked(world.new_ask(), tuple(hosts), "local", cores))

    @rule(block=st.sampled_from(HOSTS), nodes=st.integers(0, 2))
    def open_block(self, block: str, nodes: int) -> None:
        world = self.world
        world.give(events.BootstrapAsked(world.new_ask(), (block,), "batch", 0, {}, nodes))

    @precondition(lambda self: self.world.processes)
    @rule(data=st.data())
    def order_is_taken(self, data: st.DataObject) -> None:
        self.world.give(events.RifOrdered(*data.draw(st.sampled_from(sorted(self.world.processes)))))

    @precondition(lambda self: self.world.processes)
    @rule(data=st.data(), cores=st.integers(0, 3), stale=st.integers(0, 8))
    def hello(self, data: st.DataObject, cores: int, stale: int) -> None:
        world = self.world
        rif_id, incarnation = data.draw(st.sampled_from(sorted(world.processes)))
        if stale == 0:
            incarnation -= 1
        hardware = (Resource(f"{rif_id}.node", "node"),) if cores else ()
        hardware += tuple(Resource(f"{rif_id}.core{n}", "core", (f"{rif_id}.node",)) for n in range(cores))
        world.link += 1
        world.live_links.add(world.link)
        world.give(
            events.RifConnected(world.link, RifHello(rif_id, incarnation, 0, "anna", "memory:rif", hardware))
        )

    @precondition(lambda self: self.world.calls)
    @rule(refuse=st.integers(0, 5))
    def call_done(self, refuse: int) -> None:
        self.world.answer_call(refuse == 0)

    @precondition(lambda self: self.world.live_links)
    @rule(data=st.data())
    def link_lost(self, data: st.DataObject) -> None:
        link = data.draw(st.sampled_from(sorted(self.world.live_links)))
        self.world.live_links.discard(link)
        self.world.give(events.RifLost(link, "reset"))

    @precondition(lambda self: self.world.processes)
    @rule(data=st.data(), again=st.booleans())
    def process_ends(self, data: st.DataObject, again: bool) -> None:
        self.world.end(data.draw(st.sampled_from(sorted(self.world.processes))), again)

    @rule(host=st.sampled_from(HOSTS))
    def job_joins(self, host: str) -> None:
        self.world.link += 1
        self.world.give(events.JobConnected(self.world.link, RegisterJob("job", 1, host)))

    @precondition(lambda self: self.world.seen)
    @rule(data=st.data())
    def job_goes(self, data: st.DataObject) -> None:
        job = data.draw(st.sampled_from(sorted(self.world.seen)))
        del self.world.seen[job]
        self.world.give(events.JobServerGone(job, left=JobEnd(tasks={TaskState.FINISHED: 1})))

    @precondition(lambda self: self.world.seen and self.resources())
    @rule(data=st.data(), count=st.integers(0, 2))
    def lend(self, data: st.DataObject, count: int) -> None:
        job = data.draw(st.sampled_from(sorted(self.world.seen)))
        name = data.draw(st.sampled_from(self.resources()))
        self.world.give(events.LendAsked(job, name, count))

    @precondition(lambda self: self.resources())
    @rule(data=st.data(), policy=st.sampled_from(["lose", "wait", "refuse"]))
    def remove(self, data: st.DataObject, policy: str) -> None:
        name = data.draw(st.sampled_from(self.resources()))
        self.world.give(events.RemoveAsked(self.world.new_ask(), name.partition(".")[0], (name,), policy))

    @precondition(lambda self: self.world.machine.rifs)
    @rule(data=st.data(), number=st.integers(0, 5), parent=st.integers(0, 5))
    def add(self, data: st.DataObject, number: int, parent: int) -> None:
        rif_id = data.draw(st.sampled_from([rif.rif_id for rif in self.world.machine.rifs]))
        parents = (f"{rif_id}.x{parent}",) if parent < number else ()
        resource = Resource(f"{rif_id}.x{number}", "x", parents)
        self.world.give(events.AddAsked(self.world.new_ask(), rif_id, (resource,)))

    @precondition(lambda self: self.world.rm_waits)
    @rule(data=st.data())
    def released(self, data: st.DataObject) -> None:
        world = self.world
        name = data.draw(st.sampled_from(sorted(world.rm_waits)))
        world.rm_waits.remove(name)
        world.rm.remove(name)
        world.rm_says.append(events.ResourcesLeft((name,)))

    @precondition(lambda self: self.world.rm - self.world.rm_waits)
    @rule(data=st.data())
    def revoke_is_not_answered(self, data: st.DataObject) -> None:
        world = self.world
        name = data.draw(st.sampled_from(sorted(world.rm - world.rm_waits)))
        world.rm.remove(name)
        world.rm_says.append(events.ResourcesLeft((name,)))

    @precondition(lambda self: self.resources())
    @rule(data=st.data(), number=st.integers(1, 3))
    def revoke(self, data: st.DataObject, number: int) -> None:
        names = data.draw(st.lists(st.sampled_from(self.resources()), min_size=1, unique=True))
        self.world.give(Revoke((1, number), tuple(names)))

    @precondition(lambda self: self.world.revokes)
    @rule()
    def revoked(self) -> None:
        tell = self.world.revokes.pop(0)
        revoked = Revoked(tell.message.grant_id, tell.message.resources)
        self.world.give(events.RevokedBy(tell.link, revoked))

    @precondition(lambda self: self.world.machine.rifs)
    @rule(data=st.data())
    def take_down(self, data: st.DataObject) -> None:
        ids = [rif.rif_id for rif in self.world.machine.rifs]
        chosen = data.draw(st.lists(st.sampled_from(ids), min_size=1))
        self.world.give(events.TeardownAsked(self.world.new_ask(), tuple(chosen)))

    @rule(seconds=st.sampled_from([0.0, 0.1, 1.0, 3.0, 31.0, 70.0]))
    def time_passes(self, seconds: float) -> None:
        self.world.now += seconds
        self.world.give(Tick())

    @rule(seldom=st.integers(0, 9))
    def stop(self, seldom: int) -> None:
        if seldom == 0:
            self.world.give(events.Stop())

    @invariant()
    def the_rm_has_what_the_rifs_have(self) -> None:
        world = self.world
        world.settle_rm()
        usable = {rif.rif_id: {one.resource_id for one in rif.usable()} for rif in world.machine.rifs}
        assert world.rm == set().union(*usable.values())
        up = {rif.rif_id for rif in world.machine.rifs if rif.state is RifState.UP}
        for seen in world.seen.values():
            assert seen == {rif_id: ids for rif_id, ids in usable.items() if rif_id in up}
        assert world.rm_jobs == set(world.seen)
        brings = world.machine._lives._coming.brings
        assert world.coming == {rif.rif_id: rif.wanted for rif in world.machine.rifs if brings(rif)}

    def teardown(self) -> None:
        world = self.world
        if not world.stopped:
            world.give(events.Stop())
        for _ in range(3):
            for key in list(world.processes):
                world.end(key)
            world.settle_rm()
            world.now += Limits().last_end_s  # what was started twice may not have been seen to end
            world.give(Tick())
        assert world.stopped
        assert world.asks == set(), "a question was never answered"
        assert world.rm == set()
        assert world.machine.deadline() is None


RtsAmongOthers.TestCase.settings = settings(max_examples=40, stateful_step_count=40)
test_the_rts_keeps_its_word_among_others = RtsAmongOthers.TestCase


def test_an_unknown_event_is_illegal():
    with pytest.raises(IllegalEvent, match="str is no event of the RTS"):
        Rts(frozenset()).handle("?", 0.0)
