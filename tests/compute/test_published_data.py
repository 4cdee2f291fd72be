"""A task reads published data while somebody publishes other data under the name."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from threading import Thread

import pytest

from gspc_trio.compute.channel import pack
from gspc_trio.compute.data import RESTORE, LayerSerializer
from gspc_trio.iml import local
from gspc_trio.iml.errors import ImlError, UnknownData, UnknownName
from gspc_trio.protocol.values import published_pieces


class Server:
    """The end of a memory server, whose answers are said beforehand."""

    def __init__(self) -> None:
        self.client, self._socket = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)

    def look_up(self, data_id: str) -> None:
        """Answer that this data has the name."""
        self._send("", data_id, 1, [["here", 1]])

    def refuse(self, error: ImlError) -> None:
        """Answer that this is not to be had."""
        self._send(type(error).__name__, str(error))

    def map(self, value: object) -> None:
        """Answer with the bytes of a published value."""
        content = b"".join(published_pieces(value))
        descriptor = os.memfd_create("test")
        os.write(descriptor, content)
        self._send("", len(content), 0, descriptor=descriptor)
        os.close(descriptor)

    def _send(self, *fields: object, descriptor: int = -1) -> None:
        local.send(self._socket, local.pack((1, *fields)), descriptor)

    def close(self) -> None:
        """Close both ends."""
        self.client.close()
        self._socket.close()

    def asked(self) -> list[list[object]]:
        """What the client has asked for, each as the operation and its last field."""
        self._socket.setblocking(False)
        found = []
        while True:
            try:
                operation, _, *fields = local.unpack(self._socket.recv(1 << 16))
            except BlockingIOError:
                return found
            found.append([operation, fields[-1]])


@pytest.fixture
def server() -> Iterator[Server]:
    """One that is closed at the end."""
    server = Server()
    yield server
    server.close()


class Serializer(LayerSerializer):
    """That of a compute process beside such a server."""

    def __init__(self, server: Server) -> None:
        super().__init__("server", "host", "j1", 10)
        self._server = server

    def _connect(self, address: str, job: str) -> local.LocalClient:
        return local.LocalClient(address, job, self._server.client)


def test_data_that_is_replaced_before_it_is_mapped_is_looked_up_again(server: Server) -> None:
    server.look_up("d1")
    server.refuse(UnknownData("there is no data d1"))
    server.look_up("d2")
    server.map("new")
    assert Serializer(server).read_published("model") == "new"
    assert server.asked() == [
        [local.LOOK_UP, "model"],
        [local.BRING, "d1"],
        [local.LOOK_UP, "model"],
        [local.BRING, "d2"],
    ]


def test_a_name_that_nothing_has_is_looked_up_once(server: Server) -> None:
    server.refuse(UnknownName("no data is published under the name 'model'"))
    with pytest.raises(UnknownName, match="'model'"):
        Serializer(server).read_published("model")
    assert server.asked() == [[local.LOOK_UP, "model"]]


def test_data_that_is_replaced_again_and_again_is_not_to_be_had(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(local, "MAP_TRIES", 3)
    for number in range(3):
        server.look_up(f"d{number}")
        server.refuse(UnknownData(f"there is no data d{number}"))
    with pytest.raises(UnknownData, match="no data d2"):
        Serializer(server).read_published("model")


def test_threads_of_a_process_share_a_connection_and_nothing_of_their_tasks() -> None:
    connected: list[LayerSerializer] = []

    class Shared(LayerSerializer):
        def _connect(self, address: str, job: str) -> local.LocalClient:
            connected.append(self)
            if len(connected) == 1:
                other.start()  # which waits now
                other.join(0.05)
            return local.LocalClient(address, job, socket.socket())

    serializer = Shared("server", "host", "j1", 10)
    clients: list[local.LocalClient] = []
    other = Thread(target=lambda: serializer._with_server(clients.append))
    serializer._with_server(clients.append)
    other.join()
    assert len(connected) == 1
    assert clients[0] is clients[1]
    clients[0].close()
    serializer.begin([RESTORE + pack(["d1"])])
    other = Thread(target=serializer.begin, args=([],))
    other.start()
    other.join()
    assert serializer._mine.restored == ["d1"]


def test_what_another_server_had_needs_no_release(server: Server) -> None:
    client = local.LocalClient("server", "j1", server.client)
    client.release("d1")
    assert server.asked() == []
