"""Adding and removing resources through the RTS machine (RTS-2, RM-11): whole action lists."""

from __future__ import annotations

import pytest

from gspc_trio.components.rif.messages import (
    AddResources,
    DagReport,
    RemoveResources,
    RifHello,
    WorkerEndpoint,
)
from gspc_trio.components.rm.events import Added, Coming, Removed
from gspc_trio.components.rts import actions, events
from gspc_trio.components.rts.actions import TellJobs
from gspc_trio.components.rts.machine import Rts
from gspc_trio.components.rts.messages import RegisterJob, RifGone, RifUp
from gspc_trio.components.rts.state import Limits
from gspc_trio.core.resources import Resource
from gspc_trio.records.facts import RifChanged

NODE = Resource("r1.node", "node")
CORE0 = Resource("r1.core0", "core", ("r1.node",))
CORE1 = Resource("r1.core1", "core", ("r1.node",))


def report(*ids: str) -> DagReport:
    return DagReport(tuple(WorkerEndpoint(name, "core", "r1", "anna", "memory:r1") for name in ids))


def run(machine: Rts, *steps: object) -> list[object]:
    out: list[object] = []
    for event in steps:
        out = machine.handle(event, 5.0)
        machine.check()
    return out


@pytest.fixture
def machine() -> Rts:
    made = Rts(frozenset({"local"}))
    run(
        made,
        events.BootstrapAsked(1, ("anna",)),
        events.RifConnected(1, RifHello("r1", 1, 0, "anna", "memory:r1", (NODE, CORE0))),
        events.RifAnswered(1, 1, report("r1.node", "r1.core0")),
        events.RmAnswered(Added((NODE, CORE0), "anna")),
        events.JobConnected(9, RegisterJob("count", 70, "anna")),
    )
    return made


def announced(*resources: Resource) -> TellJobs:
    return TellJobs(("j1",), RifUp("r1", 1, "anna", "memory:r1", resources))


def test_add_starts_workers_then_tells_jobs_then_the_rm_and_answers_when_the_rm_has_them(machine):
    assert run(machine, events.AddAsked(2, "r1", (CORE1,))) == [actions.AskRif(1, 2, AddResources((CORE1,)))]
    assert run(machine, events.RifAnswered(1, 2, report("r1.core1"))) == [
        announced(NODE, CORE0, CORE1),
        actions.TellRm(Added((CORE1,), "anna")),
    ]
    assert run(machine, events.RmAnswered(Added((CORE1,), "anna"))) == [actions.Answer(2, report("r1.core1"))]
    assert machine.host_to_resource() == {"anna": ("r1.node", "r1.core0", "r1.core1")}


def test_requests_for_one_rif_are_done_one_after_the_other(machine):
    run(machine, events.AddAsked(2, "r1", (CORE1,)))
    below = Resource("r1.half", "half", ("r1.core1",))
    assert run(machine, events.AddAsked(3, "r1", (below,))) == []
    assert run(
        machine, events.RifAnswered(1, 2, report("r1.core1")), events.RmAnswered(Added((CORE1,), "anna"))
    ) == [actions.Answer(2, report("r1.core1")), actions.AskRif(1, 3, AddResources((below,)))]


@pytest.mark.parametrize(
    ("resources", "reason"),
    [
        ((CORE0,), "r1 has the resource r1.core0 already"),
        ((CORE1, CORE1), "resource ids named twice: r1.core1"),
        ((Resource("core7", "core"),), "resource ids of r1 begin with r1., not as in core7"),
        ((Resource("r1.", "core"),), "resource ids of r1 begin with r1., not as in r1."),
        (
            (Resource("r1.gpu", "gpu", ("r1.socket",)),),
            "r1.gpu has the parent r1.socket, which is not in the DAG",
        ),
        ((), "no resource was named"),
    ],
)
def test_resources_that_do_not_fit_are_refused(machine, resources, reason):
    assert run(machine, events.AddAsked(2, "r1", resources)) == [actions.QuestionRefused(2, reason)]


def test_an_add_that_the_rif_refuses_leaves_all_as_it_was(machine):
    run(machine, events.AddAsked(2, "r1", (CORE1,)))
    assert run(machine, events.RifRefused(1, 2, "no such CPU: 1")) == [
        actions.QuestionRefused(2, "no such CPU: 1")
    ]
    assert machine.host_to_resource() == {"anna": ("r1.node", "r1.core0")}


def test_an_add_that_the_rm_refuses_is_undone_at_the_rif(machine):
    run(machine, events.AddAsked(2, "r1", (CORE1,)), events.RifAnswered(1, 2, report("r1.core1")))
    assert run(machine, events.RmAnswered(Added((CORE1,), "anna"), "r1.node is held")) == [
        announced(NODE, CORE0),
        actions.QuestionRefused(2, "r1.node is held"),
        actions.AskRif(1, 3, RemoveResources(("r1.core1",))),
    ]
    assert run(machine, events.RifAnswered(1, 3, report("r1.core1"))) == []
    assert machine.host_to_resource() == {"anna": ("r1.node", "r1.core0")}


def test_first_resources_that_a_rif_cannot_add_are_a_failed_bootstrap():
    machine = Rts(frozenset({"local"}))
    run(
        machine,
        events.BootstrapAsked(1, ("anna",)),
        events.RifConnected(1, RifHello("r1", 1, 0, "anna", "memory:r1", (NODE, CORE0))),
    )
    out = run(machine, events.RifRefused(1, 1, "no template"), events.RifEnded("r1", 1))
    assert out[-1] == actions.Answer(
        1, actions.Bootstrapped({}, {"anna": "it could not add its first resources: no template"})
    )


def test_first_resources_that_the_rm_refuses_are_a_failed_bootstrap():
    machine = Rts(frozenset({"local"}))
    run(
        machine,
        events.BootstrapAsked(1, ("anna",)),
        events.RifConnected(1, RifHello("r1", 1, 0, "anna", "memory:r1", (NODE,))),
        events.RifAnswered(1, 1, report("r1.node")),
        events.RmAnswered(Added((NODE,), "anna"), "r1.node is there already"),
    )
    out = run(machine, events.RifEnded("r1", 1))
    assert out[-1] == actions.Answer(1, actions.Bootstrapped({}, {"anna": "r1.node is there already"}))


@pytest.mark.parametrize("policy", ["lose", "wait"])
def test_remove_takes_what_is_below_from_the_rm_first_then_from_jobs_then_from_the_rif(machine, policy):
    ids = ("r1.node", "r1.core0")
    assert run(machine, events.RemoveAsked(2, "r1", ("r1.node",), policy)) == [
        actions.TellRm(Removed(ids, policy))
    ]
    assert run(machine, events.RmAnswered(Removed(ids, policy))) == []
    assert run(machine, events.ResourcesLeft(("r1.node",))) == [announced(CORE0)]
    assert machine.host_to_resource() == {"anna": ("r1.core0",)}
    assert run(machine, events.ResourcesLeft(("r1.core0",))) == [
        announced(),
        actions.AskRif(1, 2, RemoveResources(ids)),
    ]
    assert run(machine, events.RifAnswered(1, 2, report(*ids))) == [actions.Answer(2, report(*ids))]
    assert machine.host_to_resource() == {"anna": ()}


def test_a_removal_that_waits_does_not_hold_up_other_requests_except_below_what_leaves(machine):
    run(machine, events.RemoveAsked(2, "r1", ("r1.core0",), "wait"))
    assert run(machine, events.AddAsked(3, "r1", (CORE1,))) == [actions.AskRif(1, 2, AddResources((CORE1,)))]
    half = Resource("r1.half", "half", ("r1.core0",))
    assert run(
        machine,
        events.AddAsked(4, "r1", (half,)),
        events.RifAnswered(1, 2, report("r1.core1")),
        events.RmAnswered(Added((CORE1,), "anna")),
    ) == [
        actions.Answer(3, report("r1.core1")),
        actions.QuestionRefused(4, "r1.core0, a parent of r1.half, is being removed"),
    ]


def test_resources_that_the_rm_keeps_stay_and_may_be_removed_later(machine):
    ids = ("r1.core0",)
    run(machine, events.RemoveAsked(2, "r1", ids, "refuse"))
    assert run(machine, events.RmAnswered(Removed(ids, "refuse"), "r1.core0 is held by j1")) == [
        actions.QuestionRefused(2, "r1.core0 is held by j1")
    ]
    assert run(machine, events.RemoveAsked(3, "r1", ids, "lose")) == [actions.TellRm(Removed(ids, "lose"))]


@pytest.mark.parametrize(
    ("event", "reason"),
    [
        (events.RemoveAsked(2, "r1", ("r1.gpu",)), "r1 has no resource r1.gpu; it has r1.node, r1.core0"),
        (
            events.RemoveAsked(2, "r1", ("r1.core0",), "maybe"),
            "there is no policy 'maybe'; there are: lose, wait, refuse",
        ),
        (events.RemoveAsked(2, "r2", ("r2.core0",)), "there is no RIF r2; there are: r1"),
    ],
)
def test_a_removal_that_makes_no_sense_is_refused(machine, event, reason):
    assert run(machine, event) == [actions.QuestionRefused(2, reason)]


def test_what_is_being_removed_cannot_be_removed_again(machine):
    run(machine, events.RemoveAsked(2, "r1", ("r1.core0",), "wait"))
    assert run(machine, events.RemoveAsked(3, "r1", ("r1.core0",))) == [
        actions.QuestionRefused(3, "r1.core0: being removed already")
    ]


def test_what_leaves_already_is_left_out_of_the_removal_of_what_is_above_it(machine):
    run(machine, events.RemoveAsked(2, "r1", ("r1.core0",), "wait"))
    assert run(machine, events.RemoveAsked(3, "r1", ("r1.node",), "lose")) == [
        actions.TellRm(Removed(("r1.node",), "lose"))
    ]
    assert run(machine, events.ResourcesLeft(("r1.node", "r1.core0"))) == [
        announced(),
        actions.AskRif(1, 2, RemoveResources(("r1.core0",))),
    ]
    assert run(machine, events.RifAnswered(1, 2, report("r1.core0"))) == [
        actions.Answer(2, report("r1.core0")),
        actions.AskRif(1, 3, RemoveResources(("r1.node",))),
    ]


def test_a_lost_rif_answers_whoever_waits_and_comes_back_without_what_was_leaving(machine):
    run(
        machine,
        events.RemoveAsked(2, "r1", ("r1.core0",), "wait"),
        events.AddAsked(3, "r1", (CORE1,)),
        events.AddAsked(4, "r1", (Resource("r1.core2", "core", ("r1.node",)),)),
    )
    assert run(machine, events.RifLost(1, "reset")) == [
        RifChanged(5.0, "r1", "anna", "lost", "reset"),
        TellJobs(("j1",), RifGone("r1", 1, "reset")),
        actions.TellRm(Coming("r1", (Resource("r1.node", "node"),), "anna")),
        actions.TellRm(Removed(("r1.node", "r1.core0"), "lose")),
        actions.QuestionRefused(3, "r1 was lost: reset"),
        actions.QuestionRefused(2, "r1 was lost: reset"),
        actions.QuestionRefused(4, "r1 was lost: reset"),
        actions.KillRif("r1", 1),
    ]
    assert run(machine, events.AddAsked(5, "r1", (CORE1,))) == [
        actions.QuestionRefused(5, "r1 is lost: reset")
    ]
    assert run(machine, events.RifAnswered(1, 2, report("r1.core1"))) == []


def test_a_rif_that_cannot_remove_is_replaced(machine):
    run(machine, events.RemoveAsked(2, "r1", ("r1.core0",)), events.ResourcesLeft(("r1.core0",)))
    reason = "it could not remove resources: stuck"
    assert run(machine, events.RifRefused(1, 2, "stuck")) == [
        RifChanged(5.0, "r1", "anna", "lost", reason),
        actions.DropLink(1, reason),
        TellJobs(("j1",), RifGone("r1", 1, reason)),
        actions.TellRm(Coming("r1", (Resource("r1.node", "node"),), "anna")),
        actions.TellRm(Removed(("r1.node",), "lose")),
        actions.QuestionRefused(2, f"r1 was lost: {reason}"),
        actions.KillRif("r1", 1),
    ]


def test_waiting_requests_are_limited():
    machine = Rts(frozenset({"local"}), Limits(requests_max=1))
    run(
        machine,
        events.BootstrapAsked(1, ("anna",)),
        events.RifConnected(1, RifHello("r1", 1, 0, "anna", "memory:r1", (NODE,))),
        events.RifAnswered(1, 1, report("r1.node")),
        events.RmAnswered(Added((NODE,), "anna")),
        events.AddAsked(2, "r1", (CORE0,)),
        events.AddAsked(3, "r1", (CORE1,)),
    )
    assert run(machine, events.AddAsked(4, "r1", (CORE1,))) == [
        actions.QuestionRefused(4, "r1 has 1 requests waiting, more than that are not taken")
    ]


def test_nothing_more_is_removed_until_a_refusal_is_known(machine):
    """Else what is below would stay when what is above it goes."""
    told = Removed(("r1.core0",), "refuse")
    assert run(machine, events.RemoveAsked(2, "r1", ("r1.core0",), "refuse")) == [actions.TellRm(told)]
    assert run(machine, events.RemoveAsked(3, "r1", ("r1.node",), "lose")) == []
    assert run(machine, events.RmAnswered(told, "j1 holds it")) == [
        actions.QuestionRefused(2, "j1 holds it"),
        actions.TellRm(Removed(("r1.node", "r1.core0"), "lose")),
    ]
