"""Plans of a job server: what they are told of the job's tasks, data and hosts."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

from msgspec.structs import replace

from gspc_trio.components.job.engine_wrapper import Engine, FlowEngine
from gspc_trio.components.job.plan import PlanData, PlanHost
from gspc_trio.components.job.scheduler.interface import KnownTask, TasksKnown
from gspc_trio.components.job.scheduler.plans import Plans
from gspc_trio.components.job.shell.settings import JobSettings, stage_limits
from gspc_trio.core.ids import ResourceId, RifId, TaskId, host_name
from gspc_trio.core.task import Outcome, Task
from gspc_trio.policies.plans.by_name import find_plan
from gspc_trio.protocol.values import Reference, TrackedReference, decode_reference, is_reference
from gspc_trio.workflow.engine import WorkflowEngine
from gspc_trio.workflow.graph import TaskGraph
from gspc_trio.workflow.net import Net

if TYPE_CHECKING:
    from gspc_trio.components.job.shell.data import JobData


def plan_job(
    settings: JobSettings, engine: Engine, hosts: Mapping[ResourceId, str], data: JobData | None
) -> tuple[Plans, GraphAhead | None]:
    """Return the plan of a job, and what says which of its tasks will be ready later, if that is known.

    Args:
        settings: of the job, with a plan.
        engine: says what is ready; a graph of tasks knows more than that.
        hosts: resource -> the name of its host; it grows as they come.
        data: the job's data in a memory layer, None: it has none.

    Raises:
        PlanError: there is no such plan.
    """
    while isinstance(engine, FlowEngine):  # with records it knows no less
        engine = engine.wrapped
    policy = find_plan(settings.plan, settings.tightness)
    plans = Plans(policy, JobKnowledge(hosts, data), ahead_max=stage_limits(settings).attempts_max)
    if isinstance(engine, WorkflowEngine):
        plans.takers = Takers(engine, is_reference).of
    return plans, GraphAhead(engine) if isinstance(engine, TaskGraph) else None


class JobKnowledge:
    """What a plan asks of a job: data is in its memory layer, if it has one; small values go with tasks.

    Args:
        hosts: resource -> the name of its host.
        data: the job's data, or None.
    """

    def __init__(self, hosts: Mapping[ResourceId, str], data: JobData | None) -> None:
        self._hosts = hosts
        self._data = data
        self._labels: dict[RifId, str] = {}
        self._names: dict[str, RifId] = {}

    def host(self, name: RifId, cores: int) -> PlanHost:
        """Return a host; how much it may hold is what its memory server can."""
        if name not in self._labels:
            self._learn()
        sizes = {} if self._data is None else self._data.policy.memory_bytes
        return PlanHost(name, cores=cores, memory_bytes=sizes.get(self._labels.get(name, ""), 0))

    def inputs_of(self, task: Task) -> list[PlanData]:
        """Return the parts of the data among a task's arguments, each with the host that has it."""
        found = []
        for argument in task.arguments:
            if is_reference(argument):
                reference = _reference_of(argument)
                for label, size_bytes in reference.places:
                    part = f"{reference.data_id}@{label}"
                    found.append(PlanData(size_bytes, (self.named(label),), part))
        return found

    def output_bytes(self, outcome: Outcome) -> int:
        """Return the size of what a task has put into the memory layer."""
        tokens = (token for values in outcome.values for token in values if is_reference(token))
        return sum(_reference_of(token).size_bytes for token in tokens)

    def named(self, label: str) -> RifId:
        """Return what the ids of a host's resources begin with, by its name; the name if it is not known."""
        if label not in self._names:
            self._learn()
        return self._names.get(label, label)

    def memory_host(self, name: str) -> str:
        """Return the name of a host in the job's memory layer; "" if there is no layer.

        Whether it has a server there is known late: who sends data there finds that out.
        """
        if self._data is None:
            return ""
        if name not in self._labels:
            self._learn()
        return self._labels.get(name, "")

    def _learn(self) -> None:
        for resource_id, label in self._hosts.items():
            name = host_name(resource_id)
            self._labels[name], self._names[label] = label, name


def _reference_of(argument: bytes) -> Reference:
    return argument.reference if type(argument) is TrackedReference else decode_reference(argument)


class GraphAhead:
    """Says which tasks a graph has got, before they can run.

    Args:
        graph: of the job.
    """

    def __init__(self, graph: TaskGraph) -> None:
        self._graph = graph
        self._last: TaskId = 0

    def news(self) -> TasksKnown | None:
        """Return the tasks that were added since this was asked last, None if there are none."""
        if self._graph.last_task_id == self._last:
            return None
        found = []
        for task, references, arguments in self._graph.added(self._last):
            given = tuple(argument for argument in arguments if isinstance(argument, bytes))
            found.append(KnownTask(replace(task, arguments=given) if given else task, tuple(references)))
        self._last = self._graph.last_task_id
        return TasksKnown(tuple(found))


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
