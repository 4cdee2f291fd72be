"""What a connection does is the same in memory and over a websocket."""

from __future__ import annotations

import os
from contextlib import nullcontext

import pytest
import trio

from gspc_trio.components.job.messages import GetJobStatus, StopJob
from gspc_trio.components.rm.messages import Interrupt, Release
from gspc_trio.components.rts.messages import Explain, GetStatus
from gspc_trio.components.wire.codec import wire_codec
from gspc_trio.core.messages import Done
from gspc_trio.nursery.connections.network import AuthenticationFailed, ConnectFailed, Network
from gspc_trio.nursery.connections.rpc import ITEMS_AT_ONCE, IncomingCall, Peer, PeerGone, RemoteError
from gspc_trio.protocol.envelope import EncodeError
from gspc_trio.protocol.limits import Limits
from gspc_trio.records.messages import Watch
from tests.nursery.connections.support import (
    MEMORY,
    TOKEN,
    WEBSOCKET,
    connected,
    echo,
    listening,
    receive_count,
    reply_of,
)

pytestmark = pytest.mark.parametrize("address", [MEMORY, WEBSOCKET], ids=["memory", "websocket"])


async def test_both_ends_know_each_other(address: str) -> None:
    met: list[tuple[str, str]] = []

    async def note(peer: Peer) -> None:
        met.append((peer.role, peer.name))
        await echo(peer)

    async with connected(address, note) as peer:
        assert (peer.role, peer.name) == ("rts", "main")
        await peer.call(Done())
    assert met == [("job", "j1")]


async def test_a_question_with_a_wrong_field_does_not_cost_the_connection(address: str) -> None:
    # In memory nothing is encoded, and so nothing is refused.
    refused = pytest.raises(EncodeError, match="not str but int") if address == WEBSOCKET else nullcontext()
    async with connected(address, echo) as peer:
        with refused:
            await peer.call(Explain(3))  # type: ignore[arg-type]
        assert await peer.call(Done()) == Done()


async def test_messages_arrive_in_order_however_many(address: str) -> None:
    async with connected(address) as peer:
        for number in range(5000):
            peer.post(Release("j1", (1, number)))
        items = await receive_count(peer, 5000)
    assert items == [Release("j1", (1, number)) for number in range(5000)]


async def test_what_is_answered_to_the_first_of_many_arrives_while_the_last_still_wait(address: str) -> None:
    lengths: list[int] = []

    async def echo_in_parts(peer: Peer) -> None:
        while True:
            batch = await peer.receive()
            lengths.append(len(batch))
            for message in batch:
                peer.post(message)

    count = 5 * ITEMS_AT_ONCE
    async with connected(address, echo_in_parts) as peer:
        for number in range(count):
            peer.post(Release("j1", (1, number)))
        items = await peer.receive()
        assert len(items) <= ITEMS_AT_ONCE
        items += await receive_count(peer, count - len(items))
    assert items == [Release("j1", (1, number)) for number in range(count)]
    assert max(lengths) == ITEMS_AT_ONCE


async def test_calls_are_answered_to_their_callers(address: str) -> None:
    answers: list[object] = []
    async with connected(address) as peer:

        async def ask(credit: int) -> None:
            answers.append(await peer.call(Watch(credit)))

        async with trio.open_nursery() as nursery:
            for credit in range(50):
                nursery.start_soon(ask, credit)
    assert sorted(answer.credit for answer in answers) == list(range(50))  # type: ignore[attr-defined]


async def test_answers_may_come_in_any_order(address: str) -> None:
    async def backwards(peer: Peer) -> None:
        calls: list[IncomingCall] = []
        while len(calls) < 3:
            calls += await peer.receive()
        for call in reversed(calls):
            call.reply(call.body)
        await peer.lost.wait()

    order: list[int] = []
    async with connected(address, backwards) as peer:

        async def ask(credit: int) -> None:
            assert await peer.call(Watch(credit)) == Watch(credit)
            order.append(credit)

        async with trio.open_nursery() as nursery:
            for credit in range(3):
                nursery.start_soon(ask, credit)
    assert sorted(order) == [0, 1, 2]


async def test_a_refused_call_raises_the_kind_and_one_line(address: str) -> None:
    async with connected(address) as peer:
        with pytest.raises(RemoteError) as caught:
            await peer.call(GetStatus())
    assert (caught.value.kind, caught.value.message) == ("LookupError", "no status here")
    assert str(caught.value) == "no status here"


async def test_a_call_is_answered_exactly_once(address: str) -> None:
    failures: list[str] = []

    async def twice(peer: Peer) -> None:
        for call in await peer.receive():
            call.reply(Done())
            for again in (lambda: call.reply(Done()), lambda: call.fail(ValueError("x"))):  # noqa: B023
                with pytest.raises(RuntimeError, match="answered before"):
                    again()
                failures.append("refused")
        await peer.lost.wait()

    async with connected(address, twice) as peer:
        assert await peer.call(GetStatus()) == Done()
    assert failures == ["refused", "refused"]


async def test_a_call_that_gets_no_answer_times_out_and_the_late_answer_is_dropped(address: str) -> None:
    late: list[IncomingCall] = []

    async def slow(peer: Peer) -> None:
        while True:
            for call in await peer.receive():
                if isinstance(call.body, GetStatus):
                    late.append(call)
                else:
                    while late:
                        late.pop().reply(StopJob())
                    call.reply(Done())

    async with connected(address, slow) as peer:
        with pytest.raises(trio.TooSlowError):
            await peer.call(GetStatus(), timeout_s=0.05)
        assert await peer.call(Done()) == Done()
        assert await peer.call(Done()) == Done()


async def test_a_cancelled_call_leaves_the_connection_working(address: str) -> None:
    async def choosy(peer: Peer) -> None:
        while True:
            for call in await peer.receive():
                if not isinstance(call.body, GetStatus):
                    call.reply(call.body)

    async with connected(address, choosy) as peer:
        with trio.move_on_after(0.05):
            await peer.call(GetStatus())
        assert await peer.call(GetJobStatus()) == GetJobStatus()


async def test_calls_beyond_the_credit_wait_for_their_turn(address: str) -> None:
    most = 0
    waiting: list[IncomingCall] = []

    async def counting(peer: Peer) -> None:
        nonlocal most
        while True:
            waiting.extend(await peer.receive())
            most = max(most, len(waiting))
            await trio.lowlevel.checkpoint()
            waiting.pop().reply(Done())
            while waiting:
                waiting.pop().reply(Done())

    async with connected(address, counting, limits=Limits(calls_max=3)) as peer:
        async with trio.open_nursery() as nursery:
            for _ in range(20):
                nursery.start_soon(peer.call, GetStatus())
    assert 0 < most <= 3


async def test_what_was_posted_before_the_end_still_arrives(address: str) -> None:
    got: list[object] = []
    over = trio.Event()
    reasons: list[str] = []

    async def collect(peer: Peer) -> None:
        try:
            while True:
                got.extend(await peer.receive())
        finally:
            reasons.append(peer.reason)
            over.set()

    network = Network(wire_codec, TOKEN)
    async with listening(network, address, collect) as actual:
        async with network.connect(actual, role="job", name="j1", expect="rts") as peer:
            for number in range(3000):
                peer.post(Release("j1", (1, number)))
        await over.wait()
    assert got == [Release("j1", (1, number)) for number in range(3000)]
    assert reasons == ["closed by the other side"]


async def test_after_the_end_posts_are_dropped_and_the_rest_says_why(address: str) -> None:
    async def leave(peer: Peer) -> None:
        await peer.receive()

    async with connected(address, leave) as peer:
        peer.post(Interrupt("j1"))
        await peer.lost.wait()
        assert peer.reason == "closed by the other side"
        peer.post(Interrupt("j1"))
        for attempt in (peer.receive, lambda: peer.call(GetStatus())):
            with pytest.raises(PeerGone, match="closed by the other side"):
                await attempt()


async def test_a_loss_ends_calls_that_wait(address: str) -> None:
    async def leave(peer: Peer) -> None:
        await peer.receive()

    async with connected(address, leave) as peer:
        with pytest.raises(PeerGone, match="closed by the other side"):
            await peer.call(GetStatus())


async def test_a_dropped_peer_is_gone_at_both_ends(address: str) -> None:
    other: list[Peer] = []

    async def note(peer: Peer) -> None:
        other.append(peer)
        await echo(peer)

    async with connected(address, note) as peer:
        await peer.call(Done())
        peer.drop("enough")
        with pytest.raises(PeerGone, match="enough"):
            await peer.receive()
        await other[0].lost.wait()
        assert other[0].reason in ("enough", "closed by the other side: enough")


async def test_an_error_in_the_block_comes_out_as_it_is(address: str) -> None:
    with pytest.raises(ExceptionGroup) as caught:  # of the nursery of the test's own listener
        async with connected(address):
            raise KeyError("mine")
    assert caught.group_contains(KeyError, depth=1)


async def test_peer_gone_in_the_block_comes_out_as_it_is(address: str) -> None:
    async def leave(peer: Peer) -> None:
        await peer.receive()

    network = Network(wire_codec, TOKEN)

    async def talk() -> None:
        async with network.connect(actual, role="job", name="j1", expect="rts") as peer:
            peer.post(Done())
            while True:
                await peer.receive()

    async with listening(network, address, leave) as actual:
        with pytest.raises(PeerGone):
            await talk()


async def test_an_error_in_a_handler_ends_the_listener(address: str) -> None:
    async def broken(peer: Peer) -> None:
        await peer.receive()
        raise ZeroDivisionError("a defect")

    async def talk() -> None:
        async with connected(address, broken) as peer:
            peer.post(Done())
            await trio.sleep_forever()

    with pytest.raises(ExceptionGroup) as caught:
        await talk()
    assert caught.group_contains(ZeroDivisionError, depth=1)


async def test_cancelling_the_block_closes_at_once(address: str) -> None:
    async with connected(address) as outer:
        with trio.CancelScope() as scope:
            async with connected(address if address == WEBSOCKET else "memory:second") as peer:
                await peer.call(Done())
                scope.cancel()
                await trio.sleep_forever()
        assert scope.cancelled_caught
        assert peer.lost.is_set()
        assert await outer.call(Done()) == Done()


async def test_only_one_task_receives(address: str) -> None:
    async with connected(address) as peer:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(peer.receive)
            await trio.testing.wait_all_tasks_blocked()
            with pytest.raises(trio.BusyResourceError):
                await peer.receive()
            peer.post(Done())


async def test_a_receiver_that_does_not_keep_up_is_not_fed_without_end(address: str) -> None:
    async def deaf(peer: Peer) -> None:
        await peer.lost.wait()

    limits = Limits(outbox_items_max=200, outbox_bytes_max=2**22, inbox_items_max=50)
    async with connected(address, deaf, limits=limits) as peer:
        for _ in range(100_000):
            peer.post(reply_of(10_000))
            if peer.lost.is_set():
                break
            await trio.lowlevel.checkpoint()
        assert "wait" in peer.reason


async def test_a_slow_receiver_gets_everything(address: str) -> None:
    async def slow(peer: Peer) -> None:
        while True:
            for message in await peer.receive():
                peer.post(message)
            for _ in range(20):
                await trio.lowlevel.checkpoint()

    async with connected(address, slow, limits=Limits(inbox_items_max=10, frame_items_max=7)) as peer:
        for number in range(500):
            peer.post(Release("j1", (1, number)))
        assert await receive_count(peer, 500) == [Release("j1", (1, number)) for number in range(500)]


async def test_nobody_listens(address: str) -> None:
    network = Network(wire_codec, TOKEN)
    async with listening(network, address) as actual:
        pass
    with pytest.raises(ConnectFailed) as caught:
        async with network.connect(actual, role="job", name="j1", expect="rts"):
            raise AssertionError
    assert str(caught.value) == f"nothing listens at {actual}"
    assert caught.value.address == actual


async def test_somebody_else_listens(address: str) -> None:
    network = Network(wire_codec, TOKEN)
    async with listening(network, address) as actual:
        with pytest.raises(AuthenticationFailed) as caught:
            async with network.connect(actual, role="job", name="j1", expect="rif"):
                raise AssertionError
    assert str(caught.value) == f"{actual}: the dialer looks for the role 'rif', the listener is 'rts'"


async def test_an_address_has_one_listener(address: str) -> None:
    network = Network(wire_codec, TOKEN)
    async with listening(network, address) as actual:
        with pytest.raises(ExceptionGroup) as caught:
            async with listening(network, actual):
                raise AssertionError
    (error,) = caught.value.exceptions
    assert isinstance(error, OSError)
    assert "taken" in str(error) or "has the address" in str(error)


async def test_an_address_can_be_listened_at_again(address: str) -> None:
    network = Network(wire_codec, TOKEN)
    async with listening(network, address) as actual:
        async with network.connect(actual, role="job", name="j1", expect="rts") as peer:
            await peer.call(Done())
    async with listening(network, actual) as again:
        assert again == actual
        async with network.connect(actual, role="job", name="j1", expect="rts") as peer:
            assert await peer.call(Done()) == Done()


async def test_many_connections_leave_nothing_behind(address: str) -> None:
    network = Network(wire_codec, TOKEN)
    async with listening(network, address) as actual:
        before = len(os.listdir("/proc/self/fd")), trio.lowlevel.current_statistics().tasks_living
        for number in range(30):
            async with network.connect(actual, role="job", name="j1", expect="rts") as peer:
                if number % 3:
                    await peer.call(Done())
                if number % 2:
                    peer.drop("enough")
        await trio.testing.wait_all_tasks_blocked(0.01)
        assert (len(os.listdir("/proc/self/fd")), trio.lowlevel.current_statistics().tasks_living) == before
