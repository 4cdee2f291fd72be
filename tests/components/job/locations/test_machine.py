"""SCH-6: several resource managers behind one scheduler; whole action lists."""

from __future__ import annotations

import pytest

from gspc_trio.components.job.locations.machine import Locations
from gspc_trio.components.job.locations.names import Location, location_of
from gspc_trio.components.job.locations.state import (
    Away,
    Gone,
    LocationsAction,
    LocationsEvent,
    Said,
    Tell,
    To,
)
from gspc_trio.components.job.messages import LocationStatus
from gspc_trio.components.job.scheduler.interface import (
    Claims,
    GivenUp,
    OutsideEvent,
    Reclaim,
    ResourcesLost,
    ResourcesUp,
    Withheld,
)
from gspc_trio.components.rif.messages import Hold
from gspc_trio.components.rm.messages import Demand, Grant, Lapsed, Recall, Refuse, Release
from gspc_trio.components.worker.messages import Begun, Cancel, Finished, Submission, Submit, TakeBack
from gspc_trio.core.demand import DemandWanted, EndedTasks, RunningGroup, TaskDemand, TaskGroup
from gspc_trio.core.ids import NO_GRANT
from gspc_trio.core.machine import IllegalEvent, Tick
from gspc_trio.core.resources import Resource
from gspc_trio.core.task import CORE, Outcome, Reason, Requirement, Shape
from gspc_trio.policies.locations import LeastEnd

AT_THERE = Shape(at="there")
HERE_GRANT, THERE_GRANT = (9 * 64, 1), (7 * 64 + 1, 1)


class Driver:
    """A machine for two locations, of which each has some cores; it is checked after each event."""

    def __init__(self, here: int = 2, there: int = 2) -> None:
        names = [Location("here", 0, "j1", "j1"), Location("there", 1, "j1", "j4")]
        self.machine = Locations(names, LeastEnd())
        for name, number in (("here", here), ("there", there)):
            self.said(name, ResourcesUp(cores(number)))

    def handle(self, event: LocationsEvent, now: float = 0.0) -> list[LocationsAction]:
        actions = self.machine.handle(event, now)
        self.machine.check()
        return actions

    def said(self, location: str, event: OutsideEvent, now: float = 0.0) -> list[LocationsAction]:
        return self.handle(Said(location, event), now)

    def granted(self) -> None:
        """Have one grant from each."""
        self.handle(Demand("j1", CORE, 4, NO_GRANT))
        self.said("here", Grant("j1", CORE, (9, 1), ("r1.core0",)))
        self.said("there", Grant("j4", CORE, (7, 1), ("r1.core0",)))


def cores(number: int, before: str = "") -> tuple[Resource, ...]:
    return tuple(Resource(f"{before}r1.core{one}", "core", (f"{before}r1.node",)) for one in range(number))


def here(credit: int, seen: tuple[int, int] = NO_GRANT, shape: Shape = CORE) -> To:
    return To("here", Demand("j1", shape, credit, seen))


def there(credit: int, seen: tuple[int, int] = NO_GRANT, shape: Shape = CORE) -> To:
    return To("there", Demand("j4", shape, credit, seen))


def test_each_is_asked_for_its_part_and_grants_get_the_name_and_the_number_of_where_they_come_from() -> None:
    driver = Driver()
    assert driver.handle(Demand("j1", CORE, 6, NO_GRANT)) == [there(2), here(4)]
    assert driver.said("there", Grant("j4", CORE, (7, 1), ("r1.core0",))) == [
        Tell(Grant("j1", CORE, THERE_GRANT, ("there/r1.core0",)))
    ]
    assert driver.handle(Demand("j1", CORE, 3, THERE_GRANT)) == [
        here(2),
    ]
    assert driver.said("here", Grant("j1", CORE, (9, 1), ("r1.core0",))) == [
        Tell(Grant("j1", CORE, HERE_GRANT, ("here/r1.core0",)))
    ]
    assert driver.handle(Demand("j1", CORE, 0, HERE_GRANT)) == [here(0, (9, 1)), there(0, (7, 1))]
    assert location_of("there/r1.core0") == "there"
    assert location_of("r1.core0") == ""


def test_what_runs_is_said_to_where_it_runs_in_the_words_of_that() -> None:
    driver = Driver()
    driver.granted()
    task = Submission(5, 1, 0)
    for action, message in (
        (
            Submit("j1", THERE_GRANT, ("there/r1.core0",), (task,), "core"),
            Submit("j4", (7, 1), ("r1.core0",), (task,), "core"),
        ),
        (Hold("j1", THERE_GRANT, ("there/r1.core1",)), Hold("j4", (7, 1), ("r1.core1",))),
        (Cancel("j1", "there/r1.core0", ((5, 1),)), Cancel("j4", "r1.core0", ((5, 1),))),
        (TakeBack("j1", "there/r1.core0", ((5, 1),)), TakeBack("j4", "r1.core0", ((5, 1),))),
        (
            GivenUp(Withheld(("there/r1.core0",), 3, (THERE_GRANT,))),
            GivenUp(Withheld(("r1.core0",), 3, ((7, 1),))),
        ),
        (Release("j1", THERE_GRANT), Release("j4", (7, 1))),
    ):
        assert driver.handle(action) == [To("there", message)]


def test_what_hosts_and_managers_say_reaches_the_scheduler_in_the_words_of_the_job() -> None:
    driver = Driver()
    driver.granted()
    done = (Outcome(5, 1, Reason.FINISHED, duration_s=2.0),)
    for event, told in (
        (Begun("j4", "r1.core0", 5, 1), Begun("j1", "there/r1.core0", 5, 1)),
        (Finished("j4", "r1.core0", done), Finished("j1", "there/r1.core0", done)),
        (Recall("j4", ((7, 1),)), Recall("j1", (THERE_GRANT,))),
        (Withheld(("r1.core0",), 3), Withheld(("there/r1.core0",), 3)),
        (Lapsed("j4", ((7, 1),), "why"), Lapsed("j1", (THERE_GRANT,), "why")),
    ):
        assert driver.said("there", event) == [Tell(told)]
    assert driver.said("there", Withheld((), 3)) == [To("there", GivenUp(Withheld((), 3)))]
    assert driver.said("there", ResourcesUp(cores(3), 9.0)) == [Tell(ResourcesUp(cores(3, "there/"), 9.0))]
    lost = ResourcesLost(("r1.core0",), "why")
    assert driver.said("there", lost) == [Tell(ResourcesLost(("there/r1.core0",), "why"))]
    with pytest.raises(IllegalEvent):
        driver.said("there", Tick())


def test_tasks_for_one_location_are_asked_for_there_alone_and_refused_when_it_has_gone() -> None:
    driver = Driver()
    assert driver.handle(Demand("j1", AT_THERE, 9, NO_GRANT)) == [there(9, shape=AT_THERE)]
    gone = driver.handle(Gone("there", "it was killed"))
    why = "the task is to run at there, which has gone: it was killed"
    names = ("there/r1.core0", "there/r1.core1")
    assert gone == [
        Tell(ResourcesLost(names, "there: it was killed")),
        Tell(Refuse("j1", AT_THERE, why)),
    ]
    assert driver.handle(Demand("j1", AT_THERE, 1, NO_GRANT)) == [Tell(Refuse("j1", AT_THERE, why))]
    nowhere = Shape(at="nowhere")
    why = "there is no run-time system 'nowhere'; the job has here, there"
    assert driver.handle(Demand("j1", nowhere, 1, NO_GRANT)) == [Tell(Refuse("j1", nowhere, why))]


def test_what_one_that_has_gone_held_has_lapsed_and_others_are_asked_instead() -> None:
    driver = Driver()
    driver.granted()
    driver.handle(Demand("j1", CORE, 2, HERE_GRANT))
    assert driver.handle(Gone("there", "cut")) == [
        Tell(ResourcesLost(("there/r1.core0", "there/r1.core1"), "there: cut")),
        Tell(Lapsed("j1", (THERE_GRANT,), "there: cut")),
        here(2, (9, 1)),
    ]
    assert driver.handle(Gone("there", "again")) == []
    assert driver.said("there", Grant("j4", CORE, (7, 2), ("r1.core1",))) == []
    assert driver.handle(Release("j1", THERE_GRANT)) == []


def test_one_that_is_away_keeps_what_it_has_and_is_told_what_is_held_when_it_is_back() -> None:
    driver = Driver()
    driver.granted()
    driver.handle(Demand("j1", CORE, 2, HERE_GRANT))
    assert driver.handle(Away("there")) == [here(2, (9, 1))]
    assert driver.said("there", Reclaim()) == [Tell(Reclaim())]
    grants = (
        Grant("j1", CORE, HERE_GRANT, ("here/r1.core0",)),
        Grant("j1", CORE, THERE_GRANT, ("there/r1.core0",)),
    )
    claimed = (Grant("j4", CORE, (7, 1), ("r1.core0",)),)
    assert driver.handle(Claims("j1", grants)) == [To("there", Claims("j4", claimed))]
    assert driver.handle(Demand("j1", CORE, 2, HERE_GRANT)) == [here(1, (9, 1)), there(1, (7, 1))]


def test_one_that_was_started_again_before_anybody_noticed_is_asked_again() -> None:
    driver = Driver()
    driver.handle(Demand("j1", CORE, 4, NO_GRANT))
    driver.said("there", Reclaim())
    driver.handle(Claims("j1", ()))
    assert driver.handle(Demand("j1", CORE, 4, NO_GRANT)) == [there(2)]


def test_a_grant_that_was_given_up_meanwhile_is_released_by_others() -> None:
    driver = Driver()
    driver.granted()
    driver.handle(Away("there"))
    driver.said("there", Reclaim())
    assert driver.handle(Claims("j1", ())) == [
        To("here", Release("j1", (9, 1))),
        To("there", Claims("j4", ())),
    ]


def test_one_refusal_moves_what_is_wanted_and_the_last_one_is_told() -> None:
    driver = Driver()
    gpu = Shape((Requirement("gpu"),))
    driver.handle(Demand("j1", gpu, 2, NO_GRANT))
    assert driver.said("here", Refuse("j1", gpu, "no gpu")) == [here(0, shape=gpu), there(2, shape=gpu)]
    assert driver.said("there", Refuse("j4", gpu, "none", "unknown class")) == [
        there(0, shape=gpu),
        Tell(Refuse("j1", gpu, "here: no gpu; there: none", "unknown class")),
    ]


def test_preferences_go_to_where_they_are_known_and_what_must_have_one_goes_nowhere_else() -> None:
    driver = Driver()
    soft = Shape((Requirement("core", ("there/r1.node", "here/r1.node")),))
    one, two = (Shape((Requirement("core", ("r1.node",)),)) for _ in range(2))
    assert driver.handle(Demand("j1", soft, 4, NO_GRANT)) == [here(2, shape=one), there(2, shape=two)]
    hard = Shape((Requirement("core", ("there/r1.node",), hard=True),))
    only = Shape((Requirement("core", ("r1.node",), hard=True),))
    assert driver.handle(Demand("j1", hard, 1, NO_GRANT)) == [there(1, shape=only)]
    wrong = Shape((Requirement("core", ("r1.node",), hard=True),))
    why = "none of here, there has what it must have: core (only r1.node)"
    assert driver.handle(Demand("j1", wrong, 1, NO_GRANT)) == [Tell(Refuse("j1", wrong, why))]
    driver.handle(Demand("j1", CORE, 1, NO_GRANT))
    plain = Shape((Requirement("core", ("there/r1.node",)),))  # at here it would be the same as that
    asked = driver.handle(Demand("j1", plain, 2, NO_GRANT))
    assert here(2, shape=Shape(at="here 2")) in asked
    assert driver.said("here", Grant("j1", Shape(at="here 2"), (9, 1), ("r1.core0",))) == [
        Tell(Grant("j1", plain, HERE_GRANT, ("here/r1.core0",)))
    ]


def test_credit_moves_when_no_grant_comes_and_comes_back_to_a_location_that_gives_again() -> None:
    driver = Driver()
    assert driver.handle(Demand("j1", CORE, 2, NO_GRANT)) == [here(2)]
    assert driver.machine.deadline() == 0.5
    assert driver.handle(Tick(), 0.4) == []
    assert driver.handle(Tick(), 0.5) == [here(0), there(2)]
    assert driver.handle(Tick(), 1.0) == [there(0), here(2)], "the same is known of both"
    assert driver.said("here", ResourcesUp(cores(3)), 1.2) == [Tell(ResourcesUp(cores(3, "here/")))]
    assert driver.handle(Tick(), 1.5) == [], "there is more of it since then"


def test_what_takes_long_to_reach_is_given_back_when_the_rest_ends_sooner_without() -> None:
    driver = Driver()
    driver.granted()
    slow = Outcome(5, 1, Reason.FINISHED, duration_s=0.1, staged_s=(0.0, 30.0, 30.1, 40.0))
    driver.said("there", Finished("j4", "r1.core0", (slow,)))
    fast = Outcome(6, 1, Reason.FINISHED, duration_s=0.1)
    driver.said("here", Finished("j1", "r1.core0", (fast,)))
    driver.handle(Demand("j1", CORE, 2, HERE_GRANT))
    assert Tell(Recall("j1", (THERE_GRANT,))) in driver.handle(Tick(), 5.0)
    assert "39.9 s transfer" in driver.machine.explain(CORE)


def test_each_says_what_is_there_what_of_it_the_job_has_and_how_long_tasks_take() -> None:
    driver = Driver()
    driver.granted()
    driver.said("there", Finished("j4", "r1.core0", (Outcome(5, 1, Reason.FINISHED, duration_s=3.0),)))
    driver.handle(Demand("j1", CORE, 2, HERE_GRANT), 1.0)
    here, there = driver.machine.statuses(3.0)
    assert here == LocationStatus("here", "j1", "up", "", {"core": 2}, {"core": 1}, here.asked, here.waited_s)
    assert (there.run_s, there.transfer_s) == (3.0, 0.0)
    assert here.asked + there.asked == 2
    driver.handle(Gone("there", "its process has ended"), 4.0)
    assert driver.machine.statuses(4.0)[1] == LocationStatus(
        "there", "j4", "gone", "its process has ended", run_s=3.0
    )


def test_needs_of_waiting_tasks_go_to_those_that_ask_batch_systems() -> None:
    driver = Driver()
    assert driver.said("there", DemandWanted(True)) == [Tell(DemandWanted(True))]
    groups = (TaskGroup(600.0, 1, 0, 5),)
    running = (RunningGroup("there/r1", 5.0), RunningGroup("here/r1", 6.0))
    told = TaskDemand("j1", groups, running, (EndedTasks("there/r1", 2),))
    assert driver.handle(told) == [
        To("there", TaskDemand("j4", groups, (RunningGroup("r1", 5.0),), (EndedTasks("r1", 2),)))
    ]
    assert driver.handle(Gone("there", "cut"))[-1] == Tell(DemandWanted(False))


def test_a_grant_that_crosses_the_end_of_the_last_demand_goes_back() -> None:
    driver = Driver()
    driver.handle(Demand("j1", CORE, 1, NO_GRANT))
    driver.handle(Demand("j1", CORE, 0, NO_GRANT))
    assert driver.said("here", Grant("j1", CORE, (9, 1), ("r1.core0",))) == [
        To("here", Release("j1", (9, 1)))
    ]
    driver.granted()
    with pytest.raises(IllegalEvent):
        driver.said("there", Grant("j4", CORE, (7, 1), ("r1.core0",)))
