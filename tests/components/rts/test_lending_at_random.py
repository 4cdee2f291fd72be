"""Cores are lent while hosts, jobs and resources come and go; in the end nothing that was lent is left."""

from __future__ import annotations

from random import Random

import pytest

from gspc_trio.components.rif.messages import RifHello
from gspc_trio.components.rts import events
from gspc_trio.components.rts.messages import JobEnd, RegisterJob
from gspc_trio.components.rts.state import RifState
from gspc_trio.core.machine import Tick
from gspc_trio.core.resources import Resource, is_lent
from tests.components.rts.test_machine import World

STEPS = 80
LIKELY = {"lend": 8, "answer": 8, "time": 4, "release": 3, "hello": 2}
SELDOM = ("refuse", "remove", "job_goes", "job_joins", "cut", "end")


class BusyWorld(World):
    """The world of the machine, in which one host and some jobs do what a generator says."""

    def __init__(self, seed: int) -> None:
        super().__init__()
        self.random = Random(seed)
        self.give(events.BootstrapAsked(self.new_ask(), ("anna",), "local", 0))
        self.hello()
        self.answer_all()
        self.job_joins()

    def step(self) -> None:
        names = [*LIKELY, *SELDOM]
        weights = [*LIKELY.values(), *(1 for _ in SELDOM)]
        getattr(self, self.random.choices(names, weights)[0])()
        self.settle()

    def settle(self) -> None:
        self.settle_rm()
        usable = {one.resource_id for rif in self.machine.rifs for one in rif.usable()}
        assert self.rm == usable

    def resources(self) -> list[str]:
        return [name for rif in self.machine.rifs for name in rif.resources]

    def lend(self) -> None:
        if self.seen and self.resources():
            job, name = self.random.choice(sorted(self.seen)), self.random.choice(self.resources())
            self.give(events.LendAsked(job, name, self.random.choice([0, 0, 1, 2, 3])))

    def answer(self, refuse: bool = False) -> None:
        if self.calls:
            self.answer_call(refuse)

    def refuse(self) -> None:
        self.answer(True)

    def answer_all(self) -> None:
        while self.calls:
            self.answer()
            self.settle()

    def time(self) -> None:
        self.now += self.random.choice([0.0, 0.1, 0.3, 2.5, 31.0])
        self.give(Tick())

    def release(self) -> None:
        if self.rm_waits:
            name = self.random.choice(sorted(self.rm_waits))
            self.rm_waits.remove(name)
            self.rm.discard(name)
            self.rm_says.append(events.ResourcesLeft((name,)))

    def remove(self) -> None:
        if self.resources():
            name, policy = self.random.choice(self.resources()), self.random.choice(["lose", "wait"])
            self.give(events.RemoveAsked(self.new_ask(), name.partition(".")[0], (name,), policy))

    def job_joins(self) -> None:
        self.link += 1
        self.give(events.JobConnected(self.link, RegisterJob("job", 1, "anna")))

    def job_goes(self) -> None:
        if self.seen:
            job = self.random.choice(sorted(self.seen))
            del self.seen[job]
            self.give(events.JobServerGone(job, left=JobEnd()))

    def cut(self) -> None:
        if self.live_links:
            link = self.random.choice(sorted(self.live_links))
            self.live_links.discard(link)
            self.give(events.RifLost(link, "it was cut"))

    def hello(self) -> None:
        for rif_id, incarnation in sorted(self.processes):
            self.link += 1
            self.live_links.add(self.link)
            node = Resource(f"{rif_id}.node", "node")
            cores = tuple(Resource(f"{rif_id}.core{n}", "core", (node.resource_id,)) for n in range(2))
            said = RifHello(rif_id, incarnation, 0, "anna", "memory:rif", (node, *cores))
            self.give(events.RifConnected(self.link, said))

    def come_to_rest(self) -> None:
        """All jobs go, and whatever is asked is done."""
        while self.seen:
            self.job_goes()
        for _ in range(40):
            if any(rif.state is RifState.STARTING and rif.link is None for rif in self.machine.rifs):
                self.hello()
            self.answer_all()
            while self.rm_waits:
                self.release()
            self.settle()
            self.now += 3.0
            self.give(Tick())

    def end(self, key: tuple[str, int] | None = None) -> None:
        if key is None and self.processes:
            key = self.random.choice(sorted(self.processes))
        if key is not None:
            super().end(key)


@pytest.mark.parametrize("seed", range(60))
def test_nothing_that_was_lent_is_left(seed: int) -> None:
    world = BusyWorld(seed)
    for _ in range(STEPS):
        world.step()
    world.come_to_rest()
    assert not [name for name in world.resources() if is_lent(name)]
    assert not world.machine._lending._lenders
    assert world.asks == set()
