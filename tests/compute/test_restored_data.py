"""A task that runs again for lost data makes that data, under the same ids, and nothing else."""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

import msgpack

from gspc_trio.compute.data import RESTORE, LayerSerializer
from gspc_trio.iml.errors import NoRoom
from gspc_trio.iml.local import LocalClient
from gspc_trio.protocol.values import decode_reference, is_reference, loads


class Server:
    """What a memory server of so many bytes would do.

    Args:
        room_bytes: how many.
    """

    def __init__(self, room_bytes: int) -> None:
        self.room_bytes = room_bytes
        self.data: dict[str, bytes] = {}

    def write(self, pieces: Sequence[memoryview], data_id: str = "", *, promise: bool = False) -> str:
        """Keep data, under an id of its own if none is given."""
        assert promise is not bool(data_id), "what is made again is waited for"
        content = b"".join(pieces)
        if len(content) > self.room_bytes:
            raise NoRoom("no room")
        self.room_bytes -= len(content)
        data_id = data_id or f"d{len(self.data)}"
        self.data[data_id] = content
        return data_id


class Serializer(LayerSerializer):
    """That of a compute process beside such a server."""

    def __init__(self, server: Server) -> None:
        super().__init__("server", "host", "j1", 10)
        self._server = server

    def _connect(self, address: str, job: str) -> LocalClient:
        del address, job
        return cast(LocalClient, self._server)


def test_a_value_that_had_no_room_takes_no_id_of_another_one() -> None:
    large, small = b"x" * 100, b"y" * 20
    first = Server(50)
    encoded = [Serializer(first).dumps(value) for value in (large, b"z", small)]
    assert [is_reference(data) for data in encoded] == [False, False, True]
    made = tuple(decode_reference(data).data_id if is_reference(data) else "" for data in encoded)
    again = Server(1000)
    serializer = Serializer(again)
    assert serializer.begin([b"argument", RESTORE + msgpack.packb(made)]) == [b"argument"]
    anew = [serializer.dumps(value) for value in (large, b"z", small)]
    assert again.data == first.data
    assert [loads(data) for data in anew[:2]] == [large, b"z"]
    assert anew[2] == encoded[2]
