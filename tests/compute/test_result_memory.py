"""Memory of the layer that a task fills: it comes back as it was, without a copy, and none is left."""

from __future__ import annotations

import os
import threading
from collections.abc import Sequence
from pickle import PickleBuffer
from typing import cast

import msgpack
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gspc_trio.compute.data import RESTORE, LayerSerializer
from gspc_trio.compute.results.memory import REST_BYTES
from gspc_trio.compute.threads import TaskCancelled, interrupt_unless
from gspc_trio.core import current
from gspc_trio.core.current import ComputePlace
from gspc_trio.iml.errors import LayerGone, NoRoom
from gspc_trio.iml.local import LocalClient
from gspc_trio.iml.segment import map_readonly, write_all
from gspc_trio.protocol.values import decode_reference, dumps, gather, is_reference

SIZE = 1000


class Array:
    """Memory that is pickled as arrays are.

    Args:
        buffer: the memory.
    """

    def __init__(self, buffer: memoryview | PickleBuffer) -> None:
        self.view = memoryview(buffer)

    def __reduce_ex__(self, protocol: object) -> tuple[type[Array], tuple[PickleBuffer]]:
        return Array, (PickleBuffer(self.view),)


class Server:
    """What a memory server would do; its memory is never zero at first."""

    def __init__(self) -> None:
        self.writing: dict[str, int] = {}
        self.data: dict[str, int] = {}
        self.copied: list[str] = []
        self.aborted: list[str] = []
        self.gone: list[LayerGone] = []
        self.has_room = True

    def begin(self, size_bytes: int, data_id: str = "") -> tuple[str, int]:
        """Begin data."""
        if not self.has_room:
            raise NoRoom("no room")
        made = data_id or f"d{len(self.data) + len(self.writing) + len(self.aborted)}"
        self.writing[made] = os.memfd_create(made)
        write_all(self.writing[made], [memoryview(b"\xff" * size_bytes)], 0)
        return made, os.dup(self.writing[made])

    def promise(self, data_id: str) -> None:
        """Let it be read."""
        if self.gone:
            raise self.gone.pop()
        self.data[data_id] = self.writing.pop(data_id)

    def abort(self, data_id: str) -> None:
        """Give it up."""
        os.close(self.writing.pop(data_id))
        self.aborted.append(data_id)

    def write(self, pieces: Sequence[memoryview], data_id: str = "", *, promise: bool = False) -> str:
        """Copy data."""
        assert promise is not bool(data_id), "what is made again is waited for"
        made, descriptor = self.begin(sum(piece.nbytes for piece in pieces), data_id)
        write_all(descriptor, list(pieces), 0)
        os.close(descriptor)
        self.promise(made)
        self.copied.append(made)
        return made

    def close(self) -> None:
        """Give up all."""

    def open(self, encoded: bytes) -> object:
        """Return the value of a reference."""
        reference = decode_reference(encoded)
        return gather(reference, memoryview(map_readonly(self.data[reference.data_id], reference.size_bytes)))


class Serializer(LayerSerializer):
    """That of a compute process beside such a server."""

    def __init__(self, server: Server) -> None:
        super().__init__("server", "host", "j1", 10)
        self._server = server

    def _connect(self, address: str, job: str) -> LocalClient:
        del address, job
        return cast(LocalClient, self._server)

    def _pause(self, pause_s: float) -> None:
        pass

    def filled(self, size_bytes: int = SIZE) -> memoryview:
        """Return memory that a task has filled."""
        view = self.memory(size_bytes)
        assert view is not None
        assert len(view) == size_bytes
        view[:] = bytes(n % 251 for n in range(size_bytes))
        return view


def content_of(value: object) -> object:
    """Return what can be compared."""
    if isinstance(value, list | tuple):
        return [content_of(one) for one in value]
    return bytes(value.view) if isinstance(value, Array) else value


SLICES = st.tuples(st.integers(0, SIZE), st.integers(0, SIZE)).map(lambda ends: slice(min(ends), max(ends)))


@settings(max_examples=150)
@given(
    st.lists(st.tuples(st.integers(0, 2), SLICES), min_size=1, max_size=4),
    st.sampled_from(["", "name", "long" * REST_BYTES]),
)
def test_whatever_is_returned_of_it_comes_back(parts: list[tuple[int, slice]], text: str) -> None:
    server = Server()
    serializer = Serializer(server)
    own = memoryview(bytearray(b"o" * SIZE))
    sources = [own, serializer.filled(), serializer.filled()]
    value = (text, [Array(sources[source][part].toreadonly()) for source, part in parts])
    expected = content_of(value)
    encoded = serializer.dumps(value)
    for source in sources:
        source[:] = bytes(SIZE)  # what the task still does with it is seen by nobody
    serializer.task_ended()
    if is_reference(encoded):
        assert content_of(server.open(encoded)) == expected
    assert not server.writing
    most = max(sum(p.stop - p.start for s, p in parts if s == source) for source in (1, 2))
    others = sum(p.stop - p.start for _, p in parts) - most
    if 2 * most >= SIZE and others + len(text) < REST_BYTES // 2:
        assert not server.copied, "the memory was copied"
    if 2 * most < SIZE:
        assert len(server.aborted) == 2, "all of the memory is kept for a small part"


def test_small_memory_and_memory_without_room_are_ordinary() -> None:
    server = Server()
    serializer = Serializer(server)
    assert serializer.memory(9) is None
    assert serializer.memory(1 << 60) is None  # which NumPy refuses
    server.has_room = False
    assert serializer.memory(SIZE) is None
    assert LayerSerializer("", "", "j1", 0).active is False


def test_what_is_not_returned_is_given_up_with_the_task() -> None:
    server = Server()
    serializer = Serializer(server)
    before = len(os.listdir("/proc/self/fd"))
    kept = serializer.filled()
    assert serializer.dumps("none") == dumps("none")
    serializer.task_ended()
    assert server.aborted == ["d0"]
    kept[:4] = b"kept"  # its own
    del kept
    serializer.task_ended()
    assert server.aborted == ["d0"]
    assert len(os.listdir("/proc/self/fd")) == before


@pytest.mark.parametrize("restored", [False, True])
def test_a_server_that_is_gone_and_an_id_that_is_given_have_it_copied(restored: bool) -> None:
    server = Server()
    serializer = Serializer(server)
    if restored:
        serializer.begin([RESTORE + msgpack.packb(["again"])])
    view = serializer.filled()
    if not restored:
        server.gone.append(LayerGone("the memory server of this host is gone"))
    expected = bytes(view)
    encoded = serializer.dumps(Array(view))
    serializer.task_ended()
    assert content_of(server.open(encoded)) == expected
    assert server.copied == ["again" if restored else "d1"]
    assert server.aborted == ["d0"]


def test_a_thread_is_not_interrupted_while_it_speaks_with_the_server(monkeypatch: pytest.MonkeyPatch) -> None:
    asked, answered, stopping = threading.Event(), threading.Event(), threading.Event()
    place = ComputePlace("", "j1")
    undivided = place.undivided = threading.Lock()
    ended: list[object] = []

    class SlowServer(Server):
        def begin(self, size_bytes: int, data_id: str = "") -> tuple[str, int]:
            asked.set()
            answered.wait(10)
            return super().begin(size_bytes, data_id)

    server = SlowServer()
    serializer = Serializer(server)

    def work() -> None:
        try:
            serializer.memory(SIZE)
            stopping.wait(10)
        except TaskCancelled:
            ended.append("interrupted")
        finally:
            serializer.task_ended()

    monkeypatch.setattr(current, "_find", lambda: place)
    thread = threading.Thread(target=work)
    thread.start()
    assert asked.wait(10)
    assert thread.ident is not None
    assert not interrupt_unless(undivided, thread.ident)
    answered.set()
    while not interrupt_unless(undivided, thread.ident):
        pass
    stopping.set()
    thread.join(10)
    assert ended == ["interrupted"]
    assert server.aborted == ["d0"]
