"""The workflow: the net with its tokens, and how far each transition is."""

from __future__ import annotations

from collections import Counter
from typing import ClassVar, TypeAlias

from rich.text import Text
from textual.app import ComposeResult

from gspc_trio.components.job.messages import GetNet
from gspc_trio.core.ids import JobId
from gspc_trio.core.net import NetStatus, PlaceKind, PlaceStatus, TransitionStatus
from gspc_trio.core.task import TaskState
from gspc_trio.tui.lines import Lines
from gspc_trio.tui.table import Cell, Column, WindowTable
from gspc_trio.tui.text import bar, count, one_line
from gspc_trio.tui.views.base import View

ASK_INTERVAL_S = 1.0
"""Seconds between two questions for the net."""

KINDS = {PlaceKind.INPUT: "▷", PlaceKind.OUTPUT: "◁", PlaceKind.STOP: "■", PlaceKind.PLACE: "○"}

LIVE = (TaskState.READY, TaskState.SUBMITTED, TaskState.RUNNING)
"""States of tasks that have not ended."""

Row: TypeAlias = tuple[PlaceStatus | TransitionStatus, int]
"""A node of the net, and how deep it is in it."""


class WorkflowView(View):
    """The places and transitions of one job's net, in the order in which tokens go."""

    NAME: ClassVar[str] = "workflow"
    KEY: ClassVar[str] = "6"
    HELP: ClassVar[str] = (
        "The net of one job: places (▷ input, ◁ output, ○ others) with the tokens that lie there, and "
        "transitions (▣ tasks, ▫ inline) with what is ready, at workers or running, done and failed."
    )

    def __init__(self) -> None:
        super().__init__()
        self._nets: dict[JobId, NetStatus] = {}
        self._asked_s = 0.0
        self._trouble = ""

    def parts(self) -> ComposeResult:
        """Return the title and the net."""
        yield Lines(id="net-title")
        yield WindowTable(
            Column("node", heat=2),
            Column("tokens", 8, right=True),
            Column("ready", 7, right=True),
            Column("running", 7, right=True),
            Column("done", 7, right=True),
            Column("failed", 7, right=True),
            Column("progress", 12, room=90),
            Column("to", heat=1, room=110),
            empty="no workflow to be seen",
        )

    def entered(self) -> None:
        """Ask for the net at once."""
        self._asked_s = 0.0

    def draw(self) -> None:
        """Show how things are now."""
        job = self.job_under_cursor()
        if job is None:
            self.query_one("#net-title", Lines).show(" no job is running")
            self.table.show([], lambda _: [])
            return
        now_s = self.model.now_s
        if abs(now_s - self._asked_s) >= ASK_INTERVAL_S and job in self.model.connected:
            self._asked_s = now_s
            self.run_worker(self._ask(job), exclusive=True)
        facts = self.model.job(job)
        net = self._nets.get(job)
        if net is None:
            net = self._from_tasks(job)
        elif facts.state != "running" and job not in self.model.connected:
            net = self._nets[job] = at_end(net, self._from_tasks(job), facts.state)
        name = facts.name
        trouble = f"   {self._trouble}" if self._trouble else ""
        self.query_one("#net-title", Lines).show(Text(one_line(f" job {job} ({name}){trouble}")))
        running = Counter(task.name for task in self.model.longest_running(job, 10**6))
        rows = [row for row in ordered(net) if self.fits((row[0].name,))]
        keys = [f"{type(node).__name__} {node.name}" for node, _ in rows]
        self.table.show(keys, lambda at: _cells(*rows[at], running))

    def job_under_cursor(self) -> JobId | None:
        """Return the job that is shown: the chosen one, or the first that runs."""
        if self.top.job is not None:
            return self.top.job
        jobs = sorted(self.model.jobs(), key=lambda it: (not it.connected, not it.total))
        return jobs[0].job if jobs else None

    async def _ask(self, job: JobId) -> None:
        told, self._trouble = await self.top.ask_quietly(job, GetNet())
        if told is not None and told.transitions:
            self._nets[job] = told

    def _from_tasks(self, job: JobId) -> NetStatus:
        """Return what the names of tasks tell of a workflow that cannot be asked for."""
        states: dict[str, Counter[TaskState]] = {}
        for task in self.model.tasks(job):
            states.setdefault(task.name, Counter())[task.state] += 1
        transitions = []
        for name, counts in states.items():
            done = counts.pop(TaskState.FINISHED, 0)
            transitions.append(TransitionStatus(name, (), (), counts, done))
        return NetStatus((), tuple(transitions))


def at_end(net: NetStatus, tasks: NetStatus, state: str) -> NetStatus:
    """Return a net as it is when its job is over, from how it was when it was last asked for.

    Args:
        net: as it was.
        tasks: what is known of the tasks of each transition.
        state: of the job.
    """
    known = {transition.name: transition for transition in tasks.transitions}
    transitions = []
    for it in net.transitions:
        live = sum(it.states.get(state, 0) for state in LIVE)
        # Nobody tells of activities: when all has gone well, those that were live have ended well.
        as_usual = TransitionStatus(it.name, (), (), {}, it.done + live * (state == "finished"))
        told = known.get(it.name, as_usual)
        done = max(it.done, told.done)
        failed = max(it.states.get(TaskState.FAILED, 0), told.states.get(TaskState.FAILED, 0))
        states = {TaskState.FAILED: failed} if failed else {}
        transitions.append(
            TransitionStatus(it.name, it.inputs, it.outputs, states, done, it.fired, it.inline)
        )
    return NetStatus(net.places, tuple(transitions))


def ordered(net: NetStatus) -> list[Row]:
    """Return places and transitions with their depth, in the order in which tokens go.

    A transition follows the places that it takes from; what is in a circle comes where it is met first.
    """
    places = {place.name: place for place in net.places}
    waiting = {transition.name: transition for transition in net.transitions}
    rows: list[Row] = []
    shown: set[str] = set()
    depth = 0

    def show_place(name: str) -> None:
        if name in places and name not in shown:
            shown.add(name)
            rows.append((places[name], depth))

    for place in net.places:
        if place.kind is PlaceKind.INPUT:
            show_place(place.name)
    while waiting:
        able = [it for it in waiting.values() if shown.issuperset(it.inputs)]
        if not able:  # a circle, or a place with initial tokens: go on with whom least is missing
            able = [min(waiting.values(), key=lambda it: len(set(it.inputs) - shown))]
        for transition in able:
            del waiting[transition.name]
            for name in transition.inputs:
                show_place(name)
            rows.append((transition, depth + 1))
            for name in transition.outputs:
                show_place(name)
    for name in places:
        show_place(name)
    return rows


def _cells(node: PlaceStatus | TransitionStatus, depth: int, running: Counter[str]) -> list[Cell]:
    if isinstance(node, PlaceStatus):
        label = f"{'  ' * depth}{KINDS[node.kind]} {node.name}"
        return [label, (count(node.tokens), "bold") if node.tokens else ("·", "dim")]
    states = node.states
    at_work = max(running[node.name], states.get(TaskState.RUNNING, 0))  # no worker tells of activities
    ready = max(0, sum(states.get(state, 0) for state in LIVE) - at_work)
    failed = states.get(TaskState.FAILED, 0)
    total = node.done + ready + at_work + failed
    label = f"{'  ' * depth}{'▫' if node.inline else '▣'} {node.name}"
    return [
        [(label, "title")],
        "",
        (count(ready), "ready") if ready else ("·", "dim"),
        (count(at_work), "running") if at_work else ("·", "dim"),
        (count(node.done), "finished") if node.done else ("·", "dim"),
        (count(failed), "failed") if failed else ("·", "dim"),
        (bar(node.done / total if total else 0.0, 12), "finished"),
        ("→ " + ", ".join(node.outputs) if node.outputs else "", "dim"),
    ]
