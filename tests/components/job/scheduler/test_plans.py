"""Plans in the scheduler: what a planned task asks for, and what becomes of it when hosts go."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import replace

from gspc_trio.components.job.plan import PlanData, PlanHost
from gspc_trio.components.job.scheduler.interface import (
    HostEvacuated,
    HostRests,
    KnownTask,
    ResourcesLost,
    ResourcesUp,
    TasksKnown,
    TasksReady,
)
from gspc_trio.components.job.scheduler.machine import Scheduler
from gspc_trio.components.job.scheduler.plans import Plans
from gspc_trio.components.rm.messages import Demand, Grant, Recall
from gspc_trio.components.worker.messages import Begun, Finished, Submission, Submit, TakeBack
from gspc_trio.core.machine import Tick
from gspc_trio.core.published import READER_MARK
from gspc_trio.core.resources import Resource
from gspc_trio.core.task import CORE, Outcome, Reason, Requirement, Shape, Task, TaskError, TaskOptions
from gspc_trio.policies.plans.by_name import find_plan
from gspc_trio.policies.scheduling import USUAL

MIB = 1 << 20


class Knowledge:
    """Data of tasks by their ids."""

    def __init__(self) -> None:
        self.inputs: dict[int, list[PlanData]] = {}
        self.made_bytes = 0
        self.memory_bytes: dict[str, int] = {}
        self.has_layer = False

    def host(self, name: str, cores: int) -> PlanHost:
        return PlanHost(name, cores=cores, memory_bytes=self.memory_bytes.get(name, 0))

    def inputs_of(self, task: Task) -> list[PlanData]:
        return self.inputs.get(task.task_id, [])

    def output_bytes(self, outcome: Outcome) -> int:
        return self.made_bytes if outcome.values else 0

    def named(self, label: str) -> str:
        return label

    def memory_host(self, name: str) -> str:
        return f"{name}.example" if self.has_layer else ""


def planned(knowledge: Knowledge, name: str = "move", ahead_max: int = 1) -> Scheduler:
    plans = Plans(find_plan(name), knowledge, ahead_max=ahead_max)
    scheduler = USUAL.scheduler("j1", recording=False, plans=plans)
    for host in ("r1", "r2", "r3"):
        node = Resource(f"{host}.node", "node", features=(f"rack:{host == 'r3'}",))
        core = Resource(f"{host}.core0", "core", (node.resource_id,))
        scheduler.handle(ResourcesUp((node, core)), 0.0)
    return scheduler


def wish(host: str, patience_s: float | None) -> Shape:
    return Shape((Requirement("core", (f"{host}.node",), patience_s=patience_s),))


def test_tasks_ask_for_the_hosts_with_their_data_and_others_when_these_are_taken() -> None:
    knowledge = Knowledge()
    knowledge.inputs = {task_id: [PlanData(1000 * MIB, ("r2",), "big")] for task_id in (1, 2)}
    scheduler = planned(knowledge)
    told = scheduler.handle(TasksReady((Task(1, "a", 1), Task(2, "b", 1), Task(3, "c", 1))), 0.0)
    scheduler.check()
    assert told == [
        Demand("j1", wish("r2", 8.0), 1, (0, 0), shared=True),
        Demand("j1", wish("r1", 8.0), 1, (0, 0), shared=True),
        Demand("j1", wish("r3", None), 1, (0, 0), shared=True),
    ]
    assert scheduler.explain(1).endswith("planned on r2 (0 s to bring 0 bytes)")
    told_of = "(0 s to bring 0 bytes); since r2 has much to do it is to run on r1 (1.05 s to bring data)"
    assert scheduler.explain(2).endswith(f"planned on r2 {told_of}")


def test_no_task_is_planned_where_its_data_has_no_room() -> None:
    knowledge = Knowledge()
    knowledge.memory_bytes = {"r1": 64 * MIB, "r2": 16 * MIB, "r3": 40 * MIB}
    for task_id, more_bytes in ((1, 6 * MIB), (2, 30 * MIB), (3, 31 * MIB), (4, 60 * MIB)):
        knowledge.inputs[task_id] = [
            PlanData(10 * MIB, ("r2",), f"{task_id}"), PlanData(more_bytes, ("r3",), f"{task_id} more"),
        ]  # fmt: skip
    scheduler = planned(knowledge)
    scheduler.handle(TasksReady(tuple(Task(task_id, "a", 1) for task_id in knowledge.inputs)), 0.0)
    plans = scheduler._state.plans
    assert plans is not None
    assert {task_id: it.host for task_id, it in plans.placed.items()} == {1: "r2", 2: "r3", 3: "r1"}
    assert "no host has core resources, 73,400,320 bytes of memory for task 4 (a)" in scheduler.explain(4)


def test_a_wish_ends_with_its_task_and_goes_with_its_host() -> None:
    knowledge = Knowledge()
    knowledge.inputs = {task_id: [PlanData(1000 * MIB, ("r2",), "big")] for task_id in (1, 2)}
    scheduler = planned(knowledge)
    scheduler.handle(TasksReady((Task(1, "a", 1), Task(2, "b", 1))), 0.0)
    plans = scheduler._state.plans
    assert plans is not None
    assert plans.wishes.brought == {"big": {"r1"}}
    scheduler.handle(ResourcesLost(("r1.node", "r1.core0"), "it was switched off"), 0.0)
    scheduler.check()
    assert plans.wishes.brought == {}
    scheduler.handle(Grant("j1", wish("r2", 8.0), (1, 1), ("r2.core0",)), 0.0)
    scheduler.handle(TasksReady((Task(3, "c", 1),)), 0.5)  # for which it is looked at what runs where
    assert 1 in plans.wishes.sent
    scheduler.handle(Finished("j1", "r2.core0", (Outcome(1, 1, Reason.FINISHED, ((b"",),)),)), 1.0)
    scheduler.check()
    assert 1 not in plans.wishes.sent.keys() | plans.wishes.waiting.keys()


def test_a_task_that_is_planned_anew_waits_for_one_host() -> None:
    knowledge = Knowledge()
    knowledge.inputs = {1: [PlanData(1000 * MIB, ("r2",), "big")]}
    scheduler = planned(knowledge)
    scheduler.handle(TasksReady((Task(1, "a", 1),)), 0.0)
    knowledge.inputs = {1: [PlanData(1000 * MIB, ("r4",), "big")]}
    node = Resource("r4.node", "node")
    scheduler.handle(ResourcesUp((node, Resource("r4.core0", "core", ("r4.node",)))), 0.0)
    scheduler.check()
    plans = scheduler._state.plans
    assert plans is not None
    assert [it.host for it in plans.wishes.waiting.values()] == ["r4"]


def test_a_task_that_states_a_place_keeps_it() -> None:
    knowledge = Knowledge()
    knowledge.inputs = {1: [PlanData(1000 * MIB, ("r2",), "big")]}
    scheduler = planned(knowledge)
    shape = Shape((Requirement("core", ("r3.node",), hard=True),))
    told = scheduler.handle(TasksReady((Task(1, "a", 1, shape=shape),)), 0.0)
    scheduler.check()
    assert told == [Demand("j1", shape, 1, (0, 0))]


def test_a_grant_on_the_planned_host_is_used_whatever_it_was_asked_for() -> None:
    knowledge = Knowledge()
    scheduler = planned(knowledge)
    scheduler.handle(TasksReady((Task(1, "a", 1),)), 0.0)
    scheduler.handle(Grant("j1", CORE, (1, 1), ("r1.core0",)), 0.0)
    scheduler.handle(Finished("j1", "r1.core0", (Outcome(1, 1, Reason.FINISHED, ((b"",),)),)), 1.0)
    knowledge.inputs = {2: [PlanData(1000 * MIB, ("r1",), "big")]}
    told = scheduler.handle(TasksReady((Task(2, "b", 1),)), 1.0)
    scheduler.check()
    assert [it.resources for it in told if isinstance(it, Submit)] == [("r1.core0",)]


def test_tasks_are_planned_before_they_can_run_and_anew_when_a_host_is_lost_or_a_size_was_off() -> None:
    knowledge = Knowledge()
    knowledge.inputs = {1: [PlanData(10 * MIB, ("r3", "r2"), "in")], 3: [PlanData(MIB, ("r3",), "more")]}
    scheduler = planned(knowledge)
    options = TaskOptions(output_bytes=MIB)
    first, second = Task(1, "a", 1, options=options), Task(2, "b", 2)
    scheduler.handle(TasksKnown((KnownTask(first), KnownTask(second, (1,)))), 0.0)
    scheduler.handle(TasksReady((first,)), 0.0)
    state = scheduler._state
    assert state.plans is not None
    assert {task_id: it.host for task_id, it in state.plans.placed.items()} == {1: "r2", 2: "r2"}
    scheduler.handle(ResourcesLost(("r2.node", "r2.core0"), "it was switched off"), 0.0)
    scheduler.handle(TasksReady((Task(3, "c", 3),)), 0.0)
    scheduler.check()
    assert {task_id: it.host for task_id, it in state.plans.placed.items()} == {1: "r3", 2: "r3", 3: "r3"}
    scheduler.handle(Grant("j1", state.tasks[1].task.shape, (1, 1), ("r1.core0",)), 0.0)
    knowledge.made_bytes = 64 * MIB
    scheduler.handle(Finished("j1", "r1.core0", (Outcome(1, 1, Reason.FINISHED, ((b"",),)),)), 1.0)
    scheduler.handle(TasksReady((Task(4, "d", 3),)), 1.0)
    scheduler.check()
    assert state.plans.placed[2].host == "r1"


def test_a_task_is_told_where_on_another_host_its_result_is_read() -> None:
    def told(resource: str, *, has_layer: bool = True) -> tuple[bytes, ...]:
        knowledge = Knowledge()
        knowledge.has_layer = has_layer
        knowledge.inputs = {2: [PlanData(1000 * MIB, ("r3",), "big")]}
        scheduler = planned(knowledge)
        first, second = Task(1, "a", 1, (b"one",)), Task(2, "b", 2)
        scheduler.handle(TasksKnown((KnownTask(first), KnownTask(second, (1,)))), 0.0)
        scheduler.handle(TasksReady((first,)), 0.0)
        plans = scheduler._state.plans
        assert plans is not None
        assert plans.placed[2].host == "r3"
        asked = scheduler._state.tasks[1].task.shape
        actions = scheduler.handle(Grant("j1", asked, (1, 1), (resource,)), 0.0)
        scheduler.check()
        (submit,) = [action for action in actions if isinstance(action, Submit)]
        return submit.submissions[0].arguments

    assert told("r1.core0") == (b"one", READER_MARK + b"r3.example")
    assert told("r3.core0") == (b"one",)
    assert told("r1.core0", has_layer=False) == (b"one",)


def test_tasks_of_a_net_are_told_where_those_will_run_that_take_their_results() -> None:
    def told(*takers: Task, made_bytes: int = MIB) -> tuple[bytes, ...]:
        knowledge = Knowledge()
        knowledge.has_layer = True
        knowledge.inputs = {-2: [PlanData(1000 * MIB, ("r3",), "big")]}
        scheduler = planned(knowledge)
        plans = scheduler._state.plans
        assert plans is not None
        plans.takers = {1: takers}.__getitem__
        scheduler.handle(
            TasksReady((Task(1, "a", 1, (b"one",), options=TaskOptions(output_bytes=made_bytes)),)), 0.0
        )
        actions = scheduler.handle(
            Grant("j1", scheduler._state.tasks[1].task.shape, (1, 1), ("r1.core0",)), 0.0
        )
        scheduler.check()
        (submit,) = [action for action in actions if isinstance(action, Submit)]
        return submit.submissions[0].arguments[1:]

    there = READER_MARK + b"r3.example"
    with_data, without = Task(-2, "b", 2), Task(-3, "c", 2)
    assert told(with_data) == (there,)
    assert told(with_data, made_bytes=2000 * MIB) == (), "less is brought if it stays"
    assert told(without) == told(with_data, without) == told() == ()
    for preferences in (("r3.node",), ("r9.node", "r3.node")):
        for hard in (True, False):
            prefers = Shape((Requirement("core", preferences, hard=hard),))
            assert told(replace(without, shape=prefers)) == (there,)
    assert told(replace(with_data, shape=Shape((Requirement("core", ("r2.node", "r1.node")),)))) == ()
    assert told(replace(with_data, shape=Shape((Requirement("gpu"),)))) == (), "there is none now"


def test_a_task_that_is_lost_is_planned_anew_elsewhere_and_all_is_forgotten_when_all_has_ended() -> None:
    knowledge = Knowledge()
    knowledge.inputs = {1: [PlanData(1000 * MIB, ("r2",), "big")]}
    scheduler = planned(knowledge)
    scheduler.handle(TasksReady((Task(1, "a", 1),)), 0.0)
    scheduler.handle(Grant("j1", wish("r2", 8.0), (1, 1), ("r2.core0",)), 0.0)
    scheduler.handle(ResourcesLost(("r2.node", "r2.core0"), "it was switched off"), 1.0)
    scheduler.check()
    state = scheduler._state
    assert state.plans is not None
    assert state.tasks[1].task.shape == wish("r1", None)  # nobody has the data now: any host will do
    scheduler.handle(Grant("j1", wish("r1", None), (1, 2), ("r3.core0",)), 60.0)
    attempt = state.tasks[1].attempt
    scheduler.handle(Finished("j1", "r3.core0", (Outcome(1, attempt, Reason.FINISHED, ((b"",),)),)), 61.0)
    scheduler.check()
    plans = state.plans
    wishes = plans.wishes
    assert (plans.known, plans.placed, plans.users) == ({}, {}, {})
    assert (wishes.waiting, wishes.at, wishes.sent) == ({}, {}, {})


def test_what_follows_from_a_task_that_has_failed_is_planned_anew_with_it() -> None:
    knowledge = Knowledge()
    knowledge.inputs = {1: [PlanData(10 * MIB, ("r2",), "in")], 9: [PlanData(MIB, ("r2",), "more")]}
    scheduler = planned(knowledge)
    options = TaskOptions(output_bytes=MIB, attempts=2)
    tasks = [Task(number, "a", number, options=options) for number in (1, 2, 3)]
    scheduler.handle(
        TasksKnown((KnownTask(tasks[0]), KnownTask(tasks[1], (1,)), KnownTask(tasks[2], (2,)))), 0.0
    )
    [demand] = scheduler.handle(TasksReady((tasks[0],)), 0.0)
    state = scheduler._state
    assert state.plans is not None
    assert isinstance(demand, Demand)
    assert {task_id: it.host for task_id, it in state.plans.placed.items()} == {1: "r2", 2: "r2", 3: "r2"}
    scheduler.handle(Grant("j1", demand.shape, (1, 1), ("r2.core0",)), 0.0)
    error = TaskError("Exception", "no")
    scheduler.handle(Finished("j1", "r2.core0", (Outcome(1, 1, Reason.FAILED, error=error),)), 1.0)
    scheduler.check()
    assert {task_id: it.host for task_id, it in state.plans.placed.items()} == {1: "r1", 2: "r1", 3: "r1"}


def test_nothing_is_planned_on_a_host_that_rests_though_its_data_counts() -> None:
    knowledge = Knowledge()
    knowledge.inputs = {1: [PlanData(10 * MIB, ("r2",), "in")]}
    scheduler = planned(knowledge)
    there = Resource("r2.node", "node"), Resource("r2.core0", "core", ("r2.node",))
    task = Task(1, "a", 1)
    scheduler.handle(TasksReady((task,)), 0.0)
    plans = scheduler._state.plans
    assert plans is not None
    for event, host in (
        (HostRests(there, "a dial"), "r1"),  # in the same rack
        (HostRests(there, "a dial"), "r1"),
        (HostRests(there), "r2"),
        (HostRests(there, "a dial"), "r1"),
        (HostEvacuated(there, "an ioerr"), "r1"),
        (HostEvacuated(there), "r2"),
        (HostRests(there, "a dial"), "r1"),
        (ResourcesUp(there), "r2"),  # it has come anew; who says so says next whether it rests
    ):
        scheduler.handle(event, 1.0)
        scheduler.check()
        assert {task_id: it.host for task_id, it in plans.placed.items()} == {1: host}, event
        first = scheduler._state.tasks[1].task.shape.requirements[0]
        assert first.preferences == (f"{host}.node",), event


def test_tasks_that_only_a_lost_host_could_run_are_not_planned_there_any_more() -> None:
    scheduler = planned(Knowledge())
    scheduler.handle(ResourcesUp((Resource("r3.core1", "core", ("r3.node",)),)), 0.0)
    shape = Shape((Requirement("core", features=("rack:True",)),))
    for task_id, name in ((1, "r3.core0"), (2, "r3.core1")):
        told = scheduler.handle(TasksReady((Task(task_id, "a", 1, shape=shape),)), 0.0)
        [demand] = [it for it in told if isinstance(it, Demand)]
        scheduler.handle(Grant("j1", demand.shape, (1, task_id), (name,)), 0.0)
    scheduler.handle(ResourcesLost(("r3.node", "r3.core0", "r3.core1"), "it was switched off"), 0.0)
    scheduler.check()
    assert "nothing is planned" in scheduler.explain(1)


def test_a_plan_by_time_takes_hosts_that_state_to_be_faster() -> None:
    scheduler = USUAL.scheduler("j1", recording=False, plans=Plans(find_plan("heft"), Knowledge()))
    for host, features in (("r1", ()), ("r2", ("speed:4",))):
        node = Resource(f"{host}.node", "node", features=features)
        scheduler.handle(ResourcesUp((node, Resource(f"{host}.core0", "core", (node.resource_id,)))), 0.0)
    task = Task(1, "long", 1, options=TaskOptions(estimate_s=8.0))
    actions = scheduler.handle(TasksReady((task,)), 0.0)
    assert scheduler.explain(1).endswith("planned on r2 (it ends there first, 2 s later; 0 bytes are moved)")
    assert actions == [Demand("j1", replace(wish("r2", 4.0), estimate_s=8.0), 1, (0, 0), shared=True)]


def test_what_waits_for_a_host_is_sent_behind_what_stages_data_there_once() -> None:
    knowledge = Knowledge()
    knowledge.inputs = {task_id: [PlanData(1000 * MIB, ("r2",), "big")] for task_id in (1, 2, 3)}
    scheduler = planned(knowledge)
    options = TaskOptions(stage_in=True, estimate_s=0.2)
    scheduler.handle(TasksReady(tuple(Task(it, "a", 1, options=options) for it in (1, 2, 3))), 0.0)
    told = scheduler.handle(Grant("j1", stated_wish("r2", scheduler), (1, 1), ("r2.core0",)), 0.0)
    scheduler.check()
    assert submitted(told) == [1, 2], "while one runs the data of the next comes"
    back = Outcome(2, 1, Reason.RETURNED)
    assert submitted(scheduler.handle(Finished("j1", "r2.core0", (back,)), 0.1)) == [3], "and not 2 again"
    for task_id, sent in ((1, []), (3, [2])):
        done = Outcome(task_id, 1, Reason.FINISHED, ((b"",),), duration_s=0.2)
        assert submitted(scheduler.handle(Finished("j1", "r2.core0", (done,)), 0.2 * task_id)) == sent
        scheduler.check()


def test_what_takes_long_and_stages_nothing_is_not_sent_ahead() -> None:
    knowledge = Knowledge()
    knowledge.inputs = {task_id: [PlanData(1000 * MIB, ("r2",), "big")] for task_id in range(1, 4)}
    for estimate_s, sent in ((0.2, [1]), (0.01, [1, 2])):
        scheduler = planned(knowledge)
        options = TaskOptions(estimate_s=estimate_s)
        scheduler.handle(TasksReady(tuple(Task(it, "a", 1, options=options) for it in range(1, 4))), 0.0)
        told = scheduler.handle(Grant("j1", stated_wish("r2", scheduler), (1, 1), ("r2.core0",)), 0.0)
        scheduler.check()
        assert submitted(told) == sent


def at_r2(scheduler: Scheduler, knowledge: Knowledge, runs_s: dict[int, float]) -> list[Submission]:
    """Have tasks with all their data on one host sent there; return them."""
    knowledge.inputs = {task_id: [PlanData(1000 * MIB, ("r2",), "big")] for task_id in runs_s}
    tasks = [
        Task(it, "a", 1, options=TaskOptions(stage_in=True, estimate_s=seconds))
        for it, seconds in runs_s.items()
    ]
    scheduler.handle(TasksReady(tuple(tasks)), 0.0)
    told = scheduler.handle(Grant("j1", stated_wish("r2", scheduler), (1, 1), ("r2.core0",)), 0.0)
    scheduler.check()
    return [one for it in told if isinstance(it, Submit) for one in it.submissions]


def test_where_tasks_may_overtake_all_that_waits_for_a_host_is_sent_there_with_its_rank() -> None:
    knowledge = Knowledge()
    sent = at_r2(planned(knowledge, ahead_max=8), knowledge, {1: 0.2, 2: 0.203, 3: 0.4, 4: 0.2})
    assert sorted(it.task_id for it in sent) == [1, 2, 3, 4]
    ranks = {it.task_id: it.rank for it in sent}
    assert ranks[1] == ranks[4] == ranks[2], "they differ by less than three percent"
    assert ranks[3] < ranks[1], "the longest chain goes first"


def test_who_has_overtaken_others_runs() -> None:
    knowledge = Knowledge()
    scheduler = planned(knowledge, ahead_max=8)
    at_r2(scheduler, knowledge, {1: 0.2, 2: 0.2, 3: 0.2})
    scheduler.handle(Begun("j1", "r2.core0", 2, 1, True), 0.1)
    scheduler.check()
    back = scheduler.handle(Recall("j1", ((1, 1),)), 0.2)
    assert [it.attempts for it in back if isinstance(it, TakeBack)] == [((1, 1), (3, 1))]
    scheduler.handle(ResourcesLost(("r2.node", "r2.core0"), "it was switched off"), 0.3)
    scheduler.check()
    losses = {task_id: entry.losses + entry.doubts for task_id, entry in scheduler._state.tasks.items()}
    assert losses == {1: 0, 2: 1, 3: 0}, "one task ran there when it was lost"


def test_an_idle_host_gets_what_waits_behind_a_task_that_is_late() -> None:
    knowledge = Knowledge()
    scheduler = planned(knowledge, ahead_max=8)
    at_r2(scheduler, knowledge, {1: 0.2, 2: 0.2, 3: 0.2})
    scheduler.handle(Begun("j1", "r2.core0", 1, 1, True), 0.0)
    shape = stated_wish("r2", scheduler)
    told = scheduler.handle(Grant("j1", shape, (1, 2), ("r1.core0",)), 0.1)
    assert [it for it in told if isinstance(it, TakeBack)] == [], "to bring the data takes longer"
    told = scheduler.handle(Tick(), 5.0)
    assert [it.attempts for it in told if isinstance(it, TakeBack)] == [((2, 1),)]
    back = Finished("j1", "r2.core0", (Outcome(2, 1, Reason.RETURNED),))
    assert submitted(scheduler.handle(back, 5.1)) == [2]
    scheduler.check()
    assert list(scheduler._state.by_resource["r1.core0"].sent) == [2]


def test_what_waits_behind_a_task_that_is_late_comes_back_where_no_plan_looks_after_it() -> None:
    knowledge = Knowledge()
    scheduler = planned(knowledge, ahead_max=8)
    scheduler.handle(TasksReady(tuple(Task(it, "a", 1) for it in range(1, 5))), 0.0)
    assert submitted(scheduler.handle(Grant("j1", CORE, (1, 2), ("r1.core0",)), 0.0)) == [1]
    quick = Outcome(1, 1, Reason.FINISHED, ((b"\x01",),), duration_s=0.0001)
    assert submitted(scheduler.handle(Finished("j1", "r1.core0", (quick,)), 0.1)) == [2, 3]
    at_r2(scheduler, knowledge, {9: 100.0})
    back: list[TakeBack] = []
    while not back and (due := scheduler.deadline()) is not None and due < 10:
        back = [it for it in scheduler.handle(Tick(), due) if isinstance(it, TakeBack)]
    assert [it.attempts for it in back] == [((3, 1),)]
    scheduler.check()


def test_what_no_wish_brings_to_an_idle_grant_may_have_others_recalled_for_it() -> None:
    knowledge = Knowledge()
    knowledge.inputs = {2: [PlanData(1000 * MIB, ("r2",), "big")]}
    scheduler = planned(knowledge, ahead_max=8)
    first = scheduler.handle(TasksReady((Task(1, "a", 1),)), 0.0)
    then = scheduler.handle(TasksReady((Task(2, "b", 1),)), 0.0)
    assert [it.shared for it in (*first, *then) if isinstance(it, Demand)] == [False, True]


def test_a_task_that_gets_ready_while_another_host_idles_goes_there_when_it_has_waited() -> None:
    knowledge = Knowledge()
    scheduler = planned(knowledge, ahead_max=8)
    at_r2(scheduler, knowledge, {1: 0.2})
    done = Outcome(1, 1, Reason.FINISHED, ((b"\x01",),), duration_s=0.2)
    scheduler.handle(Finished("j1", "r2.core0", (done,)), 0.2)
    knowledge.inputs = {2: [PlanData(MIB, ("r1",), "small")]}
    scheduler.handle(TasksReady((Task(2, "b", 1),)), 0.3)
    sent: list[int] = []
    while not sent and (due := scheduler.deadline()) is not None and due < 60:
        sent = submitted(scheduler.handle(Tick(), due))
    assert sent == [2], "r1 is never granted"


def stated_wish(host: str, scheduler: Scheduler) -> Shape:
    """Return the shape of the first task that waits for a host."""
    shapes = (entry.task.shape for entry in scheduler._state.tasks.values())
    return next(it for it in shapes if it.requirements[0].preferences == (f"{host}.node",))


def submitted(actions: Sequence[object]) -> list[int]:
    return [one.task_id for it in actions if isinstance(it, Submit) for one in it.submissions]
