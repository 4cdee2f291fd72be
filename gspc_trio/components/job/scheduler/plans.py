"""Plans of a scheduler: where tasks are to run, told as soon as they are known, and kept up to date (ASP-5).

A plan is a wish. A task whose place is planned asks for a resource there, and waits for it as long as that
is worth while others are free; then it takes any. What runs or has ended stays where it is. What has not
begun is planned anew when hosts come or go, and when a task has made much more or less than it was taken to
make.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

from attrs import define, evolve, field
from msgspec.structs import replace

from gspc_trio.components.job.plan import (
    WORTH_MIN_S,
    Following,
    HostsNow,
    Links,
    PlanData,
    PlanError,
    PlanHost,
    PlanKnowledge,
    PlannedPlace,
    Planner,
    PlanPolicy,
    PlanTask,
    ReadyPlace,
    ReadyTask,
    View,
    fetch_s,
    patience_for,
    why,
)
from gspc_trio.components.job.scheduler.interface import KnownTask
from gspc_trio.components.job.scheduler.plan_hosts import (
    HostTurns,
    JobHosts,
    Known,
    expected_host,
    following,
    is_alike,
    learn,
    needed_by,
    place_matters,
)
from gspc_trio.components.job.scheduler.wishes import LONG_S, Wish, Wishes, longest_after, rank_of_chain
from gspc_trio.components.worker.messages import Finished, Submission
from gspc_trio.core.ids import ResourceId, TaskId, host_name
from gspc_trio.core.published import READER_MARK
from gspc_trio.core.resources import Resource
from gspc_trio.core.task import Outcome, Reason, Shape, Task

OFF = 2.0
"""A size that is off by this factor has the rest planned anew, ..."""

OFF_BYTES_MIN = 1 << 16
"""... and by so many bytes."""

UNKNOWN_S = 0.5
"""A task is taken to run so long as long as nothing was measured."""

AHEAD_MAX = 2_000
"""Of at most so many known tasks it is looked at how much time each of them has."""

ANEW_PAUSE_S = 1e-3
"""So many seconds for each task lie at least between two plans of all of them."""


@define(eq=False)
class Plans:
    """The plan of one job.

    Attributes:
        policy: makes it.
        knowledge: of the job's data and hosts.
        links: between its hosts.
        known: tasks that have not ended.
        users: task -> those that take its result and are not ready.
        there: its hosts.
        sizes: code -> how many of its tasks were measured, and what they have made on average.
        seconds: code -> the same of how long they would run on a host of speed 1.
        ahead_max: so many tasks are sent to a host behind those that run there, at least one to each worker.
            If more than one, workers let those overtake others whose data is there, or from which a longer
            chain follows.
        takers: returns the tasks of a net that would take the result of one under way; None: nobody knows.
        problem: why nothing could be planned last, or "".
        wishes: for which hosts tasks wait.
    """

    policy: PlanPolicy
    knowledge: PlanKnowledge
    ahead_max: int = 1
    links: Links = field(factory=Links)
    known: dict[TaskId, Known] = field(factory=dict)
    users: dict[TaskId, set[TaskId]] = field(factory=dict)
    there: JobHosts = field(factory=JobHosts)
    sizes: dict[int, tuple[int, float]] = field(factory=dict)
    seconds: dict[int, tuple[int, float]] = field(factory=dict)
    takers: Callable[[TaskId], Sequence[Task]] | None = None
    problem: str = ""
    wishes: Wishes = field(init=False)
    _planner: Planner | None = None
    _plan_host: dict[str, PlanHost] = field(factory=dict)
    """The hosts of the planner."""
    _turns: HostTurns = field(init=False)
    _mean_speed: float = 1.0
    _speeds_differ: bool = False
    _run: dict[TaskId, PlannedPlace] = field(factory=dict)
    """Where tasks have run on whose results others wait."""
    _new: dict[TaskId, None] = field(factory=dict)
    """Known tasks that were never placed, or are to be placed anew."""
    _anew_s: float = 0.0
    _off: bool = False
    _failed: set[TaskId] = field(factory=set)
    """Tasks that are planned anew after a failure; those that follow from them are not yet."""
    _mattered: bool = False
    """Tasks have had wishes. From then on all have: what has none could not use a grant that idles, and that
    was asked for by one that has."""
    _knows_graph: bool = False
    """It was told which tasks will be ready later."""

    def __attrs_post_init__(self) -> None:
        self.wishes = Wishes(self._run_s)
        self._turns = HostTurns(self.there, {})

    @property
    def placed(self) -> dict[TaskId, PlannedPlace]:
        """Where live tasks are planned."""
        placed = {} if self._planner is None else self._planner.placed
        return {task_id: placed[task_id] for task_id in self.known if task_id in placed}

    # What happens

    def resources_up(self, resources: Iterable[Resource]) -> bool:
        """These are there now; return whether any of their hosts was not there before, or rested."""
        before = self.there.used
        if self.there.add(resources):
            self._hosts_changed()
        return self.there.used > before

    def resources_lost(self, resource_ids: Iterable[ResourceId]) -> None:
        """These are gone: what was planned on a host without any other is planned anew."""
        was_there, gone = self.there.remove(resource_ids)
        for host in gone:
            self.wishes.drop_host(host)
        if was_there:
            self._hosts_changed()

    def host_rests(self, host: str, rests: bool) -> bool:
        """Nothing is to be planned on a host for now, or again; return whether that is new."""
        if not self.there.note_rest(host, rests):
            return False
        self.wishes.drop_host(host)
        self._hosts_changed()
        return True

    def tasks_known(self, tasks: Sequence[KnownTask]) -> None:
        """These tasks were added to the workflow."""
        self._knows_graph = True
        for one in tasks:
            self._know(one.task, one.dependencies)
            for dependency in one.dependencies:
                self.users.setdefault(dependency, set()).add(one.task.task_id)

    def drop(self, task_ids: Iterable[TaskId]) -> None:
        """These tasks have ended, or never will be ready."""
        for task_id in task_ids:
            known = self.known.pop(task_id, None)
            self._new.pop(task_id, None)
            self.wishes.drop(task_id)
            if known is not None:
                self._release(known.task)
            if task_id not in self.users:
                self._forget(task_id)

    def ended(self, state: View, event: Finished) -> None:
        """Attempts have ended: learn of those with which their tasks have finished."""
        for outcome in event.outcomes:
            is_over = outcome.reason is Reason.FINISHED and outcome.task_id not in state.tasks
            if is_over and outcome.task_id in self.known:
                self.finished(outcome, event.resource_id, state.now)

    def finished(self, outcome: Outcome, resource_id: ResourceId, now: float) -> None:
        """A task has run there; learn from it, and keep what it has made in mind for those that take it."""
        task_id, host = outcome.task_id, host_name(resource_id)
        code_id = self.known[task_id].code_id
        for label, size_bytes, seconds in outcome.moved:
            self.links.note(self.knowledge.named(label), host, size_bytes, seconds)
        size_bytes = self.knowledge.output_bytes(outcome)
        assumed = self._placed(task_id)
        learn(self.sizes, code_id, size_bytes)
        speed = self._plan_host[host].speed if host in self._plan_host else 1.0
        learn(self.seconds, code_id, outcome.duration_s * speed)
        if task_id in self.users:
            self._run[task_id] = PlannedPlace(host, output_bytes=size_bytes, end_s=now)
            if self._planner is not None and host in self.there.hosts:
                self._planner.settle(task_id, self._run[task_id], now)
            taken = 0 if assumed is None else assumed.output_bytes
            less, more = sorted((taken, size_bytes))
            if more >= OFF * less and more - less >= OFF_BYTES_MIN:
                self._off = True
        self.drop((task_id,))

    def _hosts_changed(self) -> None:
        self._planner = None
        self._new = dict.fromkeys(self.known)

    def _know(self, task: Task, dependencies: tuple[TaskId, ...] = ()) -> Known:
        inputs = self._inputs_of(task)
        known = self.known[task.task_id] = Known(
            PlanTask(
                task.task_id,
                tuple(dict.fromkeys(dependencies)),
                inputs,
                self._size_of(task.code_id, task.options.output_bytes),
                needed_by(task),
                memory_bytes=max(task.shape.memory_bytes, sum(data.size_bytes for data in inputs)),
                name=task.name,
            ),
            task,
        )
        self._new[task.task_id] = None
        return known

    def _inputs_of(self, task: Task) -> tuple[PlanData, ...]:
        """Return the data of a task that is there; what is lost is being made again, nobody knows where."""
        found = self.knowledge.inputs_of(task)
        return tuple(data for data in found if not self.there.hosts.keys().isdisjoint(data.hosts))

    def _size_of(self, code_id: int, stated: int | None) -> int:
        return round(self.sizes.get(code_id, (0, 0.0))[1]) if stated is None else stated

    def _run_s(self, task_id: TaskId) -> float | None:
        """Return how long a task runs on a host of speed 1: stated, else measured, else None."""
        known = self.known.get(task_id)
        if known is None or known.estimate_s is not None:
            return None if known is None else known.estimate_s
        found = self.seconds.get(known.code_id)
        return None if found is None else found[1]

    def _release(self, task: PlanTask) -> None:
        """A task takes nothing from others any more."""
        for dependency in task.dependencies:
            users = self.users.get(dependency, set())
            users.discard(task.task_id)
            if not users:
                self.users.pop(dependency, None)
                if dependency not in self.known:
                    self._forget(dependency)

    def _forget(self, task_id: TaskId) -> None:
        self._run.pop(task_id, None)
        if self._planner is not None:
            self._planner.forget((task_id,))

    # Planning

    def ready(self, state: View, tasks: Iterable[Task]) -> list[Task]:
        """Return tasks that can run now, with wishes for where they are planned; variants have none."""
        wanted = list(tasks)
        if self.there.hosts:
            for task in wanted:
                self._know_ready(task, frozenset())
            self._bring_up_to_date(state)
        return self._wishing_all(state, wanted)

    def again(self, state: View, task: Task, avoid: frozenset[ResourceId]) -> Task:
        """Return a task that gets another attempt, planned anew without the hosts of what has failed it."""
        task = self.without_wish(task)
        if not self.there.hosts:
            return task
        hosts = frozenset(map(host_name, avoid))
        self._know_ready(task, hosts if self.there.hosts.keys() - hosts else frozenset())
        if hosts and task.task_id in self.users:
            self._failed.add(task.task_id)
        self._bring_up_to_date(state)
        return self._wishing_all(state, [task])[0]

    def with_readers(
        self, submissions: Sequence[Submission], resource_id: ResourceId
    ) -> tuple[Submission, ...]:
        """Return tasks that are sent to a resource; each is told where on another host its result is read.

        A task is told nothing if one of those that take its result is planned on its own host, or comes with
        it. Those of a net are planned when they are ready; until then it is looked at what they would take.
        """
        sent = {one.task_id for one in submissions}
        told, own = [], host_name(resource_id)
        for one in submissions:
            users = self.users.get(one.task_id, set())
            if users:
                hosts = [place.host for it in sorted(users) if (place := self._placed(it)) is not None]
            else:
                hosts = self._expected_hosts(one.task_id, own)
            if hosts and own not in hosts and users.isdisjoint(sent):
                reader = self.knowledge.memory_host(hosts[0])
                if reader:
                    one = replace(one, arguments=(*one.arguments, READER_MARK + reader.encode()))
            told.append(one)
        return tuple(told)

    @property
    def knows_readers(self) -> bool:
        """Whether it may know where any result is read."""
        return bool(self.users) or self.takers is not None

    def _expected_hosts(self, task_id: TaskId, own: str) -> list[str]:
        """Return the hosts for those that are expected to take what a task makes that runs on ``own``."""
        known = self.known.get(task_id)
        if self.takers is None or known is None or own not in self._plan_host:
            return []
        size_bytes = self._size_of(known.code_id, known.output_bytes)
        found = []
        for task in self.takers(task_id):
            inputs = (*self._inputs_of(task), PlanData(size_bytes, (own,)))
            found.append(expected_host(task, inputs, own, self._plan_host, self.links))
        return found

    def without_wish(self, task: Task) -> Task:
        """Return a task as it was before it was planned."""
        known = self.known.get(task.task_id)
        return task if known is None or known.shape is None else replace(task, shape=known.shape)

    def _know_ready(self, task: Task, avoid: frozenset[str]) -> None:
        """Take in a task with the data that it takes, which says more than its dependencies."""
        if task.variants is not None:
            return
        if (before := self.known.get(task.task_id)) is not None:
            self._release(before.task)
        known = self._know(task)
        known.shape = task.shape
        known.task = replace(known.task, avoid=avoid)

    # Wishes

    def _wishing_all(self, state: View, tasks: Sequence[Task]) -> list[Task]:
        """Return tasks, those that are planned with a wish for where they are to run by now."""
        by_class: dict[str, list[Task]] = {}
        for task in tasks:
            self.wishes.take_back(task.task_id)
            first = task.shape.requirements[0]
            if task.variants is None and not first.preferences and self._placed(task.task_id) is not None:
                by_class.setdefault(first.resource_class, []).append(task)
        wishing: dict[TaskId, Task] = {}
        after_s: dict[TaskId, float] = {}
        for resource_class, alike in by_class.items():
            ready = [self._ready_task(it.task_id, after_s) for it in alike]
            if not (self._mattered or self._speeds_differ or place_matters(ready, self.links)):
                continue
            self._mattered = True
            assert self._planner is not None, "these tasks are planned"
            looked_at = self._turns.worth_a_look(resource_class, ready, self._planner.placed)
            free_s, ends_s = self._busy(state, resource_class, looked_at)
            is_all = len(looked_at) == len(self._plan_host)
            ahead = self._ahead(free_s, ends_s, after_s, {it.task_id for it in alike}) if is_all else None
            now = HostsNow(self._plan_host, free_s, self.links, self.wishes.brought)
            places = self.policy.place_ready(ready, now, ahead)
            by_id = {it.task.task_id: place for it, place in zip(ready, places, strict=True)}
            for task in alike:
                if (place := by_id[task.task_id]) is not None:
                    rank = rank_of_chain(self._run_s(task.task_id) or 0.0, after_s.get(task.task_id, 0.0))
                    wishing[task.task_id] = self._wishing(task, place, state.now, rank)
        return [wishing.get(task.task_id, task) for task in tasks]

    def _wishing(self, task: Task, place: ReadyPlace, now: float, rank: int) -> Task:
        """Return a task that asks for a resource of the host where it is to run."""
        is_known = self._run_s(task.task_id) is not None
        patience_s = patience_for(2 * place.begin_s + place.worth_s if place.begin_s else place.worth_s)
        if not is_known:  # nor is known what is ahead of it
            patience_s = patience_for(place.spared_s)
        waits_s = WORTH_MIN_S if patience_s is None else patience_s
        self.wishes.add(self.known[task.task_id].task, place, now, rank, waits_s)
        first, *rest = task.shape.requirements
        wish = evolve(first, preferences=tuple(self.there.tops[place.host]), patience_s=patience_s)
        return replace(task, shape=replace(task.shape, requirements=(wish, *rest)))

    def _ready_task(self, task_id: TaskId, after_s: dict[TaskId, float]) -> ReadyTask:
        run_s, task = self._run_s(task_id), self.known[task_id].task
        run_s = LONG_S if run_s is None else run_s
        return ReadyTask(replace(task, run_s=run_s), self._after_s(task_id, after_s))

    def _after_s(self, task_id: TaskId, found: dict[TaskId, float]) -> float:
        """Return how long the longest chain of tasks takes that waits for a task."""
        if len(self.known) > AHEAD_MAX:
            return 0.0
        speed = self._mean_speed
        return longest_after(
            task_id, self.users, self.known, lambda it: (self._run_s(it) or 0.0) / speed, found
        )

    def _busy(
        self, state: View, resource_class: str, looked_at: Iterable[str]
    ) -> tuple[dict[str, list[float]], dict[TaskId, float]]:
        """Return when the resources of some hosts are free, and when what runs or waits there has ended."""
        free_s, ends_s = {}, dict[TaskId, float]()
        for name in looked_at:
            of_class = self.there.of_class(name, resource_class)
            free_s[name] = self.wishes.free_s(state, self._plan_host[name], of_class, ends_s)
        return free_s, ends_s

    def _ahead(
        self,
        free_s: Mapping[str, Sequence[float]],
        ends_s: dict[TaskId, float],
        after_s: dict[TaskId, float],
        ready: Collection[TaskId],
    ) -> Following | None:
        """Return what follows from tasks that are ready, None if that is not known."""
        if not self._knows_graph or len(self.known) > AHEAD_MAX:
            return None
        run_s = {task_id: self._run_s(task_id) for task_id in self.known}
        known_s = {task_id: its_s for task_id, its_s in run_s.items() if its_s is not None}
        if len(known_s) < len(run_s):
            return None
        speeds = sum(len(it) * self._plan_host[name].speed for name, it in free_s.items())
        late_s = max((end_s + self._after_s(it, after_s) for it, end_s in ends_s.items()), default=0.0)
        rest_s = {it: its_s for it, its_s in known_s.items() if it not in ends_s and it not in ready}
        return Following(late_s, sum(known_s.values()) / max(1e-9, speeds), ends_s, self.users, rest_s)

    def take_fresh(self) -> list[TaskId]:
        """Return the tasks that have got a wish since this was asked last."""
        fresh, self.wishes.fresh = self.wishes.fresh, []
        return fresh

    def resources_wished(self, task_id: TaskId) -> Iterable[ResourceId]:
        """Return the resources of the host that a task wishes for."""
        wish = self.wishes.waiting.get(task_id)
        return () if wish is None else self.there.hosts.get(wish.host, {})

    def waiting_for(self, state: View, resource_id: ResourceId) -> list[TaskId]:
        """Return the tasks that wait for the host of a resource, as they are taken to begin."""
        return self.wishes.waiting_at(state, host_name(resource_id), self.ahead_max > 1)

    def for_host(self, state: View, resource_id: ResourceId) -> list[TaskId]:
        """Return the tasks that wait for a resource's host; else one that is better off than elsewhere."""
        name = host_name(resource_id)
        found = self.wishes.waiting_at(state, name, self.ahead_max > 1)
        host = self._plan_host.get(name)
        if found or host is None or not self.wishes.waiting:
            return found
        better = self._better_here(state, host, resource_id, self.wishes.waiting)
        return self.wishes.overdue(state) if better is None else [better]

    def sent_better_here(self, state: View, resource_id: ResourceId, behind: list[TaskId]) -> TaskId | None:
        """Return which of the tasks that were sent ahead, and have not begun, ends sooner on an idle host."""
        host = self._plan_host.get(host_name(resource_id))
        wishes = {it: wish for it in behind if (wish := self.wishes.wish_of(it)) is not None}
        return None if host is None else self._better_here(state, host, resource_id, wishes)

    def _better_here(
        self, state: View, host: PlanHost, resource_id: ResourceId, wishes: Mapping[TaskId, Wish]
    ) -> TaskId | None:
        """Return which of some tasks gains most if an idle host takes it."""
        resource_class = self.there.hosts.get(host.name, {}).get(resource_id, "")

        def ends_s(other: str) -> Mapping[TaskId, float]:
            ends: dict[TaskId, float] = {}
            if other in self._plan_host:
                of_class = self.there.of_class(other, resource_class)
                self.wishes.free_s(state, self._plan_host[other], of_class, ends)
            return ends

        def transfer_s(task_id: TaskId) -> float:
            inputs, brought = self.known[task_id].task.inputs, self.wishes.brought
            missing = (it for it in inputs if host.name not in brought.get(it.data_id, ()))
            return sum(fetch_s(it, host, self._plan_host, self.links) for it in missing)

        return self.wishes.better_here(state, host, wishes, ends_s, transfer_s)

    @property
    def overtakes(self) -> bool:
        """Whether there are tasks for which :mod:`behind` looks after idle grants."""
        return self.ahead_max > 1 and self._mattered

    def may_use(self, task: Task, shape: Shape) -> bool:
        """Return whether a planned task may use a grant that was asked for by others of this shape."""
        known = self.known.get(task.task_id)
        return known is not None and known.shape is not None and is_alike(known.shape, shape)

    def _bring_up_to_date(self, state: View) -> None:
        """Plan what is new, what follows from failed tasks, and all that has not begun if sizes were off."""
        if (self._off or self._failed) and state.now >= self._anew_s:
            after = [it for it in following(self._failed, self.users) if it in self.known]
            self._new = dict.fromkeys(self.known if self._off else (*self._new, *after))
            self._anew_s = state.now + ANEW_PAUSE_S * len(self._new)
            self._off = False
            self._failed.clear()
        planner = self._planner
        if planner is None:
            hosts = self.there.for_plan(self.knowledge)
            self._plan_host = {host.name: host for host in hosts}
            speeds = [host.speed for host in hosts]
            self._mean_speed, self._speeds_differ = sum(speeds) / len(speeds), len(set(speeds)) > 1
            self._turns = HostTurns(self.there, self._plan_host)
            planner = self._planner = self.policy.planner(hosts, self.links)
            for task_id, placed in self._run.items():
                planner.settle(task_id, placed, state.now)
        tasks = []
        for task_id in self._new:
            known, entry = self.known[task_id], state.tasks.get(task_id)
            if entry is not None and entry.held is not None:
                end_s = state.now + (self._run_s(task_id) or UNKNOWN_S)
                runs = PlannedPlace(
                    host_name(entry.held.resource_id), 0.0, 0, 0.0, (), known.task.output_bytes, end_s
                )
                planner.settle(task_id, runs, state.now)
                continue
            size_bytes, run_s = self._size_of(known.code_id, known.output_bytes), self._run_s(task_id)
            run_s = UNKNOWN_S if run_s is None else run_s
            if (size_bytes, run_s) != (known.task.output_bytes, known.task.run_s):
                known.task = replace(known.task, output_bytes=size_bytes, run_s=run_s)
            tasks.append(known.task)
        self._plan(planner, tasks, state.now)
        self._new.clear()

    def _plan(self, planner: Planner, tasks: Sequence[PlanTask], now: float) -> None:
        """Plan tasks; one that cannot be placed, and what depends on it, is not planned."""
        tasks = [self._with_what_is_there(planner, task) for task in tasks]
        try:
            planner.plan(tasks, now)
            self.problem = ""
            return
        except PlanError as error:
            self.problem = str(error)
        for task in tasks:
            try:
                planner.plan((self._with_what_is_there(planner, task),), now)
            except PlanError as error:
                planner.forget((task.task_id,))  # it may have run on a host that is gone
                self.problem = str(error)

    def _with_what_is_there(self, planner: Planner, task: PlanTask) -> PlanTask:
        """Return a task without dependencies of which nobody knows where they run: their data is lost."""
        planned = planner.placed
        missing = {it for it in task.dependencies if it not in planned and it not in self._new}
        if not missing:
            return task
        return replace(task, dependencies=tuple(it for it in task.dependencies if it not in missing))

    def _placed(self, task_id: TaskId) -> PlannedPlace | None:
        return None if self._planner is None else self._planner.placed.get(task_id)

    def explain(self, task_id: TaskId) -> str:
        """Return where a task is planned and why, "" if it is not."""
        placed = self._placed(task_id)
        if placed is None or task_id not in self.known:
            return f"; nothing is planned: {self.problem}" if self.problem else ""
        text = f"; planned on {placed.host} ({why(self.policy.name, placed)})"
        wish = self.wishes.waiting.get(task_id)
        if wish is not None and wish.host != placed.host:
            text += f"; since {placed.host} has much to do it is to run on {wish.host}"
            text += f" ({wish.transfer_s:.3g} s to bring data)"
        return text

    def check(self, state: View, evacuated: Collection[str] = ()) -> None:
        """Assert that it knows those tasks alone that have not ended, what they wait for, and where; that a
        task keeps the preferences that it has stated, and that a wish binds no task.
        """
        self.wishes.check(self.there.hosts.keys())
        for task_id in (*self.wishes.waiting, *self.wishes.sent):
            known, entry = self.known.get(task_id), state.tasks.get(task_id)
            assert known is not None, f"task {task_id} has ended, and has a wish"
            assert known.shape is not None, f"task {task_id} is not ready, and has a wish"
            assert not known.shape.requirements[0].preferences, f"a plan moves task {task_id} from its place"
            assert entry is not None, f"task {task_id} is not there, and has a wish"
            wished = entry.task.shape.requirements[0]
            assert not wished.hard, f"a plan binds task {task_id} to {wished.preferences}"
        for task_id in self._run:
            assert task_id in self.users, f"task {task_id} has ended, and nothing waits for its result"
        for task_id, users in self.users.items():
            assert users, f"nothing takes the result of task {task_id}"
            for user in users:
                assert task_id in self.known[user].task.dependencies, f"task {user} does not take it"
        self.there.check()
        for task_id, placed in self.placed.items():
            gone = placed.host not in (*self.there.hosts, *evacuated) and task_id not in self._new
            assert not gone, f"task {task_id} is planned on {placed.host}, which is gone"
