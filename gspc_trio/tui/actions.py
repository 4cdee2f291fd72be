"""Actions of the owner: each says what it costs, asks, and tells what became of it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

from attrs import define, field

from gspc_trio.components.job.messages import CancelTask, RetryFailed, StopJob
from gspc_trio.components.rts.messages import AddDag, GetResources, RemoveDag, SetWeight
from gspc_trio.core.ids import JobId, ResourceId, RifId
from gspc_trio.core.messages import AnswerT, Question
from gspc_trio.core.resources import Resource
from gspc_trio.core.task import FINAL_STATES, TaskState
from gspc_trio.tui.dialogs import Ask, Choose
from gspc_trio.tui.text import plural
from gspc_trio.tui.views.resources import Resources
from gspc_trio.tui.views.tasks import Tasks

if TYPE_CHECKING:
    from gspc_trio.tui.app import TopApp

ACTIONS = ("cancel_task", "retry_task", "stop_job", "weigh_job", "remove_resource", "drain_host", "add_back")
"""Names of all that change something."""

BACK = ("back", "Back: change nothing")


@define
class Removed:
    """Resources that were removed from here, so that they can be added back."""

    rif_id: RifId
    host: str
    resources: tuple[Resource, ...] = field(factory=tuple)


class Actions:
    """The actions of one terminal.

    Args:
        top: the application, for what is under the cursor, for questions and for the connection.
    """

    def __init__(self, top: TopApp) -> None:
        self.top = top
        self.removed: list[Removed] = []

    def allowed(self) -> bool:
        """Return whether anything may be changed from here; say why if not."""
        if self.top.may_act:
            return True
        self.top.say(self.top.why_not, "warning")
        return False

    async def _choose(self, question: str, detail: str, *answers: tuple[str, str]) -> str | None:
        return await self.top.push_screen_wait(Choose(question, detail, (BACK, *answers)))

    async def _do(self, job: JobId | None, message: Question[AnswerT], done: str) -> AnswerT | None:
        """Ask for it and tell what became of it; return the answer, None if it was refused."""
        answer, trouble = await self.top.ask_quietly(job, message)
        self.top.say(trouble or done, "error" if trouble else "information")
        return answer

    # Tasks --------------------------------------------------------------------------------------------------

    async def cancel_task(self) -> None:
        """Cancel the task under the cursor."""
        view = self.top.view
        task = view.task_under_cursor() if isinstance(view, Tasks) else None
        if task is None or not self.allowed():
            return
        if task.state in FINAL_STATES:
            self.top.say(f"task {task.task_id} is {task.state.value} already", "warning")
            return
        cost = "What it has computed is lost, and what depends on it fails."
        question = f"Cancel task {task.task_id} ({task.name}) of {task.job}?"
        if await self._choose(question, cost, ("yes", "Cancel it")) == "yes":
            order = CancelTask((task.task_id,))
            await self._do(task.job, order, f"task {task.task_id} was told to end")

    async def retry_task(self) -> None:
        """Give the failed task under the cursor a new attempt."""
        view = self.top.view
        task = view.task_under_cursor() if isinstance(view, Tasks) else None
        if task is None or not self.allowed():
            return
        if task.state is not TaskState.FAILED:
            self.top.say(f"task {task.task_id} has not failed: it is {task.state.value}", "warning")
            return
        order = RetryFailed(task.task_id)
        await self._do(task.job, order, f"task {task.task_id} gets a new attempt")

    # Jobs ---------------------------------------------------------------------------------------------------

    async def stop_job(self) -> None:
        """Stop the job under the cursor: drain it, or at once."""
        job = self.top.view.job_under_cursor()
        if job is None or not self.allowed():
            return
        facts = self.top.model.job(job)
        if facts.state != "running":
            self.top.say(f"job {job} is {facts.state} already", "warning")
            return
        waiting = facts.counts[TaskState.READY]
        running = facts.counts[TaskState.RUNNING] + facts.counts[TaskState.SUBMITTED]
        answer = await self._choose(
            f"Stop job {job} ({facts.name})?",
            f"{plural(waiting, 'task')} waiting, to be cancelled; {plural(running, 'task')} at workers.",
            ("drain", "Drain: what is at workers runs to its end"),
            ("now", "Now: what is at workers is killed, too"),
        )
        if answer in ("drain", "now"):
            order = StopJob(drain=answer == "drain")
            await self._do(job, order, f"job {job} was told to stop")

    async def weigh_job(self) -> None:
        """Change the weight of the job under the cursor."""
        job = self.top.view.job_under_cursor()
        if job is None or not self.allowed():
            return
        weights = {entry.job: entry.weight for entry in self.top.model.registered}
        if job not in weights:
            self.top.say(f"job {job} is not registered any more", "warning")
            return
        question = f"Weight of job {job}: its share relative to others"
        text = await self.top.push_screen_wait(Ask(question, f"{weights[job]:g}", "a number more than 0"))
        if not text:
            return
        weight = _number(text)
        if not weight > 0 or not math.isfinite(weight):
            self.top.say(f"{text!r} is no weight: write a number more than 0", "error")
            return
        await self._do(None, SetWeight(job, weight), f"job {job} has the weight {weight:g} now")

    # Resources ----------------------------------------------------------------------------------------------

    async def remove_resource(self) -> None:
        """Remove what the cursor is on from the system."""
        view = self.top.view
        row = view.row_under_cursor() if isinstance(view, Resources) else None
        if not isinstance(view, Resources) or row is None or not self.allowed():
            return
        rif_id, names = view.rif_of(row), view.resources_of(row)
        if rif_id is None or not names:
            self.top.say("there is nothing to remove here", "warning")
            return
        held = self._held_at_or_below(names)
        answer = await self._choose(
            f"Remove {', '.join(names)} and all below?",
            f"{plural(held, 'resource')} held now. It can be added back with + while this terminal runs.",
            ("wait", "When it is free: what runs there runs to its end"),
            ("lose", "Now: tasks there are lost, and run elsewhere"),
        )
        if answer in ("wait", "lose"):
            await self._remove(rif_id, row.host, names, answer)

    async def drain_host(self) -> None:
        """Remove everything of a host as it becomes free."""
        view = self.top.view
        row = view.row_under_cursor() if isinstance(view, Resources) else None
        if not isinstance(view, Resources) or row is None or not self.allowed():
            return
        rif_id = view.rif_of(row)
        names = tuple(self.top.model.hierarchy.hosts.get(row.host, ()))
        if rif_id is None or not names:
            self.top.say(f"{row.host} has no resources", "warning")
            return
        held = self._held_at_or_below(names)
        answer = await self._choose(
            f"Drain {row.host}?",
            f"It gets no new tasks. {plural(held, 'resource')} held now: each leaves when it is released.",
            ("drain", "Drain it"),
        )
        if answer == "drain":
            await self._remove(rif_id, row.host, names, "wait")

    async def add_back(self) -> None:
        """Add back what was removed from here."""
        if not self.allowed():
            return
        if not self.removed:
            self.top.say("nothing was removed from this terminal", "warning")
            return
        answers = [
            (str(number), f"{one.host}: {', '.join(it.resource_id for it in one.resources[:6])}")
            for number, one in enumerate(self.removed)
        ]
        answer = await self._choose("Add back what was removed?", "", *answers)
        if answer is None or answer == BACK[0]:
            return
        one = self.removed[int(answer)]
        order = AddDag(one.rif_id, one.resources)
        if await self._do(None, order, f"{plural(len(one.resources), 'resource')} added back") is not None:
            self.removed.remove(one)

    async def _remove(self, rif_id: RifId, host: str, names: Sequence[ResourceId], policy: str) -> None:
        listed, trouble = await self.top.ask_quietly(None, GetResources(rif_id))
        if listed is None:
            self.top.say(trouble, "error")
            return
        going = _with_all_below(listed.resources, names)
        later = " as they become free" if policy == "wait" else ""
        self.top.say(f"{plural(len(going), 'resource')} of {host} will be removed{later}", "information")
        one = Removed(rif_id, host, going)
        self.removed.append(one)
        order = RemoveDag(rif_id, tuple(names), policy)
        if await self._do(None, order, f"removed from {host}: {', '.join(names)}") is None:
            self.removed.remove(one)

    def _held_at_or_below(self, names: Sequence[ResourceId]) -> int:
        tree, held = self.top.model.hierarchy, self.top.model.held
        waiting = list(names)
        for name in waiting:
            waiting += tree.children.get(name, ())
        return sum(name in held for name in set(waiting))


def _with_all_below(resources: Sequence[Resource], names: Sequence[ResourceId]) -> tuple[Resource, ...]:
    """Return these resources and all below them, parents before children as they were."""
    going = set(names)
    found = []
    for resource in resources:
        if resource.resource_id in going or not going.isdisjoint(resource.parents):
            going.add(resource.resource_id)
            found.append(resource)
    return tuple(found)


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        return math.nan
