"""Transitions that the tables of states allow and that hardly ever happen."""

from __future__ import annotations

from gspc_trio.components.rif.at_work import Use
from gspc_trio.components.rif.events import Called, EndJob
from gspc_trio.components.rif.messages import AddResources, Hold, RemoveResources
from gspc_trio.components.rm.messages import Revoke
from gspc_trio.components.rm.parts import DemandState
from gspc_trio.components.worker.events import Retracted, WorkerIdle
from gspc_trio.components.worker.messages import Cancel
from gspc_trio.components.worker.phases import AttemptPhase
from tests.components.rif import support as rif_driver
from tests.components.rif.support import CODE, CORE0, DAG, JOB, submit
from tests.components.rm.support import Driver, any_of, cores
from tests.components.worker import support as worker_driver
from tests.components.worker.support import compute, sub

R = CORE0.resource_id


def rif() -> rif_driver.Bench:
    return rif_driver.Bench(Called(1, AddResources(DAG)), JOB, CODE)


def test_what_compute_has_not_read_yet_is_handed_over_again() -> None:
    bench = worker_driver.Bench()
    bench.give(sub(1), sub(2))
    bench(Cancel("j1", worker_driver.R, ((2, 1),)))
    assert compute(sub(1)) in bench(Retracted(((1, 1), (2, 1)))), "handed over once more"
    assert bench.worker.status((1, 1)) is AttemptPhase.COMPUTE


def test_a_resource_may_be_held_while_what_ran_there_is_ended() -> None:
    bench = rif()
    bench(submit(CORE0, 1))
    bench(Revoke((1, 1), (R,)))
    bench(Hold("j1", (1, 2), (R,)))
    assert bench.rif.use_of(R) is Use.ENDING
    bench(WorkerIdle(R))
    assert bench.rif.use_of(R) is Use.HELD


def test_a_resource_may_be_removed_while_it_is_held() -> None:
    bench = rif()
    bench(Hold("j1", (1, 2), (R,)))
    bench(Called(2, RemoveResources((R,))))
    assert bench.rif.use_of(R) is Use.REMOVING


def test_a_resource_may_be_removed_while_what_ran_there_is_ended() -> None:
    bench = rif()
    bench(submit(CORE0, 1))
    bench(Revoke((1, 1), (R,)))
    bench(Called(2, RemoveResources((R,))))
    assert bench.rif.use_of(R) is Use.REMOVING


def test_the_end_of_a_job_ends_what_it_runs_and_what_it_holds() -> None:
    bench = rif()
    bench(submit(CORE0, 1))
    bench(Hold("j1", (1, 2), ("r1.core1",)))
    bench(EndJob("j1", "its job is over"))
    assert bench.rif.use_of(R) is Use.ENDING
    assert bench.rif.use_of("r1.core1") is Use.IDLE


def test_a_demand_that_was_met_may_wait_for_what_it_prefers_again() -> None:
    driver = Driver(*cores(2))
    prefers = any_of("core", "r1.core0")
    assert driver.take("a", prefers) == ("r1.core0",)
    assert driver.take("a", prefers) is None
    driver.wait(1.0)
    assert driver.granted("a") == [("r1.core0",), ("r1.core1",)]
    assert (DemandState.MET, DemandState.PATIENT) in driver.demands.seen


def test_what_was_asked_for_later_waits_for_what_it_prefers_when_the_turn_comes_to_it() -> None:
    driver = Driver(*cores(2), patience_s=0.1, recall_after_s=60)
    driver.take("b", any_of("core", "r1.core0"))
    prefers = any_of("core", "r1.core0")
    driver.demand("a", 2, prefers)
    driver.wait(1.0)
    driver.demand("a", 2, prefers)
    driver.release("a")
    assert driver.granted("a") == [("r1.core1",)]
    assert (DemandState.WAITING, DemandState.PATIENT) in driver.demands.seen
