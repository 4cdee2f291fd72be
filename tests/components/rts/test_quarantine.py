"""Hosts that cannot start processes: taken out of use by the RTS machine, tried again after a while."""

from __future__ import annotations

from typing import Any

from gspc_trio.components.rif.messages import DagReport, RifHello, StopRif
from gspc_trio.components.rm.events import Added, Rested, Resumed
from gspc_trio.components.rts import actions, events
from gspc_trio.components.rts.actions import TellRif
from gspc_trio.components.rts.machine import Rts
from gspc_trio.components.rts.messages import Evacuate, RegisterJob, Rest, Restrict
from gspc_trio.components.rts.state import Limits, RifState
from gspc_trio.core.machine import Tick
from gspc_trio.core.resources import MEMORY_CLASS, Resource
from gspc_trio.core.task import DataUse
from gspc_trio.records.facts import RifChanged

NODE = Resource("r1.node", "node", memory_bytes=100)
CORES = tuple(Resource(f"r1.core{number}", "core", ("r1.node",)) for number in range(2))
ARENA = Resource("r1.memory-1", MEMORY_CLASS)
ALL = (NODE, *CORES, ARENA)
WHY = "cannot start a compute process: too many open files"
UNFIT = events.RifUnfit(1, WHY)
QUARANTINED = RifChanged(10.0, "r1", "anna", "quarantined", WHY)


class Bench:
    """A machine with one host that is up."""

    def __init__(self, grace_s: float = 0.0) -> None:
        self.machine = Rts(frozenset({"local"}), Limits(grace_s=grace_s))
        self.give(0.0, events.BootstrapAsked(1, ("anna",)))
        self.give(0.0, events.RifConnected(1, RifHello("r1", 1, 7, "anna", "memory:r1", ALL)))
        self.give(0.0, events.RifAnswered(1, 1, DagReport(())))
        self.give(0.0, events.RmAnswered(Added(ALL, "anna")))

    def give(self, now: float, event: Any) -> list[Any]:
        out = self.machine.handle(event, now)
        self.machine.check()
        return out

    @property
    def rif(self) -> Any:
        return next(iter(self.machine.rifs))


def test_nothing_of_it_is_given_out_but_its_memory_stays() -> None:
    bench = Bench()
    assert bench.give(10.0, UNFIT) == [QUARANTINED, actions.TellRm(Rested(("r1.node",)))]
    assert bench.rif.state is RifState.UP
    assert bench.rif.shown == ("quarantined", WHY)
    assert bench.machine.deadline() == 12.0
    assert bench.give(10.1, UNFIT) == [], "it is known"


def test_a_host_of_which_all_is_being_removed_needs_no_rest() -> None:
    bench = Bench()
    bench.give(9.0, events.RemoveAsked(2, "r1", ("r1.node",), "lose"))
    bench.give(9.1, events.ResourcesLeft(tuple(one.resource_id for one in ALL[:3])))
    assert bench.give(10.0, UNFIT) == []
    assert bench.rif.shown[0] == "up"


def test_it_is_tried_again_after_a_while() -> None:
    bench = Bench()
    bench.give(10.0, UNFIT)
    assert bench.give(11.9, Tick()) == []
    out = bench.give(12.0, Tick())
    assert out == [RifChanged(12.0, "r1", "anna", "up"), actions.TellRm(Resumed(("r1.node",)))]
    assert bench.rif.shown == ("up", "")
    assert bench.machine.deadline() is None


def test_the_pauses_grow_until_it_was_fit_for_a_while() -> None:
    bench = Bench()
    now, pauses = 10.0, []
    for _ in range(4):
        bench.give(now, UNFIT)
        due_s = bench.machine.deadline()
        assert due_s is not None
        pauses.append(due_s - now)
        bench.give(due_s, Tick())
        now = due_s + 1.0
    assert pauses == [2.0, 10.0, 60.0, 60.0]
    now += 60.0
    bench.give(now, UNFIT)
    assert bench.machine.deadline() == now + 2.0


def test_a_quarantine_ends_with_the_host() -> None:
    bench = Bench()
    bench.give(10.0, UNFIT)
    bench.give(11.0, events.RifLost(1, "reset"))
    assert bench.rif.shown[0] == "lost"
    assert bench.machine.deadline() is None
    bench.give(11.0, events.RifEnded("r1", 1))
    bench = Bench()
    bench.give(10.0, UNFIT)
    assert TellRif(1, StopRif()) in bench.give(11.0, events.TeardownAsked(2, ("r1",)))
    assert bench.rif.quarantine is None


def test_a_host_that_is_away_meanwhile_is_tried_again_all_the_same() -> None:
    bench = Bench(grace_s=30.0)
    bench.give(10.0, UNFIT)
    bench.give(11.0, events.RifLost(1, "reset"))
    assert bench.rif.shown == ("away", "reset")
    out = bench.give(12.0, Tick())
    assert out == [RifChanged(12.0, "r1", "anna", "away", "reset"), actions.TellRm(Resumed(("r1.node",)))]


def add_bert(bench: Bench) -> None:
    add(bench, 2, "bert")


def add(bench: Bench, number: int, host: str) -> None:
    name = f"r{number}"
    node = Resource(f"{name}.node", "node")
    bench.give(1.0, events.BootstrapAsked(number, (host,)))
    bench.give(1.0, events.RifConnected(number, RifHello(name, 1, 8, host, f"memory:{name}", (node,))))
    bench.give(1.0, events.RifAnswered(number, number, DagReport(())))
    bench.give(1.0, events.RmAnswered(Added((node,), host)))


def test_a_host_with_an_anomaly_is_not_used_until_it_is_said() -> None:
    bench = Bench()
    add_bert(bench)
    out = bench.give(10.0, events.HostAvoided("anna", "a leak"))
    assert out == [
        RifChanged(10.0, "r1", "anna", "quarantined", "a leak"),
        actions.TellRm(Rested(("r1.node",))),
    ]
    assert bench.machine.deadline() is None
    assert bench.give(11.0, UNFIT) == []
    again = RifChanged(12.0, "r1", "anna", "quarantined", "a leak, a dial")
    assert bench.give(12.0, events.HostAvoided("anna", "a leak, a dial")) == [again]
    out = bench.give(5000.0, events.HostUsed("anna"))
    assert out == [RifChanged(5000.0, "r1", "anna", "up"), actions.TellRm(Resumed(("r1.node",)))]
    assert bench.give(5000.0, events.HostUsed("anna")) == []


def test_the_last_host_is_not_avoided_until_there_is_another() -> None:
    bench = Bench()
    assert bench.give(0.5, events.HostAvoided("anna", "a leak")) == []
    add_bert(bench)
    assert bench.rif.shown == ("quarantined", "a leak")
    assert bench.give(10.0, events.HostAvoided("nobody", "a leak")) == []
    assert bench.give(11.0, events.HostAvoided("bert", "a dial")) == [], "anna is avoided"
    assert bench.give(12.0, events.HostUsed("anna")) == [
        RifChanged(12.0, "r1", "anna", "up"),
        actions.TellRm(Resumed(("r1.node",))),
        RifChanged(12.0, "r2", "bert", "quarantined", "a dial"),
        actions.TellRm(Rested(("r2.node",))),
    ]


def test_of_several_hosts_with_anomalies_one_is_used_that_is_only_slow() -> None:
    bench = Bench()
    bench.give(0.5, events.HostAvoided("anna", "a leak"))
    bench.give(0.6, events.HostAvoided("bert", "an ioerr", evacuate=True))
    add_bert(bench)
    states = {rif.host: rif.shown[0] for rif in bench.machine.rifs}
    assert states == {"anna": "up", "bert": "quarantined"}
    bench = Bench()
    add_bert(bench)
    add(bench, 3, "cleo")
    bench.give(2.0, events.HostAvoided("anna", "an ioerr", evacuate=True))
    bench.give(3.0, events.HostAvoided("bert", "a leak"))
    bench.give(4.0, events.RifUnfit(3, WHY))
    states = {rif.host: rif.shown[0] for rif in bench.machine.rifs}
    assert states == {"anna": "quarantined", "bert": "up", "cleo": "quarantined"}


def test_an_avoided_host_is_used_while_no_other_can_be() -> None:
    bench = Bench()
    add_bert(bench)
    bench.give(9.0, events.HostAvoided("bert", "a leak"))
    out = bench.give(10.0, UNFIT)
    assert out[2:] == [RifChanged(10.0, "r2", "bert", "up"), actions.TellRm(Resumed(("r2.node",)))]
    out = bench.give(12.0, Tick())
    assert out[2:] == [
        RifChanged(12.0, "r2", "bert", "quarantined", "a leak"),
        actions.TellRm(Rested(("r2.node",))),
    ]


def test_an_avoided_host_is_used_as_soon_as_all_of_the_other_is_to_be_removed() -> None:
    """Even if that waits until what runs there has ended: nothing of it is given out meanwhile."""
    bench = Bench()
    add_bert(bench)
    bench.give(9.0, events.HostAvoided("bert", "a leak"))
    out = bench.give(10.0, events.RemoveAsked(2, "r1", ("r1.node",), "wait"))
    assert out[-2:] == [RifChanged(10.0, "r2", "bert", "up"), actions.TellRm(Resumed(("r2.node",)))]


def test_what_is_added_to_a_host_that_is_not_used_rests_too() -> None:
    bench = Bench()
    bench.give(10.0, UNFIT)
    names = tuple(one.resource_id for one in ALL[:3])
    bench.give(10.1, events.RemoveAsked(2, "r1", ("r1.node",), "lose"))
    bench.give(10.2, events.ResourcesLeft(names))
    bench.give(10.2, events.RifAnswered(1, 2, DagReport(())))
    bench.give(10.3, events.AddAsked(3, "r1", (NODE, *CORES)))
    out = bench.give(10.4, events.RifAnswered(1, 3, DagReport(())))
    assert [one.event for one in out if isinstance(one, actions.TellRm)] == [
        Added((NODE, *CORES), "anna"),
        Rested(("r1.node",)),
    ]


def test_a_host_that_is_started_again_is_avoided_as_before() -> None:
    bench = Bench()
    add_bert(bench)
    bench.give(9.0, events.HostAvoided("bert", "a leak"))
    bench.give(10.0, events.RifLost(2, "gone"))
    bench.give(10.0, events.RifEnded("r2", 1, "gone"))
    bench.give(40.0, Tick())
    node = Resource("r2.node", "node")
    bench.give(41.0, events.RifConnected(3, RifHello("r2", 2, 8, "bert", "memory:r2", (node,))))
    out = bench.give(41.0, events.RifAnswered(3, 3, DagReport(())))
    assert actions.TellRm(Rested(("r2.node",))) in out


def test_jobs_are_told_what_to_evacuate_once_and_those_that_come_too() -> None:
    bench = Bench()
    add_bert(bench)
    bench.give(2.0, events.JobConnected(5, RegisterJob("work", 7, "here")))
    told = actions.TellJobs(("j1",), Evacuate("r1", "an ioerr"))
    assert bench.give(10.0, events.HostAvoided("anna", "an ioerr", evacuate=True))[-1] == told
    assert told not in bench.give(11.0, events.HostAvoided("anna", "a dial")), "it is told already"
    assert bench.rif.quarantine.evacuate
    out = bench.give(12.0, events.JobConnected(6, RegisterJob("work", 7, "here")))
    assert actions.TellJobs(("j2",), Evacuate("r1", "a dial")) in out
    out = bench.give(70.0, events.HostUsed("anna"))
    used = [actions.TellJobs(("j1", "j2"), Evacuate("r1")), actions.TellRm(Resumed(("r1.node",)))]
    assert out[-2:] == used, "they know before they are granted anything of it"


def rests(rif: str, reason: str, *jobs: str) -> actions.TellJobs:
    return actions.TellJobs(jobs or ("j1",), Rest(rif, reason))


def test_jobs_are_told_which_hosts_give_out_nothing_new_and_those_that_come_too() -> None:
    bench = Bench()
    add_bert(bench)
    bench.give(2.0, events.JobConnected(5, RegisterJob("work", 7, "here")))
    assert bench.give(10.0, events.HostAvoided("anna", "a dial"))[-1] == rests("r1", "a dial")
    out = bench.give(12.0, events.JobConnected(6, RegisterJob("work", 7, "here")))
    assert rests("r1", "a dial", "j2") in out
    out = bench.give(70.0, events.HostUsed("anna"))
    used = [rests("r1", "", "j1", "j2"), actions.TellRm(Resumed(("r1.node",)))]
    assert out[-2:] == used, "they know before they are granted anything of it"


def test_what_is_only_slow_becomes_what_may_fail() -> None:
    bench = Bench()
    add_bert(bench)
    bench.give(2.0, events.JobConnected(5, RegisterJob("work", 7, "here")))
    assert bench.give(10.0, events.HostAvoided("anna", "a dial"))[2:] == [rests("r1", "a dial")]
    out = bench.give(11.0, events.HostAvoided("anna", "a dial, an ioerr", evacuate=True))
    assert out[-1] == actions.TellJobs(("j1",), Evacuate("r1", "a dial, an ioerr"))


FILES, REMOTE = (DataUse.FILES,), (DataUse.REMOTE,)


def told(uses: tuple[DataUse, ...], reason: str = "", job: str = "j1", rif: str = "r1") -> actions.TellJobs:
    return actions.TellJobs((job,), Restrict(rif, uses, reason))


def restricted(at_s: float, why: str) -> RifChanged:
    return RifChanged(at_s, "r1", "anna", "up", why)


def test_a_host_that_slows_some_tasks_down_is_used_for_the_others() -> None:
    bench = Bench()
    add_bert(bench)
    bench.give(2.0, events.JobConnected(5, RegisterJob("work", 7, "here")))
    shown = restricted(10.0, "no new tasks with files: a copy")
    assert bench.give(10.0, events.HostAvoided("anna", "a copy", uses=FILES)) == [
        shown,
        told(FILES, "a copy"),
    ]
    assert bench.give(11.0, Tick()) == []
    out = bench.give(12.0, events.JobConnected(6, RegisterJob("work", 7, "here")))
    assert told(FILES, "a copy", "j2") in out
    out = bench.give(70.0, events.HostUsed("anna"))
    assert out[0] == RifChanged(70.0, "r1", "anna", "up")
    assert [one.message for one in out[1:]] == [Restrict("r1")]


def test_another_anomaly_makes_it_wrong_for_more_tasks_and_for_all() -> None:
    bench = Bench()
    add_bert(bench)
    bench.give(2.0, events.JobConnected(5, RegisterJob("work", 7, "here")))
    bench.give(10.0, events.HostAvoided("anna", "a copy", uses=FILES))
    out = bench.give(11.0, events.HostAvoided("anna", "a linklog", uses=REMOTE))
    assert out[-1] == told((*FILES, *REMOTE), "a linklog")
    assert bench.give(12.0, events.HostAvoided("anna", "a dial")) == [
        RifChanged(12.0, "r1", "anna", "quarantined", "a dial"),
        actions.TellRm(Rested(("r1.node",))),
        rests("r1", "a dial"),
        RifChanged(12.0, "r1", "anna", "quarantined", "a dial"),
        told(()),
    ]
    out = bench.give(13.0, events.HostAvoided("anna", "a copy", uses=FILES))
    assert out == [RifChanged(13.0, "r1", "anna", "quarantined", "a copy")], "it becomes no better"


def test_the_last_host_is_used_for_all_tasks() -> None:
    bench = Bench()
    assert bench.give(0.5, events.HostAvoided("anna", "a copy", uses=FILES)) == []
    add_bert(bench)
    assert bench.rif.shown == ("up", "no new tasks with files: a copy")
    bench.give(10.0, events.HostAvoided("bert", "a dial"))
    assert bench.rif.shown == ("up", ""), "bert is not used"
    bench.give(11.0, events.HostUsed("bert"))
    assert bench.rif.shown == ("up", "no new tasks with files: a copy")
    bench.give(12.0, events.HostAvoided("bert", "a copy", uses=FILES))
    assert bench.rif.shown == ("up", ""), "one is as good as the other"


def test_a_restriction_outlasts_its_rif() -> None:
    bench = Bench(grace_s=30.0)
    add_bert(bench)
    bench.give(9.0, events.HostAvoided("anna", "a copy", uses=FILES))
    bench.give(10.0, events.RifLost(1, "reset"))
    assert bench.rif.shown == ("away", "reset")
    assert bench.rif.restriction is not None
    bench = Bench()
    add_bert(bench)
    bench.give(9.0, events.HostAvoided("anna", "a copy", uses=FILES))
    bench.give(10.0, events.RifLost(1, "gone"))
    assert bench.rif.restriction is None
    bench.give(10.0, events.RifEnded("r1", 1, "gone"))
    bench.give(40.0, Tick())
    bench.give(41.0, events.RifConnected(3, RifHello("r1", 2, 8, "anna", "memory:r1", ALL)))
    bench.give(41.0, events.RifAnswered(3, 3, DagReport(())))
    assert bench.rif.shown == ("up", "no new tasks with files: a copy")


def test_nobody_else_is_quarantined() -> None:
    bench = Bench()
    assert bench.give(10.0, events.RifUnfit(9, WHY)) == []
