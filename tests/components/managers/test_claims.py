"""Several resource managers that all see all hosts: which claims are taken, who chooses again (ASP-11)."""

from __future__ import annotations

from random import Random

from gspc_trio.components.managers.claims import JITTER_S, OptimisticManagers
from gspc_trio.components.managers.messages import (
    ManagerClaim,
    ManagerDown,
    ManagerSaid,
    ManagerUp,
    TellManager,
)
from gspc_trio.components.rm.events import Added, GivenElsewhere, JobJoined, Overruled, Removed
from gspc_trio.components.rm.messages import Demand, Grant, Release
from gspc_trio.components.rts.events import RmAnswered
from gspc_trio.core.ids import NO_GRANT
from gspc_trio.core.machine import Tick
from gspc_trio.core.resources import Resource
from gspc_trio.core.task import CORE, Requirement, Shape
from gspc_trio.records.facts import GrantChanged

HOST = Added(
    (
        Resource("r1.node", "node"),
        Resource("r1.core0", "core", ("r1.node",)),
        Resource("r1.core1", "core", ("r1.node",)),
    ),
    "anna",
)
NODE = Shape((Requirement("node"),))


def two_managers() -> OptimisticManagers:
    """Return two managers that see a host; each serves a job, which wants two cores."""
    managers = OptimisticManagers(2, 7, Random(1))
    for number in (0, 1):
        managers.handle(ManagerUp(number), 0.0)
    managers.handle(HOST, 0.0)
    managers.handle(ManagerSaid(0, RmAnswered(HOST)), 0.0)
    for job in ("j1", "j2"):
        managers.handle(JobJoined(job), 0.0)
        managers.handle(Demand(job, CORE, 2, NO_GRANT), 0.0)
    assert managers.job_of == {"j1": 0, "j2": 1}
    return managers


def core(job: str, number: int, name: str) -> Grant:
    return Grant(job, CORE, (7, number), (name,))


def test_of_two_claims_the_first_is_a_grant_and_the_other_is_refused_with_what_holds_now():
    managers = two_managers()
    first = core("j1", 2, "r1.core0")
    assert managers.handle(ManagerSaid(0, ManagerClaim(4, first)), 1.0) == [
        first,
        GrantChanged(1.0, "j1", (7, 2), ("r1.core0",), True),
        TellManager(1, GivenElsewhere(first)),
    ]
    late = core("j2", 3, "r1.core0")
    assert managers.handle(ManagerSaid(1, ManagerClaim(4, late)), 1.0) == [
        TellManager(1, Overruled("j2", (7, 3), (first,))),
        TellManager(1, Demand("j2", CORE, 2, (7, 3))),
    ]
    assert (managers.claims, managers.conflicts) == (2, 1)
    other = ManagerClaim(4, core("j2", 5, "r1.core1"))
    assert managers.handle(ManagerSaid(1, other), 1.0)[0] == other.grant, "nobody has been given this"
    managers.check()


def test_a_claim_is_stale_if_a_relative_was_given_since_and_also_if_it_is_free_again():
    managers = two_managers()
    first = core("j1", 2, "r1.core0")
    managers.handle(ManagerSaid(0, ManagerClaim(4, first)), 1.0)
    managers.handle(Release("j1", (7, 2)), 1.0)
    node = Grant("j2", NODE, (7, 3), ("r1.node",))
    assert managers.handle(ManagerSaid(1, ManagerClaim(4, node)), 1.0) == [
        TellManager(1, Overruled("j2", (7, 3), ()))
    ]
    again = Grant("j2", NODE, (7, 5), ("r1.node",))
    assert managers.handle(ManagerSaid(1, ManagerClaim(6, again)), 1.0)[0] == again, "it has heard of that"


def test_several_resources_are_given_all_or_none():
    managers = two_managers()
    managers.handle(ManagerSaid(0, ManagerClaim(4, core("j1", 2, "r1.core1"))), 1.0)
    both = Grant("j2", Shape(CORE.requirements * 2), (7, 3), ("r1.core0", "r1.core1"))
    assert isinstance(managers.handle(ManagerSaid(1, ManagerClaim(4, both)), 1.0)[0].event, Overruled)
    assert managers.handle(ManagerSaid(1, ManagerClaim(4, core("j2", 5, "r1.core0"))), 1.0)[0].resources == (
        "r1.core0",
    )


def test_from_the_third_conflict_on_a_request_pauses():
    managers = two_managers()
    managers.handle(ManagerSaid(0, ManagerClaim(4, core("j1", 2, "r1.core0"))), 1.0)
    for number in (3, 5):
        said = managers.handle(ManagerSaid(1, ManagerClaim(4, core("j2", number, "r1.core0"))), 1.0)
        assert said[-1] == TellManager(1, Demand("j2", CORE, 2, (7, number)))
        assert managers.deadline() is None
    said = managers.handle(ManagerSaid(1, ManagerClaim(4, core("j2", 7, "r1.core0"))), 1.0)
    assert said[-1] == TellManager(1, Demand("j2", CORE, 0, (7, 7)))
    due_s = managers.deadline()
    assert due_s is not None
    assert 1.0 <= due_s <= 1.0 + JITTER_S
    assert managers.handle(Tick(), due_s) == [TellManager(1, Demand("j2", CORE, 2, NO_GRANT))]
    managers.handle(ManagerSaid(1, ManagerClaim(4, core("j2", 9, "r1.core1"))), 2.0)
    managers.handle(Release("j1", (7, 2)), 2.0)
    managers.handle(ManagerSaid(0, ManagerClaim(30, core("j1", 10, "r1.core0"))), 2.0)
    said = managers.handle(ManagerSaid(1, ManagerClaim(4, core("j2", 11, "r1.core0"))), 2.0)
    assert said[-1] == TellManager(1, Demand("j2", CORE, 1, (7, 11))), "a grant ends the row of conflicts"


def test_what_is_removed_is_claimed_in_vain_and_another_manager_serves_the_jobs_of_a_lost_one():
    managers = two_managers()
    gone = Removed(("r1.core0",), "refuse")
    assert managers.handle(gone, 1.0)[0] == TellManager(0, Removed(("r1.core0",), "lose"))
    assert isinstance(
        managers.handle(ManagerSaid(0, ManagerClaim(4, core("j1", 2, "r1.core0"))), 1.0)[0].event, Overruled
    )
    assert managers.handle(ManagerSaid(0, RmAnswered(Removed(("r1.core0",), "lose"))), 1.0) == [
        RmAnswered(gone)
    ]
    held = core("j1", 4, "r1.core1")
    managers.handle(ManagerSaid(0, ManagerClaim(9, held)), 1.0)
    refusal = managers.handle(Removed(("r1.core1",), "refuse"), 1.0)[0].refusal
    assert refusal == "r1.core1 cannot be removed: j1 holds r1.core1 under grant (7, 4)"
    assert managers.handle(ManagerDown(0, "killed"), 2.0) == [TellManager(1, Demand("j1", CORE, 1, NO_GRANT))]
    assert managers.why["j1"] == "manager 1, which served it, was lost"


def test_of_two_claims_of_the_same_memory_the_first_is_a_grant_and_the_other_hears_who_has_it():
    managers = OptimisticManagers(2, 7, Random(1))
    node = Resource("r1.node", "node", memory_bytes=10)
    cores = [Resource(f"r1.core{number}", "core", ("r1.node",)) for number in (0, 1)]
    for event in (ManagerUp(0), ManagerUp(1), Added((node, *cores), "anna")):
        managers.handle(event, 0.0)
    shape = Shape(CORE.requirements, memory_bytes=6)
    for job in ("j1", "j2"):
        managers.handle(JobJoined(job), 0.0)
        managers.handle(Demand(job, shape, 1, NO_GRANT), 0.0)
    first = Grant("j1", shape, (7, 2), ("r1.core0",), (("r1.node", 0),))
    late = Grant("j2", shape, (7, 3), ("r1.core1",), (("r1.node", 4),))
    assert managers.handle(ManagerSaid(0, ManagerClaim(3, first)), 1.0)[0] == first
    assert managers.handle(ManagerSaid(1, ManagerClaim(3, late)), 1.0) == [
        TellManager(1, Overruled("j2", (7, 3), (first,))),
        TellManager(1, Demand("j2", shape, 1, (7, 3))),
    ]
    managers.handle(Release("j1", (7, 2)), 1.0)
    early = Grant("j2", shape, (7, 5), ("r1.core1",), (("r1.node", 0),))
    told = managers.handle(ManagerSaid(1, ManagerClaim(3, early)), 1.0)
    assert early not in told, "its manager has not heard of the first grant, and will give up what is there"
    again = Grant("j2", shape, (7, 7), ("r1.core1",), (("r1.node", 0),))
    assert managers.handle(ManagerSaid(1, ManagerClaim(11, again)), 1.0)[0] == again
