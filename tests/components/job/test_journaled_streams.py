"""Streams of a job with a journal: whatever is left of the journal, the results are the same."""

from __future__ import annotations

from itertools import accumulate as sums
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gspc_trio import Net, accumulate, farm, pipeline, stage
from gspc_trio.components.job.journal import replay
from gspc_trio.workflow.arcs import WorkflowError
from tests.components.job.test_journal_replay import Recorder, load, read
from tests.workflow.support import Driver, engine_for, next_task, reloaded

ITEMS = list(range(40))


def add_up(item: int, total: int) -> tuple[int, int]:
    return total + item, total + item


def add(so_far: int, item: int) -> int:
    return so_far + item


def double(item: int) -> int:
    return 2 * item


def net_of_streams() -> Net:
    return pipeline(
        stage(add_up, state=0, batch=3),
        farm(double, in_flight=4),
        accumulate(2, 0, 0, add, partial=True),
        buffer=5,
        is_open=True,
    )


def expected(count: int) -> list[int]:
    doubled = [2 * total for total in sums(ITEMS[:count])]
    return [sum(doubled[begin : begin + 2]) for begin in range(0, count, 2)]


class Stream:
    """A job with a journal that is fed and read from outside."""

    def __init__(self) -> None:
        self.recorder = Recorder(net_of_streams())
        self.ports = self.recorder.engine.engine.ports
        self.put_so_far = 0

    def do(self, name: str, number: int) -> None:
        recorder, engine = self.recorder, self.recorder.engine.engine
        if name == "put" and "items" in self.ports.open:
            values = ITEMS[self.put_so_far : self.put_so_far + number]
            self.put_so_far += len(values)
            engine.put("items", values)
        elif name == "close" and self.put_so_far == len(ITEMS):
            self.ports.close("items")
        elif name == "hold":
            self.ports.hold("results", not self.ports.stream("results").is_held)
        elif name == "take" and self.ports.stream("results").is_held:
            self.ports.take_off("results", min(number, self.ports.waiting("results")))
        elif name == "pull":
            recorder.pull(number)
        elif name == "end":
            recorder.end_some([7 * one for one in range(number)])
        elif name == "inject":
            recorder.inject(number)
        elif name == "rotate":
            recorder.rotate()


ACTIONS = st.sampled_from(["put", "put", "close", "hold", "take", "pull", "pull", "end", "inject", "rotate"])


@settings(max_examples=60)
@given(st.lists(st.tuples(ACTIONS, st.integers(1, 9)), max_size=60), st.data())
def test_wherever_a_journal_was_cut_the_stream_goes_on(script: Any, data: st.DataObject) -> None:
    """It says how many items it has had, and how many results were taken: none is lost, none comes twice."""
    stream = Stream()
    for name, number in script:
        stream.do(name, number)
    cut = data.draw(st.integers(0, len(stream.recorder.file)))
    records = read(stream.recorder.file[:cut])[1:]
    if not records:
        return
    engine = replay(records, lambda state: load(stream.recorder.net, state))
    engine.check()
    if "items" in engine.ports.open:
        engine.put("items", ITEMS[engine.ports.received["items"] :])
        engine.ports.close("items")
    taken = engine.ports.stream("results").taken
    driver = Driver(engine).run()
    assert driver.engine.explain_stuck() == []
    assert driver.engine.outputs()["results"] == expected(len(ITEMS))[taken:]


def test_a_reader_who_is_slow_holds_the_stream_back() -> None:
    engine = engine_for(pipeline(double, double, buffer=4), items=range(100))
    engine.ports.hold("results", True)
    driver = Driver(engine).run()
    waiting = {place.name: place.tokens for place in engine.describe().places}
    assert (waiting["results"], waiting["(double 2 items)"], waiting["items"]) == (4, 4, 92)
    assert engine.explain_stuck() == []
    engine.ports.take_off("results", 3)
    driver.run()
    assert [engine.ports.waiting("results"), engine.ports.waiting("items")] == [4, 89]
    with pytest.raises(WorkflowError, match="somebody reads the results at 'results' already"):
        engine.ports.hold("results", True)
    engine.ports.hold("results", False)
    assert driver.run().engine.outputs()["results"] == [4 * number for number in range(3, 100)]


def test_a_port_that_was_closed_takes_no_more() -> None:
    net = pipeline(accumulate(2, 0, 0, add, partial=True), is_open=True)
    engine = reloaded(engine_for(net))
    engine.put("items", [1])
    assert next_task(engine) is None
    assert engine.explain_stuck() == []
    engine.ports.close("items")
    engine.ports.close("items")
    with pytest.raises(WorkflowError, match="the input port 'items' is closed"):
        engine.put("items", [2])
    assert Driver(engine).run().engine.outputs()["results"] == [1]
