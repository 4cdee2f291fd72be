"""Which tasks of a net would take the result of a task, with the tokens that are there meanwhile."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from gspc_trio.core.ids import TaskId
from gspc_trio.core.task import Task
from gspc_trio.workflow.engine import WorkflowEngine
from gspc_trio.workflow.net import Net


def takers_in(net: Net) -> dict[str, tuple[str, ...]]:
    """Return transition -> those that make tasks, and whose code gets what its code returns.

    A place from which several transitions take tells nothing: the first one that can fire gets the token.

    Args:
        net: the workflow.
    """
    users: dict[str, set[str]] = {}
    for transition in net.transitions.values():
        for arc in transition.inputs:
            users.setdefault(arc.place, set()).add(transition.name)
    found = {}
    for transition in net.transitions.values():
        names: dict[str, None] = {}
        for made in transition.output_arcs:
            if made.output >= 0 and len(there := users.get(made.place, set())) == 1:
                (name,) = there
                user = net.transitions[name]
                is_task = not user.is_inline and user.subnet is None and user.variants is None
                if is_task and any(arc.passed and arc.place == made.place for arc in user.inputs):
                    names[name] = None
        if names and not transition.is_inline:
            found[transition.name] = tuple(names)
    return found


class Takers:
    """Says which tasks would take the results of others.

    Args:
        engine: of the net.
        is_data: whether encoded values are data in a memory layer; others say nothing of where a task runs.
    """

    def __init__(self, engine: WorkflowEngine, is_data: Callable[[bytes], bool]) -> None:
        self._engine = engine
        self._is_data = is_data
        self._of = takers_in(engine.net)

    def of(self, task_id: TaskId) -> Sequence[Task]:
        """Return the tasks that would take the result of a task under way.

        Their arguments are the data among the tokens that are first in the other places from which they take.

        Args:
            task_id: of the task; the others have its negative.
        """
        activity = self._engine.activities.get(task_id)
        names = () if activity is None else self._of.get(activity.transition.description.name, ())
        found = []
        for name in names:
            transition = self._engine.running.transitions[name].description
            made = {arc.place for arc in self._engine.net.transitions[name].inputs if not arc.passed}
            assert activity is not None
            made |= {arc.place for arc in activity.transition.description.output_arcs}
            arguments = tuple(
                data
                for arc in transition.inputs
                if arc.place not in made and (data := self._first(arc.place)) is not None
            )
            code_id = self._engine.plan.code_ids[name]
            found.append(Task(-task_id, name, code_id, arguments, transition.shape, transition.options))
        return found

    def _first(self, place: str) -> bytes | None:
        token = next(iter(self._engine.running.places[place]), None)
        data = None if token is None else token.data
        return data if data is not None and self._is_data(data) else None
