"""The journal of a job: whatever is left of it leads to a state that its engine was in."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gspc_trio import Net, farm
from gspc_trio.components.job.journal import (
    JournaledEngine,
    JournalMismatch,
    Outcomes,
    Replay,
    Step,
    replay,
)
from gspc_trio.components.job.journal_bytes import (
    MAGIC,
    About,
    decode_record,
    encode_record,
)
from gspc_trio.core.task import TaskError
from gspc_trio.records.journal_frames import BadJournal, Framer, Frames
from gspc_trio.workflow import search
from gspc_trio.workflow.activities import loaded_engine
from gspc_trio.workflow.engine import FIRINGS_MAX, WorkflowEngine
from tests.workflow.model import nets, nets_with_activities
from tests.workflow.support import CODEC, compute, engine_for, next_task

ABOUT = About("1", "flow.py", "f00", ("n=3",), {"cores": 2})


def load(net: Net, state: dict[str, Any]) -> WorkflowEngine:
    return loaded_engine(net, state, **CODEC)


def plain(engine: WorkflowEngine) -> Any:
    """The state of an engine; tasks that have not finished are all the same."""
    return repr(plain_state(engine.dump()))


def plain_state(state: dict[str, Any]) -> Any:
    rows = [(task_id, name, taken) for task_id, name, _, taken, _ in state["activities"]]
    inside = {task_id: plain_state(inner) for task_id, inner in sorted(state.get("inside", {}).items())}
    last = state["last_task_id"] - state.get("others", 0)
    return state["tokens"], sorted(rows, key=repr), last, inside


class Recorder:
    """Writes the journal of an engine as a job server does, and remembers each state that was there."""

    def __init__(self, net: Net) -> None:
        self.net = net
        self.engine = JournaledEngine(engine_for(net))
        self.framer = Framer(MAGIC)
        self.file = MAGIC
        self.states: list[Any] = []
        self.waiting: list[tuple[int, Any]] = []
        self.tasks: list[Any] = []
        self.failed: list[Any] = []
        self.ended: set[int] = set()
        self.write(ABOUT, self.engine.snapshot())
        self.saw()

    def write(self, *records: Any) -> None:
        for record in records:
            self.file += self.framer.frame(encode_record(record))

    def saw(self) -> None:
        self.states.append(plain(self.engine.engine))

    def pull(self, room: int) -> None:
        while room and (task_id := self.engine.next()) is not None:
            self.tasks.append(self.engine.extract(task_id))
            room -= 1
            self.saw()
        self.saw()

    def end_some(self, choices: list[int]) -> None:
        """Some tasks end; their results become durable together, then they are taken in."""
        rows: list[tuple[int, Any]] = []
        for choice in choices:
            self.cancel_dropped(choice)
            if self.tasks:
                task = self.tasks.pop(choice % len(self.tasks))
                if choice % 7 == 3:
                    self.engine.fail(task.task_id, TaskError("ValueError", "boom"))
                    self.failed.append(task)
                    self.saw()
                else:
                    rows.append((task.task_id, compute(self.engine.engine, task)))
                    self.ended.add(task.task_id)
        self.write(*self.engine.take_steps(), Outcomes(tuple(rows)))
        self.waiting += rows

    def cancel_dropped(self, choice: int) -> None:
        """Tasks of activities that have failed are cancelled, or have ended before they could be."""
        dropped = self.engine.discarded
        while dropped:
            task_id = dropped.pop()
            if choice % 2 and task_id not in self.ended:
                self.engine.cancelled(task_id)
                self.tasks = [task for task in self.tasks if task.task_id != task_id]

    def inject(self, count: int) -> None:
        for task_id, values in self.waiting[:count]:
            self.engine.inject(task_id, values)
            self.saw()
        del self.waiting[:count]

    def retry(self) -> None:
        """Somebody wishes to have a task tried again that has failed."""
        if self.failed:
            task = self.failed.pop()
            if self.engine.engine.name_of(task.task_id).startswith("spread"):
                return  # it is of an activity, which has failed as a whole
            self.engine.restore(task.task_id)
            self.tasks.append(self.engine.extract(task.task_id))

    def rotate(self) -> None:
        self.framer, self.file = Framer(MAGIC), MAGIC
        self.write(ABOUT, self.engine.snapshot(), Outcomes(tuple(self.waiting)))


def read(data: bytes) -> list[Any]:
    return [decode_record(payload) for payload in Frames(data, MAGIC)]


actions = st.one_of(
    st.tuples(st.just("pull"), st.integers(1, 9)),
    st.tuples(st.just("end"), st.lists(st.integers(0, 50), min_size=1, max_size=4)),
    st.tuples(st.just("inject"), st.integers(1, 5)),
    st.tuples(st.just("rotate"), st.none()),
    st.tuples(st.just("retry"), st.none()),
)


scripts = (
    st.lists(actions, max_size=25),
    st.sampled_from([1, 2, FIRINGS_MAX]),
    st.sampled_from([1, 3, search.PAUSE_CHOICES]),
    st.data(),
)


@given(nets(), *scripts)
@settings(max_examples=60)
def test_any_cut_of_a_journal_gives_a_state_that_existed(
    net: Net, script: Any, firings_max: int, pause_choices: int, data: st.DataObject
) -> None:
    """Also where something else happens while inline transitions fire, and while a search goes on."""
    check_cut(net, script, firings_max, pause_choices, data)


@given(nets_with_activities(), *scripts)
@settings(max_examples=40)
def test_any_cut_of_a_journal_with_activities_gives_a_state_that_existed(
    net: Net, script: Any, firings_max: int, pause_choices: int, data: st.DataObject
) -> None:
    """Also when some of them have failed."""
    check_cut(net, script, firings_max, pause_choices, data)


def check_cut(net: Net, script: Any, firings_max: int, pause_choices: int, data: st.DataObject) -> None:
    recorder = Recorder(net)
    recorder.engine.engine.firings_max = firings_max
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(search, "PAUSE_CHOICES", pause_choices)
        recorder.pull(3)
        for name, argument in script:
            if name == "pull":
                recorder.pull(argument)
            elif name == "end":
                recorder.end_some(argument)
            elif name == "inject":
                recorder.inject(argument)
            elif name == "retry":
                recorder.retry()
            else:
                recorder.rotate()
    cut = data.draw(st.integers(0, len(recorder.file)), label="cut")
    records = read(recorder.file[:cut])[1:]
    if not records:
        return
    again = Replay(lambda state: load(net, state))
    for record in records:
        again.apply(record)
    assert plain(again.engine) in recorder.states
    durable = {task_id for record in records if isinstance(record, Outcomes) for task_id, _ in record.rows}
    engine = again.finish()
    engine.check()
    under_way = set(engine.under_way())
    assert durable.isdisjoint(under_way), "what is durable is not done again"
    engine.lift_limits(True)
    ready = set()
    while len(ready) < len(under_way) and (task_id := next_task(engine)) is not None:
        ready.add(task_id)
    assert under_way <= ready, "all else is handed out again"


def never(some: int, others: int) -> bool:
    del some, others
    return False


def test_what_was_looked_at_before_a_search_paused_is_not_looked_at_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Else a transition that tokens come for later would fire before one that had waited for its turn."""
    monkeypatch.setattr(search, "PAUSE_CHOICES", 1)
    net = Net("pausing")
    net.input("empty", [])
    net.input("some", range(3))
    net.input("others", range(3))
    net.transition("lacks", max, inputs=["some", "empty"], outputs=[net.output("larger")])
    net.transition("looks", max, inputs=["some", "others"], outputs=[net.output("largest")], condition=never)
    recorder = Recorder(net)
    recorder.pull(1)
    assert recorder.engine.has_more
    recorder.end_some([])
    assert read(recorder.file)[2] == Step(0, 0, False, searching=("looks",))
    again = Replay(lambda state: load(net, state))
    for record in read(recorder.file)[1:]:
        again.apply(record)
    assert plain(again.engine) == recorder.states[-1] != recorder.states[0]


@given(st.lists(st.binary(min_size=1, max_size=40), max_size=8), st.data())
def test_whatever_happens_to_the_end_of_a_file_only_whole_frames_are_read(
    payloads: list[bytes], data: st.DataObject
) -> None:
    framer = Framer(MAGIC)
    frames = [framer.frame(payload) for payload in payloads]
    file = MAGIC + b"".join(frames)
    cut = data.draw(st.integers(len(MAGIC), len(file)))
    torn = file[:cut] + data.draw(st.sampled_from([b"", bytes(30), b"\xff" * 30, file[cut : cut + 3]]))
    found = Frames(torn, MAGIC)
    there = list(found)
    assert there == payloads[: len(there)]
    whole = [
        number for number in range(len(frames) + 1) if len(MAGIC) + len(b"".join(frames[:number])) <= cut
    ]
    assert len(there) >= (whole[-1] if whole else 0)
    assert torn[: found.valid_bytes] == file[: found.valid_bytes]


@given(st.integers(0, 200), st.integers(1, 255))
def test_a_changed_byte_ends_the_journal_there(position: int, change: int) -> None:
    framer = Framer(MAGIC)
    payloads = [b"one", b"two" * 20, b"three"]
    file = bytearray(MAGIC + b"".join(map(framer.frame, payloads)))
    place = len(MAGIC) + position % (len(file) - len(MAGIC))
    file[place] ^= change
    there = list(Frames(bytes(file), MAGIC))
    assert there == payloads[: len(there)]
    assert len(there) < 3


def test_frames_of_another_file_do_not_fit_in() -> None:
    first, second = Framer(MAGIC), Framer(MAGIC)
    assert list(Frames(MAGIC + first.frame(b"a") + second.frame(b"b"), MAGIC)) == [b"a"]


def test_another_kind_of_file_is_no_journal() -> None:
    with pytest.raises(BadJournal, match="not a journal"):
        Frames(b"#!/bin/sh\n", MAGIC)
    with pytest.raises(BadJournal):
        decode_record(b"\x93\x01")
    with pytest.raises(BadJournal):
        decode_record(b"\x92\x4f\x01")


def test_records_come_back_as_they_were() -> None:
    for record in (
        ABOUT,
        Outcomes(((1, ((b"x",), ())), (2, ()))),
        Step(3, 4, True),
        Step(0, 0, False, 0, (), (7, "look")),
    ):
        assert decode_record(encode_record(record)) == record


def test_a_resumed_farm_has_no_more_in_flight_and_knows_which_tasks_failed_before() -> None:
    net = farm(double, default=range(9), in_flight=2)
    recorder = Recorder(net)
    recorder.pull(9)
    assert [task.task_id for task in recorder.tasks] == [1, 2]
    recorder.engine.fail(1, TaskError("ValueError", "boom"))
    recorder.engine.fail(2, TaskError("ValueError", "boom"))
    recorder.tasks.clear()
    recorder.pull(9)
    assert [task.task_id for task in recorder.tasks] == [3, 4]
    recorder.end_some([0])
    engine = replay(read(recorder.file)[1:], lambda state: load(net, state))
    again = []
    while (task_id := next_task(engine)) is not None:
        again.append(engine.extract(task_id))
    assert [task.task_id for task in again] == [1, 2], "of 1, 2 and 4 as many as may be in flight"
    engine.inject(1, compute(engine, again[0]))
    assert engine.next() == 4, "before anything new"
    assert engine.next() is None
    engine.check()


def pair_of(item: int) -> dict[str, int]:
    return {"left": item, "right": item}


def add(left: int, right: int) -> int:
    return left + right


def test_a_file_that_began_late_leads_to_the_same_state_as_one_from_the_beginning() -> None:
    net = Net("pairs")
    items, left, right = net.place("items", (1, 2, 3)), net.place("left"), net.place("right")
    net.transition("split", pair_of, {"item": items}, {"left": left, "right": right})
    net.transition("join", add, {"left": left, "right": right}, net.output("sums"), match=lambda item: item)
    recorder = Recorder(net)
    recorder.pull(3)
    recorder.end_some([0])
    recorder.inject(1)
    recorder.pull(3)  # the first pair has come and gone: the numbers of its tokens are not in the snapshot
    recorder.rotate()
    recorder.end_some([0, 0])
    recorder.inject(2)  # the others stay, as in a job that ends because a task has failed
    recorder.end_some([])
    again = Replay(lambda state: load(net, state))
    for record in read(recorder.file)[1:]:
        again.apply(record)
    assert plain(again.engine) == recorder.states[-1]
    assert [name for name, (_, tokens) in again.engine.dump()["tokens"]["places"].items() if tokens] == [
        "left",
        "right",
    ]


def double(item: int) -> int:
    return 2 * item


def test_a_workflow_that_does_something_else_is_noticed() -> None:
    net = farm(double, name="doubles", default=[1, 2])
    recorder = Recorder(net)
    records = [*read(recorder.file)[1:], Step(0, 5, True)]
    with pytest.raises(JournalMismatch, match="3 tasks were ready then"):
        replay(records, lambda state: load(net, state))
    with pytest.raises(JournalMismatch, match="no task 7"):
        replay([*records[:-1], Outcomes(((7, ((b"",),)),))], lambda state: load(net, state))
    with pytest.raises(JournalMismatch, match="without its outcomes"):
        replay([*records[:-1], Step(1, 0, False)], lambda state: load(net, state))
