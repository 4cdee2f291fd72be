"""What a job's scheduler sends to a RIF when it is more than a message can carry."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from functools import partial
from typing import Any

import pytest
import trio
from attrs import define, field
from msgspec.structs import replace

from gspc_trio.components.job.scheduler.interface import (
    GivenUp,
    ResourcesLost,
    ResourcesUp,
    TaskDone,
    TasksReady,
    Withheld,
)
from gspc_trio.components.job.shell.scheduler import SchedulerRoutes, _RifLink
from gspc_trio.components.rif.messages import WorkBack
from gspc_trio.components.rm.messages import Grant, Lapsed
from gspc_trio.components.rts.messages import RifGone, RifUp
from gspc_trio.components.wire.codec import wire_codec
from gspc_trio.components.worker.messages import (
    Cancel,
    DefineCode,
    Finished,
    OpenJob,
    Submission,
    Submit,
)
from gspc_trio.core.resources import Resource
from gspc_trio.core.task import CORE, Reason, Task, TaskOptions
from gspc_trio.nursery.connections.memory import memory_pair
from gspc_trio.nursery.connections.network import Network
from gspc_trio.nursery.connections.rpc import Peer, PeerGone
from gspc_trio.policies.scheduling import USUAL
from gspc_trio.protocol.codec import Codec
from gspc_trio.protocol.envelope import EncodeError
from gspc_trio.protocol.limits import KIB, Limits

HANG_S = 60.0
TOKEN = b"the token of this test"


@define
class FarEnd:
    """What arrives there, over a real codec with small limits."""

    codec: Codec = field(factory=lambda: wire_codec(limits=Limits(message_bytes_max=64 * KIB)))
    arrived: list[Any] = field(factory=list)

    def post(self, message: Any) -> None:
        self.arrived += self.codec.decode_batch(self.codec.encode_batch([message]))


def submit(*sizes: int) -> Submit:
    tasks = tuple(Submission(number, 1, 0, (bytes(size),)) for number, size in enumerate(sizes, 1))
    return Submit("j1", (1, 1), ("c1",), tasks, "core")


def sent(message: Any) -> tuple[list[Any], list[Any]]:
    """Return what arrives at the RIF, and what the machine is told."""
    events: list[Any] = []
    link = _RifLink(RifUp("r1", 1, "host", "", ()), trio.CancelScope(), events.append)
    far = FarEnd()
    link.post(far, message)  # type: ignore[arg-type]
    return far.arrived, events


def test_tasks_that_fit_go_in_one_message() -> None:
    message = submit(100, 200)
    assert sent(message) == ([message], [])


def test_tasks_that_are_too_large_together_go_one_by_one() -> None:
    arrived, events = sent(submit(40 * KIB, 10 * KIB, 40 * KIB))
    assert [[it.task_id for it in message.submissions] for message in arrived] == [[1], [2], [3]]
    assert {(message.grant_id, message.resources, message.resource_class) for message in arrived} == {
        ((1, 1), ("c1",), "core")
    }
    assert events == []


def test_one_that_is_too_large_alone_fails_where_it_would_have_run() -> None:
    arrived, (finished,) = sent(submit(40 * KIB, 100 * KIB, 40 * KIB))
    assert [message.submissions[0].task_id for message in arrived] == [1, 3]
    assert isinstance(finished, Finished)
    (outcome,) = finished.outcomes
    assert (finished.resource_id, outcome.task_id, outcome.attempt) == ("c1", 2, 1)
    assert outcome.reason is Reason.FAILED
    assert outcome.error is not None
    assert outcome.error.message.startswith("it cannot be sent: arguments of 102400 bytes, 64512 can travel")


def test_anything_else_that_cannot_be_sent_is_an_error() -> None:
    with pytest.raises(EncodeError):
        sent(Cancel("j1", "c1", "x" * 100_000))  # type: ignore[arg-type]


@asynccontextmanager
async def connected_to_nobody() -> AsyncIterator[tuple[SchedulerRoutes, list[Any]]]:
    """The connections of a job whose RIF cannot be reached, and what its machine is told."""
    events: list[Any] = []
    near, _ = memory_pair("job", "job", "rts", "rts")
    async with trio.open_nursery() as nursery:
        opening = OpenJob("j1", (), "/", {})
        routes = SchedulerRoutes(
            Network(wire_codec),
            near,
            opening,
            lambda _: b"",
            lambda event, _=None: events.append(event),
            {},
            nursery,
        )
        routes._rif_up(rif(1))
        yield routes, events
        nursery.cancel_scope.cancel()


def rif(incarnation: int) -> RifUp:
    return RifUp("r1", incarnation, "host", "memory:nobody", (Resource("r1.core0", "core"),))


def to_core(task_id: int) -> Submit:
    return replace(submit(10), resources=("r1.core0",), submissions=(Submission(task_id, 1, 0),))


def waiting(routes: SchedulerRoutes) -> list[int]:
    """Return the tasks that wait for the connection."""
    return [m.submissions[0].task_id for m in routes._links["r1"].unsent if isinstance(m, Submit)]


async def test_what_was_never_sent_is_said_before_the_loss() -> None:
    """Tasks that must not run twice may be sent elsewhere: nobody has begun them."""
    async with connected_to_nobody() as (routes, events):
        assert routes.send(to_core(1))
        await trio.testing.wait_all_tasks_blocked()
        up, withheld, lost, *_ = events
        assert isinstance(up, ResourcesUp)
        assert withheld == Withheld(("r1.core0",), 0)
        assert isinstance(lost, ResourcesLost)
        assert waiting(routes) == [], "it would be sent as soon as its host is there again"


async def test_what_is_submitted_before_a_loss_is_known_is_not_sent_to_who_comes_next() -> None:
    async with connected_to_nobody() as (routes, events):
        routes._rif_up(rif(2))
        _, withheld, lost, up = events
        assert [type(event) for event in (withheld, lost, up)] == [Withheld, ResourcesLost, ResourcesUp]
        assert routes.send(to_core(1))
        assert waiting(routes) == []
        assert routes.send(GivenUp(withheld))
        assert routes.send(to_core(2))
        assert waiting(routes) == [2]


async def test_what_waits_under_a_grant_that_lapses_is_not_sent() -> None:
    async with connected_to_nobody() as (routes, events):
        routes.send(to_core(1))
        routes.send(replace(to_core(2), grant_id=(1, 2)))
        routes._take_from_rts(Lapsed("j1", ((1, 1),), "its host is gone"))
        assert events[1:] == [
            Withheld(("r1.core0",), 0, ((1, 1),)),
            Lapsed("j1", ((1, 1),), "its host is gone"),
        ]
        assert waiting(routes) == [2]


async def test_what_is_posted_to_a_connection_that_is_over_waits_for_the_next() -> None:
    async with connected_to_nobody() as (routes, _):
        link = routes._links["r1"]
        link.peer, other = memory_pair("rif", "r1", "job", "j1")
        routes.send(to_core(1))
        assert (link.last, waiting(routes)) == (1, [])
        other.drop("gone")
        routes.send(to_core(2))
        assert (link.last, waiting(routes)) == (1, [2])


async def test_a_task_that_never_left_goes_elsewhere_whatever_is_said_first() -> None:
    """It was handed out when its host was gone already, and before anybody knew."""
    machine = USUAL.scheduler("j1")
    once = Task(1, "once", 0, options=TaskOptions(may_rerun=False, loss_attempts=1))
    async with connected_to_nobody() as (routes, events):
        other = Resource("r2.core0", "core")

        def take(event: Any) -> list[Any]:
            actions = machine.handle(event, 0.0)
            machine.check()
            for action in actions:
                routes.send(action)
            return actions

        take(events.pop(0))
        take(ResourcesUp((other,)))
        take(TasksReady((once,)))
        routes._rif_gone(RifGone("r1", 1, "black hole"))
        take(Grant("j1", CORE, (1, 1), ("r1.core0",)))
        assert machine.is_running(1)
        for event in events:
            assert not [action for action in take(event) if isinstance(action, TaskDone)]
        assert not machine.is_running(1)
        take(Grant("j1", CORE, (1, 2), ("r2.core0",)))
        assert machine.is_running(1)


class Host:
    """A RIF that notes what it hears at each connection, and lets a test end them."""

    def __init__(self) -> None:
        self.heard: list[list[Any]] = []
        self.peers: list[Peer] = []
        self._news = trio.Event()

    async def serve(self, peer: Peer) -> None:
        said: list[Any] = []
        self.heard.append(said)
        self.peers.append(peer)

        def hear(message: Any) -> None:
            said.append(message)
            self._news.set()
            self._news = trio.Event()

        with suppress(PeerGone):
            await peer.listen(hear)

    async def has_heard(self, connection: int, kind: type) -> list[Any]:
        """Wait for such a message at a connection; return all that came there."""
        with trio.fail_after(HANG_S):
            while not (len(self.heard) > connection and kind in map(type, self.heard[connection])):
                await self._news.wait()
        return self.heard[connection]


@pytest.mark.parametrize("grace_s", [0.0, 30.0])
async def test_who_can_be_heard_again_is_sent_nothing_twice(grace_s: float) -> None:
    """One that is awaited is asked for what it has; another one begins anew, and is told the code again."""
    host = Host()
    near, _ = memory_pair("job", "job", "rts", "rts")
    async with trio.open_nursery() as nursery:
        listen = partial(Network(wire_codec, TOKEN).listen, role="rif", name="r1")
        address = await nursery.start(listen, "ws://127.0.0.1:0", host.serve)
        opening, network, events = OpenJob("j1", (), "/", {}), Network(wire_codec, TOKEN), list[Any]()
        routes = SchedulerRoutes(
            network,
            near,
            opening,
            lambda _: b"code",
            lambda event, _by=None: events.append(event),
            {},
            nursery,
        )
        routes.grace_s, routes.sent_to = grace_s, lambda _ids: ()
        routes._rif_up(replace(rif(1), address=address))
        routes.send(to_core(1))
        assert list(map(type, await host.has_heard(0, Submit))) == [OpenJob, DefineCode, Submit]
        host.peers[0].drop("cut")
        again = await host.has_heard(1, WorkBack if grace_s else OpenJob)
        for event in events:
            if isinstance(event, Withheld):  # as a scheduler does
                routes.send(GivenUp(event))
        routes.send(to_core(2))
        await host.has_heard(1, Submit)
        expected = [WorkBack, DefineCode, Submit] if grace_s else [OpenJob, DefineCode, Submit]
        assert list(map(type, again)) == expected
        assert [one.submissions[0].task_id for one in again if isinstance(one, Submit)] == [2]
        nursery.cancel_scope.cancel()
