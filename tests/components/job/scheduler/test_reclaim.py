"""A scheduler whose resource manager was away: it says what it holds, and wants, anew."""

from __future__ import annotations

from gspc_trio.components.job.scheduler.interface import Claims, Reclaim, ResourcesLost
from gspc_trio.components.rm.messages import Demand, Grant
from gspc_trio.core.task import CORE
from tests.components.job.scheduler.support import GANG, JOB, World, core, grant, ready


def test_it_claims_what_it_holds_and_demands_what_it_lacks() -> None:
    world = World(cores=2)
    world(ready(1, 2, 3, 4, 5))
    world(grant(1))
    world(grant(2))
    claims, *demands = world.do(Reclaim())
    assert claims == Claims(
        JOB,
        (Grant(JOB, CORE, (1, 1), (core(1),)), Grant(JOB, CORE, (1, 2), (core(2),))),
    )
    assert [(one.shape, one.seen) for one in demands if isinstance(one, Demand)] == [(CORE, (1, 2))]
    assert all(one.credit > 0 for one in demands)


def test_what_has_lost_a_resource_is_not_claimed() -> None:
    world = World(cores=2)
    world(ready(1, 2))
    world(grant(1))
    world(grant(2))
    world(ResourcesLost((core(1),), "its host is gone"))
    claims, *_ = world.do(Reclaim())
    assert [it.resources for it in claims.grants] == [(core(2),)]


def test_without_anything_there_is_nothing_to_claim() -> None:
    assert World().do(Reclaim()) == [Claims(JOB, ())]


def test_it_knows_what_it_has_sent_where() -> None:
    world = World(cores=4)
    world(ready(1, 2))
    world(ready(3, shape=GANG))
    world(grant(1))
    world(grant(2, 2, 3, shape=GANG))
    sent = world.scheduler.sent_to([core(1)])
    assert {name for name, _, _ in sent} == {core(1)}
    assert world.scheduler.sent_to([core(2), core(3)]) == [(core(2), 3, 1)]
    assert world.scheduler.sent_to([core(3)]) == [], "its task runs at another resource"
