"""What never left the process of the job has not begun: it goes elsewhere, and uses up nothing."""

from __future__ import annotations

import pytest

from gspc_trio.components.job.scheduler.interface import GivenUp, ResourcesLost, TaskDone, Withheld
from gspc_trio.components.rm.messages import Lapsed
from gspc_trio.core.task import TaskOptions
from gspc_trio.records.facts import TaskChanged
from tests.components.job.scheduler.support import JOB, READY, World, core, grant, ready, submit


@pytest.mark.parametrize("loss", [ResourcesLost((core(1),), "gone"), Lapsed(JOB, ((1, 1),), "gone")])
@pytest.mark.parametrize("may_rerun", [True, False])
def test_what_was_never_sent_has_not_begun(loss: ResourcesLost | Lapsed, may_rerun: bool) -> None:
    world = World(cores=2)
    options = TaskOptions(loss_attempts=1, may_rerun=may_rerun)
    world(ready(1, options=options))
    world(grant(1))
    withheld = Withheld((core(1),), 0)
    assert world(withheld) == [GivenUp(withheld)]
    records = [one for one in world(loss) if isinstance(one, TaskChanged)]
    assert [(one.state, one.detail.removesuffix("gone")) for one in records] in (
        [(READY, "returned: ")],
        [(READY, f"returned: {core(1)}: ")],
    )
    assert world.scheduler._state.tasks[1].losses == 0
    assert world.do(grant(2)) == [submit(2, (1, 2), options=options)]


@pytest.mark.parametrize(
    "withheld",
    [
        Withheld((core(1),), 1),
        Withheld((core(2),), 0),
        Withheld((core(1),), 0, ((1, 7),)),
    ],
    ids=["sent", "elsewhere", "under another grant"],
)
def test_what_may_have_been_sent_may_have_begun(withheld: Withheld) -> None:
    world = World(cores=2)
    world(ready(1, options=TaskOptions(may_rerun=False)))
    world(grant(1))
    world(withheld)
    ends = [one for one in world(ResourcesLost((core(1),), "gone")) if isinstance(one, TaskDone)]
    assert [one.outcome.error.kind for one in ends if one.outcome.error] == ["unknown"]


def test_what_is_sent_again_is_no_longer_unsent() -> None:
    world = World(cores=2)
    world(ready(1, options=TaskOptions(may_rerun=False)))
    world(grant(1))
    world(Withheld((core(1),), 0))
    world(ResourcesLost((core(1),), "gone"))
    world(grant(2))
    ends = [one for one in world(ResourcesLost((core(2),), "gone")) if isinstance(one, TaskDone)]
    assert [one.outcome.error.kind for one in ends if one.outcome.error] == ["unknown"]
