"""RIFs of blocks: started with the others of their batch job, forgotten with it, started anew only by it."""

from __future__ import annotations

import math

import pytest
from msgspec.structs import replace

from gspc_trio.components.rif.messages import RifHello
from gspc_trio.components.rm.events import Added, Coming, Removed, Settled
from gspc_trio.components.rts import actions, events
from gspc_trio.components.rts.machine import Rts
from gspc_trio.components.rts.state import Limits, RifState
from gspc_trio.core.machine import Tick
from gspc_trio.records.facts import RifChanged
from tests.components.rts.support import CORES, IDS, REPORT, run

ASKED = events.BootstrapAsked(1, ("b",), "batch", 2, {}, 2)
HELLO = events.RifConnected(1, RifHello("r1", 1, 7, "b.0", "memory:r1", CORES))
UP = [
    (0.0, ASKED),
    (1.0, HELLO),
    (2.0, events.RifAnswered(1, 1, REPORT)),
    (2.0, events.RmAnswered(Added(CORES, "b.0"))),
]


def make() -> Rts:
    """Return a machine whose strategy ``batch`` starts blocks."""
    return Rts(frozenset({"local", "batch"}), Limits(come_up_s={"batch": math.inf}))


def start(node: int, incarnation: int = 1, taken: bool = False) -> actions.StartRif:
    return actions.StartRif(f"r{node + 1}", incarnation, f"b.{node}", "batch", 2, {}, "b", node, 2, taken)


def test_a_block_is_one_rif_a_node_and_they_may_wait_for_ever() -> None:
    machine = make()
    assert run(machine, (0.0, ASKED)) == [
        start(0),
        RifChanged(0.0, "r1", "b.0", "starting"),
        start(1),
        RifChanged(0.0, "r2", "b.1", "starting"),
        actions.TellRm(Coming("r1", None, "b.0")),
        actions.TellRm(Coming("r2", None, "b.1")),
    ]
    assert machine.deadline() == math.inf
    assert run(machine, (9.0, events.RifOrdered("r1", 1))) == []
    assert machine.deadline() == 9.0 + Limits().bootstrap_timeout_s


def test_one_that_has_its_order_and_does_not_come_is_lost_and_the_other_goes_on_waiting() -> None:
    machine = make()
    run(machine, (0.0, ASKED), (9.0, events.RifOrdered("r1", 1)))
    why = "it did not come up within 30 s"
    assert run(machine, (39.0, Tick())) == [
        RifChanged(39.0, "r1", "b.0", "lost", why),
        actions.TellStrategy("b", 0, 1, False, why),
        actions.TellRm(Settled("r1")),
    ]
    assert [rif.state for rif in machine.rifs] == [RifState.LOST, RifState.STARTING]


def test_a_lost_node_is_forgotten_with_its_block_and_nothing_comes_in_its_place() -> None:
    machine = make()
    run(machine, *UP)
    assert run(machine, (5.0, events.RifLost(1, "cut"))) == [
        actions.TellStrategy("b", 0, 1, False),
        RifChanged(5.0, "r1", "b.0", "lost", "cut"),
        actions.TellRm(Removed(IDS, "lose")),
        actions.TellStrategy("b", 0, 1, False, "cut"),
    ]
    over = run(machine, (60.0, events.RifEnded("r1", 1, "slurm job 1 ended")))
    assert over == [RifChanged(60.0, "r1", "b.0", "down", "slurm job 1 ended")]
    assert [rif.rif_id for rif in machine.rifs] == ["r2"]


def test_another_process_in_place_of_a_rif_gets_an_order_when_that_is_lost() -> None:
    machine = make()
    run(machine, *UP)
    assert run(machine, (5.0, events.RifEnded("r1", 1, "started again", again=True))) == [
        actions.DropLink(1, "started again"),
        actions.TellRm(Removed(IDS, "lose")),
        actions.TellStrategy("b", 0, 1, False, "started again"),
        start(0, 2),
        RifChanged(5.0, "r1", "b.0", "starting"),
        actions.TellRm(Coming("r1", None, "b.0")),
    ]


def test_the_answer_names_nodes_that_did_not_come() -> None:
    machine = make()
    run(machine, *UP)
    told = run(machine, (5.0, events.RifEnded("r2", 1, "refused")))
    assert actions.Answer(1, actions.Bootstrapped({"b.0": "r1"}, {"b.1": "refused"})) in told
    assert [rif.rif_id for rif in machine.rifs] == ["r1"]


def test_a_host_of_a_batch_system_is_a_block_of_its_own_and_comes_again() -> None:
    machine = make()
    asked = events.BootstrapAsked(1, ("n1",), "batch")
    assert actions.StartRif("r1", 1, "n1", "batch", 0, {}, "n1") in run(machine, (0.0, asked))
    run(machine, *UP[1:])
    lost = run(
        machine, (5.0, events.RifLost(1, "cut")), (6.0, events.RifEnded("r1", 1, "cut")), (7.0, Tick())
    )
    assert actions.StartRif("r1", 2, "n1", "batch", 0, {}, "n1") in lost


@pytest.mark.parametrize(
    ("asked", "reason"),
    [
        (replace(ASKED, strategy="local"), "the strategy local starts hosts, and no blocks of 2 nodes"),
        (replace(ASKED, nodes=-1), "the number of nodes is -1; it must not be negative"),
        (replace(ASKED, nodes=20_001), "there may be 20000 RIFs; there are 0, 20001 more were asked for"),
    ],
)
def test_a_block_that_cannot_be_is_refused(asked: events.BootstrapAsked, reason: str) -> None:
    assert run(make(), (0.0, asked)) == [actions.QuestionRefused(1, reason)]


def test_a_second_block_of_the_same_name_fails() -> None:
    machine = make()
    again = replace(ASKED, ask=2)
    failed = {f"b.{node}": "there is a block b already" for node in range(2)}
    run(machine, (0.0, ASKED))
    assert run(machine, (1.0, again)) == [actions.Answer(2, actions.Bootstrapped({}, failed))]


def restored(fresh: bool, gone: bool = False) -> events.RifRestored:
    return events.RifRestored("r1", 3, "b.0", "batch", 2, {}, gone, fresh, "b", 0, 2, once=True)


def test_after_a_crash_one_that_ran_is_awaited_and_one_in_the_queue_gets_a_new_order() -> None:
    limits = Limits(come_up_s={"batch": math.inf}, grace_s=30.0)
    machine = Rts(frozenset({"batch"}), limits)
    assert run(machine, (0.0, restored(fresh=False)))[0] == start(0, 3, taken=True)
    assert machine.deadline() == 30.0
    queued = Rts(frozenset({"batch"}), limits)
    assert run(queued, (0.0, restored(fresh=True)))[0] == start(0, 4)
    assert queued.deadline() == math.inf


@pytest.mark.parametrize(
    ("host", "strategy", "why"),
    [
        ("hpc/b1", "batch", "hpc/b1: so blocks of sites are called; take a name without '/'"),
        ("x", "site hpc", "there is no strategy 'site hpc'; there are: batch, local"),
    ],
)
def test_blocks_of_sites_are_for_sites_alone(host: str, strategy: str, why: str) -> None:
    machine = make()
    machine.add_strategy("site hpc", math.inf)
    asked = events.BootstrapAsked(1, (host,), strategy, 2, {}, 2)
    assert run(machine, (0.0, asked)) == [actions.QuestionRefused(1, why)]
    assert type(run(machine, (1.0, replace(asked, planned=True)))[0]) is actions.StartRif
