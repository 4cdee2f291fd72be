"""Two clients, one of which dies at any step: resources and credit are conserved, nothing works twice.

The host is simulated by what matters of a RIF: it runs what it is given, fences, kills what is revoked.
"""

from __future__ import annotations

from collections import deque
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gspc_trio.components.rm.events import Added, JobGone, JobJoined
from gspc_trio.components.rm.explain import JobShare
from gspc_trio.components.rm.machine import ResourceManager
from gspc_trio.components.rm.messages import Demand, Grant, Recall, Release, Revoke, Revoked
from gspc_trio.components.rm.state import Limits
from gspc_trio.core.ids import NO_GRANT, GrantId
from gspc_trio.core.machine import Tick
from gspc_trio.core.task import CORE, Shape
from tests.components.rm.support import NODE, host, several

SHAPES = (CORE, NODE, several("core", "core"))


class World:
    """Clients, a resource manager and a host, with messages under way between all of them."""

    def __init__(self) -> None:
        self.rm = ResourceManager(1, Limits(recall_after_s=0.0, reserve_after_s=0.2, lease_s=1e9))
        self.now = 0.0
        self.resources = {r.resource_id: r for r in host("r1")}
        self.rm.handle(Added(tuple(self.resources.values())), 0.0)
        self.to_rm: dict[str, deque[Any]] = {}
        self.to_client: dict[str, deque[Any]] = {}
        self.revokes: deque[Revoke] = deque()
        self.clients: dict[str, Client] = {}
        self.working: dict[GrantId, tuple[str, ...]] = {}
        self.fence: dict[str, GrantId] = {}

    def join(self, name: str, todo: list[Shape]) -> None:
        self.to_rm[name] = deque()
        self.to_client[name] = deque()
        self.tell(JobJoined(name))
        self.clients[name] = Client(self, name, todo)

    def tell(self, event: Any) -> None:
        actions = self.rm.handle(event, self.now)
        self.rm.check()
        for action in actions:
            if isinstance(action, Revoke):
                self.revokes.append(action)
            elif hasattr(action, "job") and isinstance(action, Grant | Recall):
                self.to_client[action.job].append(action)

    def related(self, name: str) -> set[str]:
        above = set()
        level = {name}
        while level:
            above |= level
            level = {parent for each in level for parent in self.resources[each].parents}
        return above

    def submit(self, grant: Grant) -> bool:
        """The host runs it unless it is fenced off; two at work on relatives must never happen."""
        for name in grant.resources:
            for other, fence in self.fence.items():
                near = name in self.related(other) or other in self.related(name)
                if near and grant.grant_id <= fence:
                    return False
        for names in self.working.values():
            for name in grant.resources:
                for other in names:
                    assert name not in self.related(other), f"{name} and {other} work at once"
                    assert other not in self.related(name), f"{name} and {other} work at once"
        self.working[grant.grant_id] = grant.resources
        return True

    def revoke_next(self) -> None:
        revoke = self.revokes.popleft()
        self.working.pop(revoke.grant_id, None)
        for name in revoke.resources:
            self.fence[name] = max(revoke.grant_id, self.fence.get(name, NO_GRANT))
        self.tell(Revoked(revoke.grant_id, revoke.resources))

    def die(self, name: str) -> None:
        del self.clients[name]
        self.to_rm[name].clear()
        self.tell(JobGone(name))


class Client:
    """A scheduler reduced to credit: demands what it can use, submits, gives back what has ended."""

    def __init__(self, world: World, name: str, todo: list[Shape]) -> None:
        self.world = world
        self.name = name
        self.todo = list(todo)
        self.seen: GrantId = NO_GRANT
        self.running: list[Grant] = []
        self.done = 0
        for shape in dict.fromkeys(todo):
            self.state_demand(shape)

    def state_demand(self, shape: Shape) -> None:
        self.world.to_rm[self.name].append(Demand(self.name, shape, self.todo.count(shape), self.seen))

    def receive(self) -> None:
        message = self.world.to_client[self.name].popleft()
        if isinstance(message, Grant):
            self.seen = message.grant_id
            assert message.shape in self.todo, "more grants than credit"
            self.todo.remove(message.shape)
            assert self.world.submit(message), "the grant of a living job was fenced off"
            self.running.append(message)

    def finish(self) -> None:
        grant = self.running.pop(0)
        del self.world.working[grant.grant_id]
        self.done += 1
        self.world.to_rm[self.name].append(Release(self.name, grant.grant_id))


def steps(world: World) -> list[Any]:
    """Return everything that could happen next."""
    found: list[Any] = []
    for name, messages in world.to_rm.items():
        if messages:
            found.append(lambda messages=messages: world.tell(messages.popleft()))
        client = world.clients.get(name)
        if client is None:
            continue
        if world.to_client[name]:
            found.append(client.receive)
        if client.running:
            found.append(client.finish)
    if world.revokes:
        found.append(world.revoke_next)
    if not found and world.rm.deadline() is not None:
        found.append(lambda: advance(world))
    return found


def advance(world: World) -> None:
    world.now = max(world.now, world.rm.deadline() or 0.0)
    world.tell(Tick())


LISTS = st.lists(st.sampled_from(SHAPES), min_size=1, max_size=6)


@settings(max_examples=150)
@given(data=st.data(), first=LISTS, second=LISTS, dies_at=st.integers(0, 40))
def test_whatever_dies_whenever_the_other_finishes_and_everything_comes_back(
    data: st.DataObject, first: list[Shape], second: list[Shape], dies_at: int
) -> None:
    world = World()
    world.join("a", first)
    world.join("b", second)
    for step in range(2000):
        if step == dies_at and "a" in world.clients:
            world.die("a")
        possible = steps(world)
        if not possible or (
            not world.clients["b"].todo and not world.clients["b"].running and step > dies_at
        ):
            break
        index = data.draw(st.integers(0, len(possible) - 1)) if step < 120 else step % len(possible)
        possible[index]()
    else:
        raise AssertionError("it does not come to an end")
    if "a" in world.clients:
        world.die("a")
    for _ in range(200):
        possible = steps(world)
        if not possible:
            break
        possible[0]()
    all_is_back(world, second)


def all_is_back(world: World, second: list[Shape]) -> None:
    assert world.clients["b"].done == len(second)
    status = world.rm.status()
    assert status.jobs["b"] == JobShare(1.0, {}, {}, 0.0)
    assert all(entry.free == entry.total for entry in status.classes.values())


def interleave(choices: list[int], first: list[Shape], second: list[Shape]) -> list[tuple[int, int]]:
    """Let happen what the choices say, then whatever is first; return each choice and how many there were."""
    world = World()
    world.join("a", first)
    world.join("b", second)
    made: list[tuple[int, int]] = []
    while possible := steps(world):
        if "a" in world.clients:
            possible.append(lambda: world.die("a"))
        choice = choices[len(made)] if len(made) < len(choices) else 0
        made.append((choice, len(possible)))
        possible[choice]()
        assert len(made) < 200, "it does not come to an end"
    all_is_back(world, second)
    return made


@pytest.mark.parametrize(
    ("first", "second", "at_least"),
    [
        ([CORE], [NODE], 150),
        ([NODE], [CORE], 150),
        ([CORE], [several("core", "core")], 300),
        ([CORE, NODE], [NODE], 1500),
    ],
)
def test_every_interleaving_with_a_death_at_every_step(
    first: list[Shape], second: list[Shape], at_least: int
) -> None:
    choices: list[int] = []
    runs = 0
    while made := interleave(choices, first, second):
        runs += 1
        while made and made[-1][0] + 1 == made[-1][1]:
            made.pop()
        if not made:
            break
        choices = [choice for choice, _ in made]
        choices[-1] += 1
    assert runs >= at_least, "all of them"


def test_a_lapsed_core_grant_and_a_new_node_grant_never_work_at_once() -> None:
    world = World()
    world.join("a", [CORE])
    world.tell(world.to_rm["a"].popleft())
    world.clients["a"].receive()
    world.join("b", [NODE])
    world.tell(world.to_rm["b"].popleft())
    world.die("a")
    assert not world.to_client["b"], "not before the core's work is known to have stopped"
    world.revoke_next()
    world.clients["b"].receive()
    assert list(world.working.values()) == [("r1.node",)]
