"""The channel of tasks without a process behind it: packets, room, and exactness of what is taken back."""

from __future__ import annotations

import os
import socket
from array import array
from collections.abc import AsyncIterator
from typing import Any

import pytest
import trio
from attrs import define, field
from hypothesis import given, settings
from hypothesis import strategies as st

from gspc_trio.components.worker.messages import Submission
from gspc_trio.components.worker.shell.compute_tasks import CodeTimes, TaskChannel
from gspc_trio.compute.channel import DEFINE, LARGE, PACKET_BYTES_MAX, PACKET_TASKS_MAX, RUN, unpack
from gspc_trio.core.task import TaskOptions

LARGE_BYTES = PACKET_BYTES_MAX + 1


@define(eq=False)
class FarEnd:
    """What a compute process does with its end of the channel: reads packets."""

    tasks: socket.socket
    defined: set[int] = field(factory=set)
    packets: list[list[tuple[int, int]]] = field(factory=list)

    def read(self) -> bool:
        """Read one packet, if there is one; every task in it must have its code by then."""
        try:
            data, ancillary, _, _ = self.tasks.recvmsg(
                PACKET_BYTES_MAX, socket.CMSG_SPACE(4), socket.MSG_DONTWAIT
            )
        except BlockingIOError:
            return False
        items = unpack(data)
        for _, _, attached in ancillary:
            (descriptor,) = array("i", attached)
            items = [self._read_large(items[0], descriptor)]
        self.packets.append([])
        for kind, first, second, *rest in items:
            if kind == DEFINE:
                assert second == code_of(first)
                self.defined.add(first)
            else:
                assert kind == RUN
                assert rest[0] in self.defined
                self.packets[-1].append((first, second))
        return True

    def _read_large(self, head: list[Any], descriptor: int) -> list[Any]:
        with open(descriptor, "rb") as file:
            file.seek(0)
            item = unpack(file.read())
        assert head == [LARGE, *item[:2], head[3]]
        assert head[3] == (item[2] if item[0] == RUN else 0)
        return item  # type: ignore[no-any-return]

    def read_all(self) -> list[tuple[int, int]]:
        while self.read():
            pass
        return [key for packet in self.packets for key in packet]


def code_of(code_id: int) -> bytes:
    """Code 9 is a long one."""
    return bytes((code_id,)) * (LARGE_BYTES if code_id == 9 else 5)


@define(eq=False)
class Channel:
    near: TaskChannel
    far: FarEnd
    times: CodeTimes


def open_channel(nursery: trio.Nursery) -> Channel:
    tasks, unread = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    tasks.setblocking(False)
    times = CodeTimes()
    near = TaskChannel(nursery, tasks, unread, times)
    for code_id in (1, 2, 3, 9):
        near.define(code_id, code_of(code_id))
    return Channel(near, FarEnd(unread.dup()), times)


@pytest.fixture
async def channel() -> AsyncIterator[Channel]:
    async with trio.open_nursery() as nursery:
        opened = open_channel(nursery)
        yield opened
        opened.near.close()
        opened.far.tasks.close()


def tasks(first: int, count: int, code_id: int = 1, *arguments: bytes) -> list[Submission]:
    return [Submission(number, 1, code_id, arguments) for number in range(first, first + count)]


async def test_tasks_of_unknown_duration_travel_alone(channel: Channel) -> None:
    channel.near.hand(tasks(1, 3))
    channel.far.read_all()
    assert channel.far.packets == [[(1, 1)], [(2, 1)], [(3, 1)]]


async def test_a_packet_holds_about_a_third_of_a_millisecond_of_work(channel: Channel) -> None:
    channel.times.note(1, 0.00009)
    channel.times.note(2, 0.000_000_1)
    channel.times.note(3, 0.5)
    channel.near.hand([*tasks(1, 4, 1), *tasks(5, 2, 3), *tasks(7, 300, 2)])
    channel.far.read_all()
    assert [len(packet) for packet in channel.far.packets] == [3, 1, 1, 1, PACKET_TASKS_MAX, 44]


async def test_a_packet_is_never_longer_than_the_limit_and_large_items_go_as_files(channel: Channel) -> None:
    channel.times.note(1, 0.000_000_1)
    channel.near.hand(
        [
            *tasks(1, 3, 1, bytes(30_000)),
            *tasks(4, 1, 1, bytes(LARGE_BYTES)),
            *tasks(5, 1, 1, bytes(40_000), bytes(40_000)),
        ]
    )
    assert channel.far.read_all() == [(number, 1) for number in range(1, 6)]
    assert [len(packet) for packet in channel.far.packets] == [2, 1, 1, 1]


async def test_a_full_channel_keeps_the_rest_and_sends_it_when_there_is_room(channel: Channel) -> None:
    channel.near.hand(tasks(1, 3000))
    assert 0 < len(channel.far.read_all()) < 3000
    with trio.fail_after(60):
        while len(channel.far.read_all()) < 3000:
            await trio.lowlevel.checkpoint()
    assert channel.far.read_all() == [(number, 1) for number in range(1, 3001)]


async def test_more_attached_files_than_the_kernel_allows_wait(channel: Channel) -> None:
    channel.near.hand(tasks(1, 100, 1, bytes(LARGE_BYTES)))
    with trio.fail_after(60):
        while len(channel.far.read_all()) < 100:
            await trio.lowlevel.checkpoint()


async def test_code_that_was_taken_back_unread_is_sent_again(channel: Channel) -> None:
    for code_id in (1, 9):
        channel.near.hand(tasks(1, 2, code_id))
        assert channel.near.retract() == ((1, 1), (2, 1))
        channel.near.hand(tasks(3, 1, code_id))
        assert channel.far.read_all()[-1] == (3, 1)


async def test_taking_back_leaves_no_open_files(channel: Channel) -> None:
    before = len(os.listdir("/proc/self/fd"))
    channel.near.hand(tasks(1, 20, 9, bytes(LARGE_BYTES)))
    assert len(channel.near.retract()) == 20
    assert len(os.listdir("/proc/self/fd")) == before


async def test_nothing_is_taken_back_after_the_end(channel: Channel) -> None:
    channel.near.hand(tasks(1, 3))
    channel.near.close()
    assert channel.near.retract() == ()


steps = st.one_of(
    st.tuples(
        st.just("hand"),
        st.integers(1, 40),
        st.sampled_from([1, 2, 3, 9]),
        st.sampled_from([0, 20_000, LARGE_BYTES]),
    ),
    st.tuples(st.just("read"), st.integers(1, 5)),
    st.tuples(st.just("retract")),
    st.tuples(st.just("learn"), st.sampled_from([1, 2, 3, 9]), st.floats(0, 0.001)),
)


@settings(max_examples=60)
@given(st.lists(steps, max_size=25))
def test_every_task_is_either_read_once_or_taken_back(script: list[tuple[Any, ...]]) -> None:
    async def play() -> None:
        async with trio.open_nursery() as nursery:
            channel = open_channel(nursery)
            handed: list[tuple[int, int]] = []
            taken: list[tuple[int, int]] = []
            for verb, *details in script:
                if verb == "hand":
                    count, code_id, size = details
                    new = tasks(len(handed) + 1, count, code_id, bytes(size))
                    channel.near.hand(new)
                    handed += [(task.task_id, 1) for task in new]
                elif verb == "read":
                    for _ in range(details[0]):
                        channel.far.read()
                        await trio.lowlevel.checkpoint()
                elif verb == "retract":
                    waiting = (
                        set(handed) - set(taken) - {key for packet in channel.far.packets for key in packet}
                    )
                    back = channel.near.retract()
                    assert set(back) == waiting
                    assert list(back) == sorted(back)
                    taken += back
                    assert not channel.far.read()
                else:
                    channel.times.note(*details)
            with trio.fail_after(60):
                while len(read := channel.far.read_all()) + len(taken) < len(handed):
                    await trio.lowlevel.checkpoint()
            assert sorted([*read, *taken]) == handed
            assert read == sorted(read)
            channel.near.close()
            channel.far.tasks.close()

    trio.run(play)


async def test_options_travel_along(channel: Channel) -> None:
    options = TaskOptions(memory_bytes=5, may_rerun=False)
    channel.near.hand([Submission(1, 2, 3, (b"a", b"b"), options)])
    items = unpack(channel.far.tasks.recv(PACKET_BYTES_MAX))
    assert items == [[DEFINE, 3, code_of(3)], [RUN, 1, 2, 3, [b"a", b"b"], 5, False]]
