"""Everything about one task, kept up to date while it runs: where it is, what it has printed so far."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from gspc_trio.components.job.messages import GetTask, TaskDetails
from gspc_trio.core.task import FINAL_STATES, TaskState
from gspc_trio.records.facts import TaskChanged
from gspc_trio.tui.dialogs import TextPage
from gspc_trio.tui.palette import SYMBOLS
from gspc_trio.tui.text import clock, duration, printable

if TYPE_CHECKING:
    from gspc_trio.tui.app import TopApp

ASK_INTERVAL_S = 1.0
"""Seconds between two questions about a task that has not ended."""

LINES_MAX = 200
"""Last lines of output that are shown."""

PHASES = {
    "waiting": "at the worker, behind another task",
    "stage_in": "its data is being fetched",
    "compute": "it computes",
    "stage_out": "its results are being stored",
}
"""Phase of an attempt at its worker -> what people are told."""


class TaskPage(TextPage):
    """The page of one task: at once what is known here, then what its job server tells.

    Args:
        task: the last word on it.
    """

    def __init__(self, task: TaskChanged) -> None:
        super().__init__(f"task {task.task_id}", "")
        self._record = task
        self._told: TaskDetails | None = TaskDetails(task.task_id, "asking its job server …")
        self._trouble = ""

    @property
    def top(self) -> TopApp:
        """The application."""
        return cast("TopApp", self.app)

    def on_mount(self) -> None:
        """Show what is known, and ask for more until the task has ended."""
        super().on_mount()
        self._draw()
        self._ask()
        self.set_interval(ASK_INTERVAL_S, self._look)

    def _look(self) -> None:
        """Ask again, and let the time go on, while there is something that can change."""
        if self._state not in FINAL_STATES and not self.top.held_still:
            self._ask()
            self._draw()

    def _ask(self) -> None:
        self.run_worker(self._learn(), group="details", exclusive=True)

    async def _learn(self) -> None:
        question = GetTask(self._record.task_id)
        self._told, self._trouble = await self.top.ask_quietly(self._record.job, question)
        self._draw()

    @property
    def _state(self) -> TaskState:
        return _last_word(self._record, self._told).state

    def _draw(self) -> None:
        model, task = self.top.model, self._record
        since_s = model.wall_s(_last_word(task, self._told))
        self.show(describe(task, self._told, since_s, model.now_s, self._trouble))


def _last_word(task: TaskChanged, told: TaskDetails | None) -> TaskChanged:
    """Return what the job server has said last of a task, or what is known here."""
    return told.record if told is not None and told.record is not None else task


def describe(
    task: TaskChanged, told: TaskDetails | None, since_s: float, now_s: float, trouble: str = ""
) -> str:
    """Return everything about a task as lines.

    Args:
        task: the last word on it here.
        told: what the job server says of it, None if it cannot be asked.
        since_s: time of the last word.
        now_s: the time.
        trouble: why the job server cannot be asked.
    """
    last = _last_word(task, told)
    details = told if told is not None else TaskDetails(task.task_id, "")
    lines = [*_facts(last, details, since_s, now_s), *_sections(details, last.state)]
    if told is None:
        lines += ["", f"Inputs and output are not known here: {trouble or 'its job server cannot be asked'}"]
    return "\n".join(lines)


def _facts(last: TaskChanged, told: TaskDetails, since_s: float, now_s: float) -> list[str]:
    state, where = last.state, last.resource_id
    lasted = "" if state in FINAL_STATES else f", for {duration(max(0.0, now_s - since_s))}"
    facts = [
        ("task", f"{last.task_id} of job {last.job}"),
        ("name", told.name or last.name),
        ("state", f"{SYMBOLS[state.value]} {state.value} since {clock(since_s)}{lasted}"),
        ("attempt", str(last.attempt or "none yet")),
        ("where", f"{where} ({told.host})" if told.host and where else where),
    ]
    if told.phase:
        process = f", in process {told.pid}" if told.pid else ""
        facts.append(("phase", f"{PHASES.get(told.phase, told.phase)}{process}"))
    if last.started_s:
        facts.append(("began", f"{clock(last.started_s)}, {duration(last.duration_s)} of compute"))
    in_s, in_end_s, out_s, out_end_s = last.staged_s or (0.0, 0.0, 0.0, 0.0)
    staged = [f"{duration(in_end_s - in_s)} to fetch data"] * (in_end_s > in_s)
    staged += [f"{duration(out_end_s - out_s)} to store data"] * (out_end_s > out_s)
    facts.append(("staging", ", ".join(staged)))
    why = "" if state in FINAL_STATES else told.why
    facts += [("needs", told.shape), ("now", why), ("detail", last.detail)]
    return [f"{name:<10}{printable(text)}" for name, text in facts if text]


def _sections(told: TaskDetails, state: TaskState) -> list[str]:
    running = state is TaskState.RUNNING
    part = "so far" if running else "the last of it"
    lines = []
    for title, said in (
        ("error", told.error),
        ("traceback", told.traceback),
        (f"standard output ({part})", told.stdout),
        (f"standard error ({part})", told.stderr),
    ):
        text = printable(said).rstrip()
        if text:
            lines += ["", f"── {title} ──", *_last(text.split("\n"))]
    if running and told.phase == "compute" and not (told.stdout or told.stderr):
        lines += ["", "It has printed nothing so far."]
    if told.inputs:
        inputs = (f"{number}: {printable(text)}" for number, text in enumerate(told.inputs, 1))
        lines += ["", "── inputs ──", *inputs]
    return lines


def _last(lines: list[str]) -> list[str]:
    before = len(lines) - LINES_MAX
    return lines if before <= 0 else [f"… {before} lines before", *lines[before:]]
