"""Journal of a launcher: each event comes back as it was, and all of them bring a machine to where it was."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from gspc_trio.components.launcher.events import (
    CancelClient,
    Cancelled,
    CommandExited,
    ConnectionShutdown,
    LauncherEvent,
    LauncherResumed,
    Listed,
    ListFailed,
    Message,
    NewConnection,
    ServerPing,
    Signal,
    StudyDone,
    SubmitClients,
    SubmitFailed,
    Submitted,
)
from gspc_trio.components.launcher.journal import BadStudyJournal, EventLines, JournaledLauncher, replay
from gspc_trio.components.launcher.machine import Launcher
from gspc_trio.components.provision.batch import BatchState
from gspc_trio.core.machine import Tick
from tests.components.launcher.support import COMMAND, USUAL, job

JOBS = (job(0, BatchState.RUNNING), job(1, BatchState.HELD, "why \u20ac"), job(2, BatchState.QUEUED))
EVENTS: Sequence[LauncherEvent] = (
    Tick(),
    Signal(2),
    LauncherResumed(),
    NewConnection(1, 0, "10"),
    NewConnection(2, None),
    Message(1, ServerPing()),
    Message(1, SubmitClients(1, (1, 2), COMMAND, again=True)),
    Message(1, CancelClient(2, 1)),
    Message(1, StudyDone()),
    ConnectionShutdown(1),
    Submitted(1, None),
    Submitted(1, "7", is_running=True),
    SubmitFailed(1, "no"),
    Listed(3, JOBS),
    Listed(4, JOBS[::-1]),
    Listed(5, (JOBS[2], job(7, BatchState.QUEUED))),
    Listed(6, ()),
    ListFailed(7, "no"),
    Cancelled(8),
    CommandExited(1, 3, 7, is_gone=True),
)


def test_each_event_comes_back_as_it_was():
    assert {type(event) for event in EVENTS} == Launcher.event_kinds()
    writer, reader = EventLines(), EventLines()
    lines = [writer.write(0.1 * number, event) for number, event in enumerate(EVENTS)]
    assert [reader.read(line) for line in lines] == [
        (0.1 * number, event) for number, event in enumerate(EVENTS)
    ]


def test_a_list_that_is_as_the_one_before_is_short():
    writer = EventLines()
    writer.write(0.0, Listed(1, JOBS))
    assert writer.write(0.0, Listed(2, JOBS)) == '[0.0,"Listed",[2,[0,1,2]]]\n'


@pytest.mark.parametrize(
    "line", ["", "{}", "[1]", '[0,"None",{}]', '[0,"Listed",[1,[5]]]', '[0,"Signal",{}]']
)
def test_what_is_no_line_of_a_journal_is_said(line):
    with pytest.raises(BadStudyJournal):
        EventLines().read(line)


def test_a_machine_that_is_told_the_same_is_where_the_other_one_was():
    """The time of the second program is another one."""
    lines: list[str] = []
    machine = Launcher(USUAL, "s")
    launcher = JournaledLauncher(machine, lines.append, EventLines(), 1000.0)
    now = 5.0
    for event in (
        *(Tick(), Submitted(0, "10"), NewConnection(1, 0, "10")),
        *(Message(1, SubmitClients(number, (number,), COMMAND)) for number in range(4)),
        *(Submitted(1, "11"), Submitted(2, None)),
    ):
        launcher.handle(event, now)
        now += 1.0
    other, reader = Launcher(USUAL, "s"), EventLines()
    assert replay(other, lines, reader, lambda _: None) == 1000.0 + now - 1.0
    assert other.jobs() == machine.jobs() != []
    assert other.deadline() == machine.deadline() == (launcher.deadline() or 0.0) + 1000.0
    for event in (LauncherResumed(), NewConnection(7, 0), Signal(15)):
        now += 1.0
        assert other.handle(event, 1000.0 + now) == launcher.handle(event, now)


def test_what_was_not_possible_is_no_journal():
    line = EventLines().write(0.0, Submitted(5, "1"))
    with pytest.raises(BadStudyJournal, match="Submitted was not possible then"):
        replay(Launcher(USUAL, "s"), [line], EventLines(), lambda _: None)
