"""The tasks: every state, with filter and search, and everything about one of them."""

from __future__ import annotations

from typing import ClassVar

from rich.text import Text
from textual.app import ComposeResult
from textual.binding import Binding, BindingType

from gspc_trio.core.ids import JobId
from gspc_trio.core.task import FINAL_STATES, TaskState
from gspc_trio.records.facts import TaskChanged
from gspc_trio.tui.lines import Lines
from gspc_trio.tui.palette import SYMBOLS, state_cell
from gspc_trio.tui.table import Cell, Column, WindowTable
from gspc_trio.tui.text import clock, count, duration, plural
from gspc_trio.tui.views.base import View

CYCLE: tuple[tuple[TaskState, ...], ...] = ((), *((state,) for state in TaskState))
"""What the key for states goes through: all, then one after another."""

JOB = 1
"""Position of the job among the columns."""

ROWS_MAX = 2_000
"""Rows of the list; a filter finds the others."""


class Tasks(View):
    """The tasks of one job, or of all."""

    NAME: ClassVar[str] = "tasks"
    KEY: ClassVar[str] = "4"
    HELP: ClassVar[str] = (
        "The tasks that are known by name: those that run first, then those that failed, are at a worker, "
        "are ready, have ended. s goes through the states, / searches id, name, resource and error; Enter "
        "shows inputs, output and traceback. Of very fast runs only the last tasks are known by name."
    )
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("s", "next_state(1)", "State"),
        Binding("S", "next_state(-1)", "State back", show=False),
        Binding("c", "app.cancel_task", "Cancel"),
        Binding("r", "app.retry_task", "Retry"),
    ]

    def __init__(self) -> None:
        super().__init__()
        self._tasks: list[TaskChanged] = []
        self._states: tuple[TaskState, ...] = ()
        self._made: tuple[object, ...] = ()

    def parts(self) -> ComposeResult:
        """Return the counts and the list."""
        yield Lines(id="counts")
        yield WindowTable(
            Column("task", 8, right=True),
            Column("job", 4, room=96),
            Column("name"),
            Column("state", 11),
            Column("try", 3, right=True),
            Column("where", 12),
            Column("host", 14, room=130),
            Column("since", 8, room=110),
            Column("took", 7, right=True),
            Column("detail", heat=2),
            empty="no task fits",
        )

    def draw(self) -> None:
        """Show how things are now."""
        model, top = self.model, self.top
        made = (top.job, self.text, self._states, model.version)
        if made != self._made:
            self._made = made
            self._tasks = model.tasks(top.job, self.text, self._states, ROWS_MAX)
        tasks = self._tasks
        self.table.show([f"{it.job} {it.task_id}" for it in tasks], lambda at: self._cells(tasks[at]))
        self.query_one("#counts", Lines).show(self._title())

    def job_under_cursor(self) -> JobId | None:
        """Return the job of the task on which the cursor is."""
        task = self.task_under_cursor()
        return task.job if task is not None else self.top.job

    def task_under_cursor(self) -> TaskChanged | None:
        """Return the task on whose row the cursor is."""
        at = self.table.cursor
        return self._tasks[at] if at < len(self._tasks) else None

    def on_window_table_chosen(self) -> None:
        """Show everything about the task."""
        task = self.task_under_cursor()
        if task is not None:
            self.top.show_task(task)

    def action_next_state(self, by: int) -> None:
        """Show the tasks in another state only."""
        at = CYCLE.index(self._states) + by
        self._states = CYCLE[at % len(CYCLE)]
        self.draw()

    def _title(self) -> Text:
        model, job = self.model, self.top.job
        counted = [it.counts for it in model.jobs() if job is None or it.job == job]
        numbers = {state: sum(counts[state] for counts in counted) for state in TaskState}
        total, shown = sum(numbers.values()), len(self._tasks)
        listed = "" if shown == total else f"  {plural(shown, 'row')} of {count(total)}"
        texts = {
            state: f"{SYMBOLS[state.value]} {count(numbers[state])} {state.value}" for state in TaskState
        }
        if sum(len(text) + 2 for text in texts.values()) + len(listed) > self.size.width:
            texts = {state: text for state, text in texts.items() if numbers[state] or state in self._states}
        title = Text(" ")
        for state, text in texts.items():
            title.append(text, "reverse" if self._states == (state,) else "").append("  ")
        return title.append(listed)

    def _cells(self, task: TaskChanged) -> list[Cell]:
        model = self.model
        since_s = model.wall_s(task)
        took: float | None = task.duration_s if task.state in FINAL_STATES else None
        if task.state is TaskState.RUNNING:
            took = max(0.0, model.now_s - since_s)
        is_alone = self.top.job is not None or len(model.streams) == 1 or self.table.width_of(JOB)
        return [
            str(task.task_id) if is_alone else f"{task.job}/{task.task_id}",
            task.job,
            task.name,
            state_cell(task.state.value),
            str(task.attempt or ""),
            task.resource_id,
            model.host_of(task.resource_id) if task.resource_id else "",
            clock(since_s),
            duration(took) if took is not None and (took or task.started_s) else "",
            (task.detail, task.state.value) if task.detail else "",
        ]
