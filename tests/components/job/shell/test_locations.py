"""A job on several run-time systems leaves them all, also when one of them does not answer."""

from __future__ import annotations

import trio
from trio.testing import MockClock

from gspc_trio.components.job.shell.locations import say_goodbye
from gspc_trio.components.rts.messages import EndState, JobEnd, LeaveJob
from gspc_trio.nursery.connections.rpc import IncomingCall, Peer
from tests.nursery.connections.support import MEMORY, Done, connected

END = JobEnd(EndState.FINISHED)


async def test_a_system_that_does_not_answer_keeps_no_end_from_the_others(autojump_clock: MockClock) -> None:
    assert autojump_clock.autojump_threshold == 0.0
    heard: list[object] = []

    async def answer(peer: Peer) -> None:
        while True:
            for call in await peer.receive():
                assert isinstance(call, IncomingCall)
                heard.append(call.body)
                call.reply(Done())

    async def be_silent(peer: Peer) -> None:
        await peer.lost.wait()

    async with connected(MEMORY, be_silent) as slow, connected(MEMORY, answer) as quick:
        with trio.move_on_after(1) as leaving:
            await say_goodbye([slow, quick], END)
    assert leaving.cancelled_caught, "it waits for both"
    assert heard == [LeaveJob(end=END)]


async def test_a_system_that_has_gone_is_left_out() -> None:
    async def answer(peer: Peer) -> None:
        for call in await peer.receive():
            assert isinstance(call, IncomingCall)
            call.reply(Done())
        await peer.lost.wait()

    async def leave_at_once(_: Peer) -> None:
        """End the connection."""

    async with connected(MEMORY, leave_at_once) as gone, connected(MEMORY, answer) as there:
        await gone.lost.wait()
        await say_goodbye([gone, there], END)
