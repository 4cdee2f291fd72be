"""The local protocol of a memory server: packets on a Unix socket, with file descriptors attached.

The socket's name is in the abstract namespace, so that no file is left; both ends see to it that the other
belongs to the same user. Large bytes never go through the socket: a descriptor of their segment does.
"""

from __future__ import annotations

import hmac
import mmap
import os
import secrets
import socket
import struct
from array import array
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from threading import Lock
from typing import Any, TypeAlias

import msgpack

from gspc_trio.iml.errors import ImlError, LayerGone, UnknownData, error_of
from gspc_trio.iml.mapping import make_large_pages, map_segment
from gspc_trio.iml.segment import write_all

MAP_TRIES = 100
"""How often to look up a name whose data is replaced before it is mapped."""

PACKET_BYTES_MAX = 1 << 17
READ_BYTES_MAX = 1 << 16
"""So many bytes are read through the socket at most; more by a descriptor."""

# Requests: (operation, number, ...); each is answered by (number, "", ...) or (number, error, message).
MAP, UNMAP, READ, NEW, WRITER, COMMIT, ABORT, BRING, FETCH, COPY, SEVERAL, LOOK_UP = range(12)
LEND, SHOW, TAKE_BACK, PUBLISH, BRING_RANGE, PUT, SPREAD, SEND, JOIN, PROMISE, SETTLE = range(12, 23)
# MAP data_id part -> size part + descriptor for reading; UNMAP data_id part (no answer);
# READ data_id part offset size -> bytes; NEW job data_id size -> data_id + descriptor for writing;
# WRITER data_id part write_token -> size + descriptor for writing; COMMIT data_id; ABORT data_id;
# BRING job data_id -> size part + descriptor for reading: as MAP of a part that is all of the data;
# FETCH job data_id: so much of it is here after that as BRING needs; COPY job data_id copies;
# SEVERAL requests, each with its number; LOOK_UP name -> data_id size ((host, bytes), ...)
# LEND size -> data_id part address + descriptor for writing: for another host to fetch, once it is shown;
# SHOW data_id part; TAKE_BACK data_id part (no answer); PUBLISH job data_id name: in place of what has it
# BRING_RANGE job data_id offset size -> segment_size id part begin + descriptor for reading: the range begins
# there, UNMAP id part when it is not needed; PUT job data_id offset part: the bytes of what is lent and shown
# SPREAD job part stripes -> data_id: new data of what is lent and shown, a stripe on each of so many hosts
# SEND job host part: what is lent and shown is on that host then, unseen; it goes with the connection
# JOIN job host -> data_id: new data there of all that this connection has sent, one behind the other
# PROMISE data_id: as COMMIT, but others read it a little later; SETTLE job data_id -> promises: they can now,
# if it was promised; with 0 nothing ever is

Fields: TypeAlias = list[Any]
"""What a packet has said, or is to say: plain values, each of the type that its request has."""

_PART, _COUNT, _NAME = "a number", "a number of 0 or more", "a text that is not empty"
_FIELDS: dict[int, tuple[object, ...]] = {
    MAP: (str, _PART),
    UNMAP: (str, _PART),
    READ: (str, _PART, _COUNT, _COUNT),
    NEW: (str, str, _COUNT),
    WRITER: (str, _PART, str),
    COMMIT: (str,),
    ABORT: (str,),
    BRING: (str, str),
    FETCH: (str, str),
    COPY: (str, str, _COUNT),
    LOOK_UP: (str,),
    LEND: (_COUNT,),
    SHOW: (str, _PART),
    TAKE_BACK: (str, _PART),
    PUBLISH: (str, str, _NAME),
    BRING_RANGE: (str, str, _COUNT, _COUNT),
    PUT: (str, str, _COUNT, _PART),
    SPREAD: (str, _PART, _COUNT),
    SEND: (str, _NAME, _PART),
    JOIN: (str, _NAME),
    PROMISE: (str,),
    SETTLE: (str, str),
}
_NUMBER_MAX = 1 << 53

TEXT_BYTES_MAX = 1 << 16
"""A longer name is refused where it is given: its packet would be too long."""


class BadPacket(ValueError):
    """This is no packet of a process that keeps to the rules; the message says why, in one line."""


_ANCILLARY_BYTES = socket.CMSG_SPACE(4)
_INT = struct.Struct("i")
_CREDENTIALS = struct.Struct("3i")


def pack(message: object) -> bytes:
    """Return a packet."""
    packed: bytes = msgpack.packb(message)
    return packed


def unpack(packet: bytes) -> Fields:
    """Return what a packet says; BadPacket if it is none."""
    try:
        message = msgpack.unpackb(packet)
    except Exception as error:  # whatever msgpack makes of hostile bytes
        raise BadPacket("a packet that is not msgpack") from error
    if type(message) is not list or len(message) < 2:
        raise BadPacket("not a packet of a memory server")
    return message


def requests_of(packet: bytes) -> list[Fields]:
    """Return the requests in a packet: operation, number and fields, all of the types that they have.

    Raises:
        BadPacket: one is none.
    """
    message = unpack(packet)
    requests = message[2:] if message[0] == SEVERAL else [message]
    for request in requests:
        if type(request) is not list or len(request) < 2 or type(request[0]) is not int:
            raise BadPacket("a request that is no list of an operation, a number and fields")
        operation, number, *fields = request
        kinds = _FIELDS.get(operation)
        if kinds is None or type(number) is not int:
            raise BadPacket(f"no operation has the number {operation}")
        if len(kinds) != len(fields) or not all(map(_fits, fields, kinds)):
            raise BadPacket(f"operation {operation} with fields that it does not have")
    return requests


def check_request(operation: int, fields: tuple[object, ...]) -> None:
    """Refuse where it is asked what the server would refuse by closing the connection.

    Raises:
        TypeError: a field has another type.
        ValueError: a text is too long, or no text of Unicode.
    """
    for value, kind in zip(fields, _FIELDS[operation], strict=True):
        if not _fits(value, kind):
            raise TypeError(f"a memory server wants {'a text' if kind is str else kind}, not {value!r:.60}")
        if isinstance(value, str) and len(value.encode()) > TEXT_BYTES_MAX:
            raise ValueError(
                f"a memory server takes names of {TEXT_BYTES_MAX} bytes at most, not {value!r:.60}..."
            )


def _fits(value: object, kind: object) -> bool:
    if kind is str or kind is _NAME:
        return type(value) is str and (kind is str or value != "")
    least = 0 if kind is _COUNT else -_NUMBER_MAX
    return type(value) is int and least <= value <= _NUMBER_MAX


def socket_address_of(token: bytes, coordinator: str, host: str) -> str:
    """Return the name of the socket of a host's server: known before the server is there.

    Args:
        token: the secret of the layer, without which the name cannot be guessed.
        coordinator: address of the layer's; one inside a process is no other's, and gets a name by chance.
        host: name of the host in the layer.
    """
    if coordinator.startswith("memory:"):
        return f"gspc-iml-{os.getpid()}-{secrets.token_hex(16)}"
    said = f"{coordinator} {host}".encode("utf-8", "surrogatepass")
    return f"gspc-iml-{hmac.new(token, said, 'sha256').hexdigest()[:32]}"


def socket_name(address: str) -> str:
    """Return the name of a socket in the abstract namespace."""
    return "\0" + address


def is_same_user(connection: socket.socket) -> bool:
    """Take a socket; return whether the other end is a process of this user."""
    found = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
    return bool(_CREDENTIALS.unpack(found)[1] == os.getuid())


def open_socket(address: str) -> socket.socket:
    """Return a socket connected to a memory server of this machine.

    Raises:
        LayerGone: nobody listens there, or another user does.
    """
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET | socket.SOCK_CLOEXEC)
    try:
        connection.connect(socket_name(address))
        if not is_same_user(connection):
            raise LayerGone(f"the memory server {address} belongs to another user")
    except OSError as error:
        connection.close()
        raise LayerGone(f"no memory server answers at {address}: {error.strerror}") from error
    except BaseException:
        connection.close()
        raise
    return connection


def receive(connection: socket.socket, buffer: memoryview) -> tuple[bytes, int]:
    """Take a packet from a socket; return it, b"" at the end, and the descriptor that came with it, or -1.

    Args:
        connection: a socket.
        buffer: of :data:`PACKET_BYTES_MAX`, used again for each: a new one for each costs more than the rest.

    Raises:
        OSError: there is none yet, or the other side is gone.
    """
    size_bytes, ancillary, _, _ = connection.recvmsg_into([buffer], _ANCILLARY_BYTES, socket.MSG_CMSG_CLOEXEC)
    return bytes(buffer[:size_bytes]), take_descriptor(ancillary) if ancillary else -1


def send(connection: socket.socket, packet: bytes, descriptor: int) -> None:
    """Send a packet, and a descriptor with it unless that is -1.

    Raises:
        OSError: the socket takes none now, or the other side is gone.
    """
    if descriptor < 0:
        connection.send(packet)
    else:
        connection.sendmsg([packet], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, _INT.pack(descriptor))])


def packet_buffer() -> memoryview:
    """Return a buffer for :func:`receive`."""
    return memoryview(bytearray(PACKET_BYTES_MAX))


def take_descriptor(ancillary: list[tuple[int, int, bytes]]) -> int:
    """Return the descriptor that came with a packet, or -1."""
    found = [descriptor for _, _, attached in ancillary for descriptor in array("i", attached)]
    for surplus in found[1:]:
        os.close(surplus)
    return found[0] if found else -1


def answer_of(message: Fields) -> Fields:
    """Return the fields of an answer; raise the error that it names."""
    if message[1]:
        raise error_of(message[1], message[2])
    return message[2:]


class LocalClient:
    """A blocking client for a process without trio: one question at a time.

    Args:
        address: of the server of this host.
        job: for which data is made and read.
        connection: to it; None: a socket of its own.
    """

    def __init__(self, address: str, job: str, connection: socket.socket | None = None) -> None:
        self.job = job
        self._lock = Lock()  # several threads of a process may share it
        self._socket = connection if connection is not None else open_socket(address)
        self._number = 0
        self._buffer = packet_buffer()
        self._mapped: dict[str, list[int]] = {}

    def map(self, data_id: str) -> memoryview:
        """Return all bytes of some data, mapped for reading; :meth:`release` when nobody needs them.

        Raises:
            ImlError: there is no such data, or no room here.
        """
        (size_bytes, part, *_), descriptor = self._ask(BRING, self.job, data_id)
        self._note(data_id, part)
        try:
            return map_segment(descriptor, size_bytes)
        finally:
            os.close(descriptor)

    def look_up(self, name: str) -> tuple[str, int, tuple[tuple[str, int], ...]]:
        """Return the id and the size of published data, and (host, bytes) where it lies.

        Raises:
            UnknownName: no data has this name.
            LayerGone: the server is gone.
        """
        (data_id, size_bytes, places, *_), _ = self._ask(LOOK_UP, name)
        return data_id, size_bytes, tuple((host, there) for host, there in places)

    def map_published(self, name: str) -> tuple[str, memoryview]:
        """Return the id of the data that has a name, and its bytes as :meth:`map` does.

        Raises:
            UnknownName: no data has this name.
            ImlError: there is no room here, or the data is replaced again and again.
        """
        for _ in range(MAP_TRIES - 1):
            data_id = self.look_up(name)[0]
            with suppress(UnknownData):  # somebody has published other data under the name meanwhile
                return data_id, self.map(data_id)
        data_id = self.look_up(name)[0]
        return data_id, self.map(data_id)

    def map_range(self, data_id: str, offset: int, size_bytes: int) -> tuple[str, memoryview]:
        """Return the bytes of a range, and under which id to :meth:`release` them.

        What is written to them is seen by nobody else.

        Raises:
            ImlError: there is no such data or range, or no room here.
        """
        (_, held, part, begin, *_), descriptor = self._ask(BRING_RANGE, self.job, data_id, offset, size_bytes)
        self._note(held, part)
        skipped = begin % mmap.ALLOCATIONGRANULARITY
        try:
            mapped = mmap.mmap(
                descriptor, skipped + size_bytes, access=mmap.ACCESS_COPY, offset=begin - skipped
            )
        finally:
            os.close(descriptor)
        return held, memoryview(mapped)[skipped:]

    def put_range(self, data_id: str, offset: int, pieces: list[memoryview]) -> None:
        """Overwrite a range with these pieces, one after another; when this has returned all see it.

        Raises:
            ImlError: there is no such data or range, or no room; the old bytes are as they were then, or the
                data is lost.
        """
        with self._lent(pieces) as part:
            self._ask(PUT, self.job, data_id, offset, part)

    @contextmanager
    def _lent(self, pieces: list[memoryview]) -> Iterator[int]:
        """Lend these pieces, one after another, to the server for the time of a block."""
        (lent_id, part, *_), descriptor = self._ask(LEND, sum(piece.nbytes for piece in pieces))
        try:
            try:
                write_all(descriptor, pieces, 0)
            finally:
                os.close(descriptor)
            self._ask(SHOW, lent_id, part)
            yield part
        finally:
            with suppress(LayerGone):
                self._send(TAKE_BACK, lent_id, part)

    def send(self, host: str, pieces: list[memoryview]) -> None:
        """Have these pieces, one after another, on another host, where nobody sees them.

        Raises:
            ImlError: there is no such host, or no room there.
        """
        with self._lent(pieces) as part:
            self._ask(SEND, self.job, host, part)

    def join(self, host: str) -> str:
        """Make data there of all that was sent, in its order; return its id.

        Raises:
            ImlError: there is no room, or the host is gone; what was sent is gone, too.
        """
        (data_id, *_), _ = self._ask(JOIN, self.job, host)
        return str(data_id)

    def release(self, data_id: str) -> None:
        """Say that a mapping is gone."""
        with self._lock:
            parts = self._mapped.get(data_id)
            if parts is None:
                return  # another server had it, which is gone
            part = parts.pop()
            if not parts:
                del self._mapped[data_id]
        with suppress(LayerGone):  # then it has no pins either
            self._send(UNMAP, data_id, part)

    def write(self, pieces: list[memoryview], data_id: str = "", *, promise: bool = False) -> str:
        """Make data of these pieces, one after another; return its id. It is seen whole or not at all.

        Args:
            pieces: its bytes.
            data_id: of data that was lost, to be had again.
            promise: do not wait until other hosts can read it; see :meth:`promise`.

        Raises:
            ImlError: there is no room, or there is such data already.
        """
        size_bytes = sum(piece.nbytes for piece in pieces)
        made, descriptor = self.begin(size_bytes, data_id)
        try:
            try:
                make_large_pages(descriptor, size_bytes)
                write_all(descriptor, pieces, 0)
            finally:
                os.close(descriptor)
            (self.promise if promise else self.commit)(made)
        except BaseException:
            self.abort(made)
            raise
        return made

    def begin(self, size_bytes: int, data_id: str = "") -> tuple[str, int]:
        """Begin data; return its id and a descriptor for writing. Then :meth:`commit` or :meth:`abort` it.

        Its memory may have been that of other data before.

        Raises:
            ImlError: there is no room, or there is such data already.
        """
        (made, *_), descriptor = self._ask(NEW, self.job, data_id, size_bytes)
        return str(made), descriptor

    def commit(self, data_id: str) -> None:
        """Let data be read that was begun; nobody writes it any more.

        Raises:
            ImlError: this connection has not begun it, or the server is gone.
        """
        self._ask(COMMIT, data_id)

    def promise(self, data_id: str) -> None:
        """Do as :meth:`commit`, but do not wait until other hosts can read it: whoever tells them waits.

        Raises:
            ImlError: as :meth:`commit`.
        """
        self._ask(PROMISE, data_id)

    def abort(self, data_id: str) -> None:
        """Give up data that was begun."""
        self._ask(ABORT, data_id)

    def publish(self, name: str, pieces: list[memoryview], copies: int = 1, stripes: int = 1) -> None:
        """Make data of these pieces, and give it a name, in place of what has it now.

        Args:
            name: of the data.
            pieces: its bytes, one piece after another.
            copies: on so many hosts all of it lies.
            stripes: over so many hosts it is spread, a stretch of it on each.

        Raises:
            ImlError: there is no room.
            TypeError, ValueError: the name is no text, or it is empty or very long.
        """
        check_request(PUBLISH, (self.job, "", name))  # before there is data that has no name
        if stripes > 1:
            with self._lent(pieces) as part:
                (data_id, *_), _ = self._ask(SPREAD, self.job, part, stripes)
        else:
            data_id = self.write(pieces)
        if copies > 1:
            self._ask(COPY, self.job, data_id, copies)
        self._ask(PUBLISH, self.job, data_id, name)

    def cut(self) -> None:
        """End the connection, also for a thread that waits for an answer."""
        with suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        """Close the connection: what is mapped stays so, but may be taken for unused."""
        self._socket.close()

    def _note(self, data_id: str, part: int) -> None:
        """Note that a part is mapped once more."""
        with self._lock:
            self._mapped.setdefault(data_id, []).append(part)

    def _send(self, operation: int, *fields: object) -> None:
        self._number += 1
        try:
            self._socket.send(pack((operation, self._number, *fields)))
        except OSError as error:
            raise LayerGone(f"the memory server of this host is gone: {error.strerror}") from error

    def _ask(self, operation: int, *fields: object) -> tuple[Fields, int]:
        with self._lock:
            return self._ask_alone(operation, *fields)

    def _ask_alone(self, operation: int, *fields: object) -> tuple[Fields, int]:
        check_request(operation, fields)
        self._send(operation, *fields)
        try:
            packet, descriptor = receive(self._socket, self._buffer)
        except OSError as error:
            raise LayerGone(f"the memory server of this host is gone: {error.strerror}") from error
        if not packet:
            raise LayerGone("the memory server of this host is gone")
        try:
            return answer_of(unpack(packet)), descriptor
        except (ImlError, ValueError):
            if descriptor >= 0:
                os.close(descriptor)
            raise
