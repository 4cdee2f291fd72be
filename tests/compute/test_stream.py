"""Outputs that a task writes as files: they leave in chunks, and are seen whole or not at all."""

from __future__ import annotations

import io
import threading
from collections.abc import Iterator
from typing import cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gspc_trio import stream
from gspc_trio.compute.data import RESTORE, LayerSerializer
from gspc_trio.compute.results.stream import CHUNK_BYTES, StreamFile
from gspc_trio.core.published import READER_MARK, offer
from gspc_trio.iml.errors import LayerGone, NoRoom
from gspc_trio.iml.local import LocalClient
from gspc_trio.protocol.values import decode_reference, dumps, loads

READER = READER_MARK + b"far"


class Server:
    """What memory servers would do for one task."""

    def __init__(self) -> None:
        self.sent: list[bytes] = []
        self.data: dict[str, tuple[str, bytes]] = {}
        self.connections = 0
        self.room_chunks = 1000
        self.has_sent = threading.Semaphore(0)

    def send(self, host: str, pieces: list[memoryview]) -> None:
        """Take a chunk."""
        assert host == "far"
        if len(self.sent) == self.room_chunks:
            raise NoRoom("no room")
        self.sent.append(b"".join(pieces))
        self.has_sent.release()

    def join(self, host: str) -> str:
        """Make data of the chunks."""
        sent, self.sent = self.sent, []
        return self._keep(host, b"".join(sent))

    def write(self, pieces: list[memoryview], data_id: str = "", *, promise: bool = False) -> str:
        """Make data on this host."""
        assert promise is not bool(data_id), "what is made again is waited for"
        return self._keep("here", b"".join(pieces), data_id)

    def _keep(self, host: str, content: bytes, data_id: str = "") -> str:
        made = data_id or f"d{len(self.data)}"
        self.data[made] = host, content
        return made

    def cut(self) -> None:
        """End the connection."""
        self.room_chunks = len(self.sent)

    def close(self) -> None:
        """The process goes: what it had sent does, too."""
        self.connections -= 1
        self.sent.clear()


class Serializer(LayerSerializer):
    """One with that server."""

    def __init__(self, server: Server) -> None:
        super().__init__("somewhere", "here", "j1", 1000)
        self.server = server

    def _connect(self, address: str, job: str) -> LocalClient:
        del address, job
        if self.server.connections < 0:
            raise LayerGone("gone")
        self.server.connections += 1
        return cast(LocalClient, self.server)


@pytest.fixture(autouse=True)
def _no_layer_afterwards() -> Iterator[None]:
    yield
    offer(cast(Serializer, None))


@pytest.fixture
def task() -> Iterator[Serializer]:
    serializer = Serializer(Server())
    offer(serializer)
    yield serializer
    serializer.task_ended()


def chunks(count: int) -> list[bytes]:
    return [bytes([number + 1]) * CHUNK_BYTES for number in range(count)]


def test_chunks_leave_while_the_task_writes_and_become_one_value_there(task: Serializer) -> None:
    assert task.begin([b"a", READER]) == [b"a"]
    with stream("rows") as file:
        file.write(chunks(2)[0] + b"\2" * 10)
        assert task.server.has_sent.acquire(timeout=60)
        assert task.server.sent == chunks(1)
        file.write(memoryview(b"end"))
        assert file.tell() == CHUNK_BYTES + 13
        assert task.server.data == {}
    reference = decode_reference(task.dumps(file))
    content = chunks(1)[0] + b"\2" * 10 + b"end"
    assert task.server.data == {reference.data_id: ("far", content)}
    assert task.server.connections == 0
    assert (reference.size_bytes, reference.places) == (len(content), (("far", len(content)),))
    with pytest.raises(ValueError, match="closed"):
        file.write(b"more")


@given(st.lists(st.integers(0, 2 * CHUNK_BYTES), max_size=4), st.integers(0, 3), st.booleans())
def test_a_reader_sees_all_of_it_whatever_the_other_host_takes(
    sizes: list[int], room_chunks: int, is_planned: bool
) -> None:
    task = Serializer(Server())
    task.server.room_chunks = room_chunks
    offer(task)
    task.begin([READER] if is_planned else [])
    file = stream("rows")
    content = b""
    for number, size in enumerate(sizes):
        written = bytes([number]) * size
        assert file.write(written) == size
        content += written
    value = task.dumps(file)
    if len(content) < 1000:
        assert loads(value) == content
    else:
        host, there = task.server.data[decode_reference(value).data_id]
        assert there == content
        fits = -(-len(content) // CHUNK_BYTES) <= room_chunks
        assert (host == "far") == (is_planned and fits and len(content) >= CHUNK_BYTES)
    task.task_ended()
    assert task.server.sent == []


def test_a_chunk_of_several_writes_leaves_whole(task: Serializer) -> None:
    task.begin([READER])
    file = stream("rows")
    for _ in range(2):
        file.write(b"\1" * (600 << 10))
    assert task.server.has_sent.acquire(timeout=60)
    assert task.server.sent == chunks(1)


def test_what_a_task_does_not_return_is_dropped(task: Serializer) -> None:
    task.begin([READER])
    file = cast(StreamFile, stream("rows"))
    file.write(chunks(1)[0])
    assert task.server.has_sent.acquire(timeout=60)
    task.task_ended()
    assert (task.server.data, task.server.sent, task.server.connections) == ({}, [], 0)
    assert not any(thread.name == "gspc-stream" for thread in threading.enumerate())
    with pytest.raises(ValueError, match="a task that has ended"):
        file.content()


def test_data_that_is_made_again_stays_here_under_its_id(task: Serializer) -> None:
    import msgpack

    assert task.begin([b"a", RESTORE + msgpack.packb(["d7"]), READER]) == [b"a"]
    with stream("rows") as file:
        file.write(chunks(1)[0])
    assert decode_reference(task.dumps(file)).data_id == "d7"
    assert task.server.data == {"d7": ("here", chunks(1)[0])}


def test_a_stream_is_a_file_for_text_too_and_travels_within_other_values_as_bytes(task: Serializer) -> None:
    task.begin([])
    file = stream("rows")
    print("one", 2, file=io.TextIOWrapper(file, write_through=True))
    assert loads(dumps({"rows": file})) == {"rows": b"one 2\n"}
    with pytest.raises(OSError, match="read"):
        file.read()


def test_outside_of_tasks_there_is_no_stream() -> None:
    offer(cast(Serializer, None))
    with pytest.raises(RuntimeError, match=r"stream\('rows'\) is for the code of tasks"):
        stream("rows")
