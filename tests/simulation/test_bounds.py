"""What must not grow while a simulation runs (invariant 9)."""

from __future__ import annotations

from random import Random

import pytest
from trio.testing import MockClock

from gspc_trio.core.machine import Tick
from gspc_trio.iml.coordinator import Coordinator
from gspc_trio.iml.events import Answered, Asked, ClientUp, ServerUp
from gspc_trio.iml.messages import Alloc, JoinLayer, ServerHello
from gspc_trio.nursery.scopes.observe import Fill
from gspc_trio.testing.checkers.base import Broken
from gspc_trio.testing.checkers.bounds import QUEUE_EVENTS, TABLE_EVENTS, TICKS_MAX, Bounds, count_objects
from gspc_trio.testing.cluster import open_cluster
from gspc_trio.testing.observer import Observer
from gspc_trio.testing.simulated.process import SimulatedProcess
from gspc_trio.testing.workload import Workload, behave

# The clock of a test is found among its own arguments.
# ruff: noqa: ARG001


class Eyes:
    """An observer of queues alone."""

    def __init__(self) -> None:
        self.queues = []

    def saw(self, machine, event, now, actions) -> None:
        del machine, event, now, actions

    def holds(self, queue) -> None:
        self.queues.append(queue)


class Waiting:
    """A queue of which one can say how much waits."""

    def __init__(self) -> None:
        self.fill = Fill("the box", 0, 10, 0, 100)
        self.over = False

    def fills(self):
        return () if self.over else (self.fill,)


def look_at_all(bounds: Bounds) -> None:
    for _ in range(3 * QUEUE_EVENTS):
        bounds.event()


@pytest.mark.parametrize(("items", "size_bytes"), [(11, 0), (0, 101)])
async def test_a_queue_with_more_than_may_wait_is_found_within_a_few_events(
    items, size_bytes, autojump_clock: MockClock
):
    async with open_cluster(1, hosts=1) as cluster:
        process = SimulatedProcess("p", "rif", "h", Eyes(), lambda _process: None)
        bounds, queues = Bounds(lambda: len(cluster.processes)), [Waiting() for _ in range(3)]
        for queue in queues:
            bounds.holds(process, queue)
        look_at_all(bounds)
        queues[1].over = True
        queues[1].fill = queues[1].fill._replace(items=1000)
        look_at_all(bounds)
        queues[2].fill = queues[2].fill._replace(items=items, size_bytes=size_bytes)
        with pytest.raises(Broken, match=f"{items} items with {size_bytes} bytes wait in the box"):
            look_at_all(bounds)


def test_a_deadline_that_stays_is_found():
    bounds, process = Bounds(lambda: 1), SimulatedProcess("p", "rif", "h", Eyes(), lambda _process: None)
    machine = Coordinator()
    for _ in range(2):
        for _ in range(TICKS_MAX):
            bounds.told(process, machine, Tick(), 1.0, acts=False)
        bounds.told(process, machine, Tick(), 1.0, acts=True)
    for second in range(TICKS_MAX + 1):
        bounds.told(process, machine, Tick(), float(second), acts=False)
    for _ in range(TICKS_MAX + 1):
        bounds.told(process, machine, Tick(), 2000.0, acts=False)
    with pytest.raises(Broken, match="p: the deadline of its Coordinator has come, and stays"):
        bounds.told(process, machine, Tick(), 2000.0, acts=False)


async def test_links_show_what_waits_until_they_are_over(autojump_clock: MockClock):
    eyes = Eyes()
    async with open_cluster(1, hosts=1, cores=1, behave=behave, observer=eyes) as cluster:
        await cluster.start_rts()
        job = cluster.start_job("job", Workload.make(Random(1), 5, [{"attempts": 9}]).net())
        await job.process.ended.wait()
        shown = [queue.fills() for queue in eyes.queues]
    names = {fill.name for fills in shown for fill in fills}
    assert names == {"the outbox", "the inbox"}
    assert all(fill.items <= fill.items_max for fills in shown for fill in fills)
    assert () in shown, "those of the job are over"


def test_a_memory_layer_may_have_as_much_as_it_has_data(autojump_clock: MockClock):
    """Each piece of data has its entry, however many there are; what is kept beside them is too much."""
    machine = Coordinator()
    for event in (
        ServerUp(1, 0, ServerHello("a", "ws://a:1", "", 10_000)),
        ClientUp(2, 0, JoinLayer("j1")),
        *(Asked(2, 0, Alloc("j1", 10)) for _ in range(200)),
        *(Answered(call) for call in range(1, 201)),
    ):
        machine.handle(event, 0.0)
    watching = Observer(lambda: 0.0, lambda: 1)
    process = SimulatedProcess("iml", "iml", "h", Eyes(), lambda _process: None)

    def look() -> None:
        for _ in range(TABLE_EVENTS):
            watching.saw(process, machine, Tick(), 0.0, [])

    look()
    machine.kept = [[number] for number in range(10_000)]
    with pytest.raises(Broken, match="its Coordinator of 202 tasks, resources or data consists of"):
        look()


def test_what_a_machine_keeps_is_counted():
    class Machine:
        def __init__(self):
            self.table = {}

    machine = Machine()
    before = count_objects(machine)
    machine.table["more"] = [[number] for number in range(10)]
    assert count_objects(machine) >= before + 11
