"""Where those who connect wait until they have asked for something, which costs next to nothing.

Strangers may come by the thousand and say nothing, or half a word. One task looks after all of them: no task,
parser or stream of their own, and only so much of it at a time, so that those who have proved themselves are
served in between.
"""

from __future__ import annotations

import errno
import logging
import os
import resource
import select
import socket
import struct
from collections.abc import Callable, Iterable
from contextlib import suppress
from functools import partial

import trio
from attrs import define

from gspc_trio.nursery.connections.gate import Vestibule

log = logging.getLogger(__name__)

TAKEN_AT_ONCE = 16
"""Connections that are accepted, and strangers that are looked at, before others have their turn."""
REST_S = 0.005
"""How long nobody is accepted when places are short: a crowd is met in few turns, not in one for each."""
SHORTAGE_S = 0.1
"""How long nobody is accepted when this process or its host lacks descriptors or memory."""
WARNING_S = 10.0
"""Of a crowd or a shortage is told at most so often."""

_SHORTAGES = {errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.ENOBUFS}
_BROKEN_LISTENER = {errno.EBADF, errno.EINVAL, errno.ENOTSOCK, errno.EOPNOTSUPP, errno.EFAULT}
_TLS_HANDSHAKE = 22
_TLS_HEAD_BYTES = 5
_NO_FAREWELL = struct.pack("ii", 1, 0)
"""Linger for no time: closing forgets the connection at once, here and in the kernel."""

Enough = Callable[[bytes], bool]
"""Whether somebody who has said this may go on."""
Admit = Callable[[trio.SocketStream, float], None]
"""Take over a connection, with the time by which its other side must have proved itself."""


@define(eq=False)
class _Stranger:
    """A connection on which nothing was asked for yet."""

    socket: socket.socket
    deadline_s: float


class Lobby:
    """Accepts connections, and hands over those on which enough was said.

    Args:
        listeners: that are already listened at; closed at the end of :meth:`run`.
        name: of who listens, for people.
        vestibule: takes a place for each; of too many the oldest is thrown out.
        enough: looks at what has arrived, which stays to be received.
        peek_bytes_max: looked at.
        patience_s: how long a stranger may take for everything before it has proved itself.
    """

    def __init__(
        self,
        listeners: Iterable[socket.socket],
        name: str,
        vestibule: Vestibule,
        enough: Enough,
        *,
        peek_bytes_max: int,
        patience_s: float,
    ) -> None:
        self._listeners = {listener.fileno(): listener for listener in listeners}
        self._name = name
        self._vestibule = vestibule
        self._enough = enough
        self._peek_bytes_max = peek_bytes_max
        self._patience_s = patience_s
        self._strangers: dict[int, _Stranger] = {}
        self._thrown_out = 0
        self._told_s = float("-inf")

    async def run(self, admit: Admit) -> None:
        """Serve until cancelled.

        Raises:
            OSError: a listener is broken.
        """
        with select.epoll() as ready:
            try:
                for descriptor, listener in self._listeners.items():
                    listener.setblocking(False)
                    ready.register(descriptor, select.EPOLLIN)
                while True:
                    with trio.move_on_at(self._deadline_s()):
                        await trio.lowlevel.wait_readable(ready.fileno())
                    if rest_s := self._take_turn(ready, admit):
                        await trio.sleep(rest_s)
            finally:
                for listener in self._listeners.values():
                    listener.close()
                for stranger in list(self._strangers.values()):
                    self._forget(stranger)

    def _deadline_s(self) -> float:
        """Return when the first of the strangers has had its time: the one that came first."""
        return next((stranger.deadline_s for stranger in self._strangers.values()), float("inf"))

    def _take_turn(self, ready: select.epoll, admit: Admit) -> float:
        """Do what there is to do, up to a limit; return how long to rest after it."""
        now = trio.current_time()
        while self._deadline_s() <= now:
            stranger = next(iter(self._strangers.values()))
            log.info("%s let nobody in: no request in %g s", self._name, self._patience_s)
            self._forget(stranger)
        found = ready.poll(0, TAKEN_AT_ONCE)
        for descriptor, events in found:
            if descriptor in self._strangers:
                self._look_at(self._strangers[descriptor], events, ready, admit)
        rests_s = [
            self._accept(self._listeners[descriptor], ready, now)
            for descriptor, _ in found
            if descriptor in self._listeners
        ]
        return max(rests_s, default=0.0)

    def _accept(self, listener: socket.socket, ready: select.epoll, now: float) -> float:
        """Let some in; return how long not to."""
        for _ in range(TAKEN_AT_ONCE):
            if self._vestibule.is_closed(now):
                return REST_S
            try:
                connection, _ = listener.accept()
            except BlockingIOError:
                break
            except OSError as error:
                if error.errno in _BROKEN_LISTENER:
                    raise
                if error.errno in _SHORTAGES:
                    self._vestibule.throw_out_oldest()
                    self._warn(now, f"cannot accept connections: {_why(error)}")
                    return SHORTAGE_S
                continue  # that connection alone has failed
            connection.setblocking(False)
            stranger = _Stranger(connection, now + self._patience_s)
            self._strangers[connection.fileno()] = stranger
            self._vestibule.enter(stranger, partial(self._throw_out, stranger), now)
            ready.register(connection.fileno(), select.EPOLLIN | select.EPOLLRDHUP | select.EPOLLET)
        return 0.0

    def _look_at(self, stranger: _Stranger, events: int, ready: select.epoll, admit: Admit) -> None:
        """Hand a connection over if enough was said on it, forget it if its other side is gone."""
        try:
            said = stranger.socket.recv(self._peek_bytes_max, socket.MSG_PEEK)
        except BlockingIOError:
            said = b""
        except OSError:
            self._forget(stranger)
            return
        if len(said) == self._peek_bytes_max or (said and self._enough(said)):
            ready.unregister(stranger.socket)
            del self._strangers[stranger.socket.fileno()]
            stream = trio.SocketStream(trio.socket.from_stdlib_socket(stranger.socket))
            self._vestibule.ask(stranger, trio.current_time(), stream)
            admit(stream, stranger.deadline_s)
        elif events & (select.EPOLLRDHUP | select.EPOLLHUP | select.EPOLLERR):
            self._forget(stranger)

    def _throw_out(self, stranger: _Stranger) -> None:
        self._thrown_out += 1
        self._warn(trio.current_time(), f"too many strangers at once: {self._thrown_out} thrown out so far")
        self._forget(stranger)

    def _forget(self, stranger: _Stranger) -> None:
        del self._strangers[stranger.socket.fileno()]
        self._vestibule.leave(stranger)
        with suppress(OSError):
            stranger.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _NO_FAREWELL)
        stranger.socket.close()

    def _warn(self, now: float, what: str) -> None:
        if now >= self._told_s + WARNING_S:
            self._told_s = now
            log.warning("%s: %s", self._name, what)


def asks_for_websocket(said: bytes) -> bool:
    """Return whether this is a whole HTTP request."""
    return b"\r\n\r\n" in said


def asks_for_encryption(said: bytes) -> bool:
    """Return whether this is a whole first record of TLS, or nothing of the kind: the library says what."""
    return said[0] != _TLS_HANDSHAKE or (
        len(said) >= _TLS_HEAD_BYTES
        and len(said) >= _TLS_HEAD_BYTES + int.from_bytes(said[3:_TLS_HEAD_BYTES], "big")
    )


def _why(error: OSError) -> str:
    """Return what is short, with its limit where there is one."""
    if error.errno == errno.EMFILE:
        soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
        return f"{os.strerror(errno.EMFILE).lower()}, the limit of this process is {soft} (ulimit -n)"
    return (error.strerror or str(error)).lower()
