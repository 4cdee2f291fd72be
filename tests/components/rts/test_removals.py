"""Resources that are removed in all ways, one over the other, while jobs use them: RTS and RM agree."""

from __future__ import annotations

from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from gspc_trio.components.rif.messages import DagReport, RifHello
from gspc_trio.components.rm.errors import RmError
from gspc_trio.components.rm.events import Added, Removed
from gspc_trio.components.rm.machine import ResourceManager
from gspc_trio.components.rm.messages import Demand, Grant, Release, Revoke, Revoked
from gspc_trio.components.rts import actions, events
from gspc_trio.components.rts.machine import Rts
from gspc_trio.components.rts.messages import RegisterJob
from gspc_trio.components.rts.state import RifState
from gspc_trio.core.ids import GrantId
from gspc_trio.core.machine import Tick
from gspc_trio.core.resources import Resource
from gspc_trio.core.task import Requirement, Shape
from gspc_trio.records.facts import ResourceChanged

NODE = Resource("r1.node", "node")
SOCKETS = tuple(Resource(f"r1.socket{n}", "socket", ("r1.node",)) for n in range(2))
CORES = tuple(Resource(f"r1.core{n}", "core", (f"r1.socket{n // 2}",)) for n in range(4))
HARDWARE = (NODE, *SOCKETS, *CORES)
POLICIES = st.sampled_from(["lose", "wait", "refuse"])


class Removals(RuleBasedStateMachine):
    """One host, its RTS, a real resource manager, and a job that holds what it gets."""

    def __init__(self) -> None:
        super().__init__()
        self.now = 0.0
        self.rts = Rts(frozenset({"local"}))
        self.rm = ResourceManager(1)
        self.asks: set[int] = set()
        self.ask = self.link = 0
        self.calls: list[actions.AskRif] = []
        self.revokes: list[Revoke] = []
        self.grants: dict[GrantId, set[str]] = {}
        self.seen: GrantId = (0, 0)

    def give(self, event: Any) -> None:
        told = self.rts.handle(event, self.now)
        self.rts.check()
        for action in told:
            if isinstance(action, actions.TellRm):
                self.tell_rm(action.event)
            elif isinstance(action, actions.AskRif):
                self.calls.append(action)
            elif isinstance(action, actions.TellRif) and isinstance(action.message, Revoke):
                self.revokes.append(action.message)
            elif isinstance(action, actions.Answer | actions.QuestionRefused):
                self.asks.discard(action.ask)
            elif isinstance(action, actions.StartRif):
                self.hello(action.incarnation)
            elif isinstance(action, actions.KillRif):
                self.give(events.RifEnded(action.rif_id, action.incarnation, "it was killed"))

    def tell_rm(self, event: Any) -> None:
        refusal = ""
        try:
            self.rm_did(self.rm.handle(event, self.now))
        except RmError as error:
            refusal = str(error)
        self.rm.check()
        if isinstance(event, Added | Removed):
            self.give(events.RmAnswered(event, refusal))
        else:
            assert not refusal

    def rm_did(self, told: Any) -> None:
        gone: list[str] = []
        for action in told:
            if isinstance(action, Grant):
                self.seen = max(self.seen, action.grant_id)
                self.grants[action.grant_id] = set(action.resources)
            elif isinstance(action, Revoke):
                self.give(action)
            elif isinstance(action, ResourceChanged) and action.state == "removed":
                gone.append(action.resource_id)
        for grant_id, names in list(self.grants.items()):
            names.difference_update(gone)
            if not names:
                del self.grants[grant_id]
        if gone:
            self.give(events.ResourcesLeft(tuple(gone)))

    def hello(self, incarnation: int) -> None:
        self.link += 1
        self.calls.clear()
        self.revokes.clear()
        hello = RifHello("r1", incarnation, 0, "anna", "memory:r1", HARDWARE)
        self.give(events.RifConnected(self.link, hello))

    def new_ask(self) -> int:
        self.ask += 1
        self.asks.add(self.ask)
        return self.ask

    @initialize()
    def start(self) -> None:
        self.give(events.BootstrapAsked(self.new_ask(), ("anna",)))
        self.answer()
        self.give(events.JobConnected(99, RegisterJob("job", 1, "anna")))

    @property
    def resources(self) -> list[str]:
        return [name for rif in self.rts.rifs for name in rif.resources]

    @rule(kind=st.sampled_from(["core", "core", "socket", "node"]), credit=st.integers(0, 3))
    def demand(self, kind: str, credit: int) -> None:
        shape = Shape((Requirement(kind),), wait=True)
        self.rm_did(self.rm.handle(Demand("j1", shape, credit, self.seen), self.now))

    @precondition(lambda self: self.grants)
    @rule(data=st.data())
    def release(self, data: st.DataObject) -> None:
        grant_id = data.draw(st.sampled_from(sorted(self.grants)))
        del self.grants[grant_id]
        self.rm_did(self.rm.handle(Release("j1", grant_id), self.now))
        self.rm.check()

    @precondition(lambda self: self.resources)
    @rule(data=st.data(), policy=POLICIES, number=st.integers(1, 2))
    def remove(self, data: st.DataObject, policy: str, number: int) -> None:
        few = st.lists(st.sampled_from(self.resources), min_size=number, max_size=number, unique=True)
        if len(self.resources) >= number:
            self.give(events.RemoveAsked(self.new_ask(), "r1", tuple(data.draw(few)), policy))

    @rule(data=st.data())
    def add(self, data: st.DataObject) -> None:
        missing = [one for one in HARDWARE if one.resource_id not in self.resources]
        if missing:
            chosen = data.draw(st.lists(st.sampled_from(missing), min_size=1, unique_by=str))
            self.give(events.AddAsked(self.new_ask(), "r1", tuple(chosen)))

    @rule(count=st.integers(0, 2), name=st.sampled_from([one.resource_id for one in CORES]))
    def lend(self, count: int, name: str) -> None:
        if name in self.resources:
            self.give(events.LendAsked("j1", name, count))

    @precondition(lambda self: self.calls)
    @rule()
    def answer(self) -> None:
        call = self.calls.pop(0)
        self.give(events.RifAnswered(call.link, call.call, DagReport(())))

    @precondition(lambda self: self.revokes)
    @rule()
    def revoked(self) -> None:
        revoke = self.revokes.pop(0)
        self.give(events.RevokedBy(self.link, Revoked(revoke.grant_id, revoke.resources)))

    @rule(seconds=st.sampled_from([0.1, 0.3, 2.5, 7.0]))
    def time(self, seconds: float) -> None:
        self.now += seconds
        self.rm_did(self.rm.handle(Tick(), self.now))
        self.give(Tick())

    @invariant()
    def they_agree(self) -> None:
        for rif in self.rts.rifs:
            if rif.state is not RifState.UP:
                continue
            there = {one.resource_id for one in rif.usable()}
            in_rm = {name for name in self.rm._state.pool.resources if name.startswith("r1.")}
            assert in_rm <= there, (in_rm, there)
            adding = rif.request is not None
            assert adding or there == in_rm, (in_rm, there)
            for one in rif.usable():
                assert set(one.parents) <= there, f"{one.resource_id} is there without {one.parents}"


TestRemovals = Removals.TestCase
TestRemovals.settings = settings(max_examples=40, stateful_step_count=40)
