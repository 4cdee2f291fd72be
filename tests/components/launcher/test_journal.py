"""Journal of a launcher: each event comes back as it was, and all of them bring a machine to where it was."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from msgspec.structs import replace

from gspc_trio.components.launcher.events import (
    CancelClient,
    Cancelled,
    CommandExited,
    ConnectionShutdown,
    LauncherAction,
    LauncherEvent,
    LauncherResumed,
    Listed,
    ListEngine,
    ListFailed,
    Message,
    NewConnection,
    ServerPing,
    Signal,
    Stop,
    StudyDone,
    SubmitClients,
    SubmitFailed,
    Submitted,
)
from gspc_trio.components.launcher.http_routes import StudyView
from gspc_trio.components.launcher.journal import (
    BadStudyJournal,
    EventLines,
    JournaledLauncher,
    StudyFile,
    StudyHead,
    moved,
    options_of_head,
    payloads_of,
    read_file,
    restore_launcher,
)
from gspc_trio.components.launcher.machine import Launcher
from gspc_trio.components.provision.batch import BatchState
from gspc_trio.core.machine import Tick
from gspc_trio.records.facts import StudyRecord
from gspc_trio.version import VERSION
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


HEAD = StudyHead(VERSION, "s", "/out", "/work", options_of_head(USUAL), "00")


def told(launcher: JournaledLauncher, *events: LauncherEvent, since: float) -> list[LauncherAction]:
    """Give these, one a second; return what follows."""
    return [
        action for number, event in enumerate(events) for action in launcher.handle(event, since + number)
    ]


def test_a_launcher_that_knows_the_same_and_is_told_the_same_is_where_the_other_one_was():
    """The time of the second program is another one."""
    lines: list[str] = []
    machine = Launcher(USUAL, "s", records=True)
    launcher = JournaledLauncher(machine, lines.append, 1000.0)
    view = StudyView()
    wanted = [Message(1, SubmitClients(number, (number,), COMMAND)) for number in range(4)]
    for action in told(launcher, Tick(), Submitted(0, "10"), NewConnection(1, 0, "10"), *wanted, since=5.0):
        if isinstance(action, StudyRecord):
            view.apply(action)
    launcher.handle(ListFailed(ask_for_list(launcher), "\udcff is no text"), 50.0)
    lines.clear()
    known = launcher.begin_file()
    file = StudyFile(HEAD, known, moved(view.kept(), 1000.0), lines)
    later = told(launcher, Submitted(1, "11"), Submitted(2, None), since=51.0)

    again = read_file(payloads_of(file))
    assert again == file
    other, records = Launcher(USUAL, "s", records=True), list[StudyRecord]()
    assert restore_launcher(other, again, records.append) == 1052.0
    assert records == [one for one in later if isinstance(one, StudyRecord)] != []
    assert other.jobs() == machine.jobs() != []
    assert other.deadline() == machine.deadline() == (launcher.deadline() or 0.0) + 1000.0
    other_view = StudyView()
    other_view.restore(moved(again.view, -1000.0))
    assert other_view.events(0, None) == view.events(0, None)
    assert other_view.progress.snapshot() == view.progress.snapshot()
    for event in (LauncherResumed(), NewConnection(7, 0), Signal(15)):
        assert other.handle(event, 1060.0) == launcher.handle(event, 60.0)


def ask_for_list(launcher: JournaledLauncher) -> int:
    """Wait for the next list that is asked for while the server lives; return the number of that call."""
    for second in range(12, 50):
        launcher.handle(Message(1, ServerPing()), float(second))
        for action in launcher.handle(Tick(), float(second)):
            if isinstance(action, ListEngine):
                return action.uid
    raise AssertionError("nobody asks for a list")


def file_with(*lines: str) -> StudyFile:
    known = JournaledLauncher(Launcher(USUAL, "s"), lambda _: None).begin_file()
    return StudyFile(HEAD, known, StudyView().kept(), list(lines))


def test_what_was_not_possible_is_no_journal():
    line = EventLines().write(0.0, Submitted(5, "1"))
    with pytest.raises(BadStudyJournal, match="Submitted was not possible then"):
        restore_launcher(Launcher(USUAL, "s"), file_with(line), lambda _: None)


@pytest.mark.parametrize("known", [b"", b"{}", b"[]", b"\xff", b'{"now": "x"}'])
def test_what_no_launcher_knew_is_no_journal(known: bytes):
    file = replace(file_with(), launcher=known)
    with pytest.raises(BadStudyJournal, match="what the launcher knew cannot be read"):
        restore_launcher(Launcher(USUAL, "s"), file, lambda _: None)


def test_what_does_not_begin_like_a_file_of_a_journal_is_said():
    payloads = [*payloads_of(file_with("[]"))]
    assert read_file(payloads) == file_with("[]")
    for wrong in ([], payloads[1:], payloads[:1], [*payloads[:2], b"x"], [b"h{}", *payloads[1:]]):
        with pytest.raises(BadStudyJournal):
            read_file(wrong)


def test_a_study_that_has_stopped_is_known_to_have():
    machine = Launcher(USUAL, "s")
    launcher = JournaledLauncher(machine, lambda _: None)
    launcher.handle(Signal(15), 1.0)
    other = Launcher(USUAL, "s")
    restore_launcher(other, replace(file_with(), launcher=launcher.begin_file()), lambda _: None)
    assert other.end == machine.end == Stop(143, "it got the signal 15")
