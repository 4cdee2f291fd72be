"""The acceptor of a listener: it accepts connections, and hands over those on which something was asked for.

Unauthenticated peers may connect by the thousand and send nothing, or half a request. One task looks after
all of them. They have no task, parser or stream of their own, and only a few are looked at in one turn, so
that authenticated peers are served in between.
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
from msgspec import Struct

from gspc_trio.nursery.connections.pending import PendingConnections

log: logging.Logger = logging.getLogger(__name__)

TAKEN_AT_ONCE = 16
"""Connections that are accepted, and silent ones that are looked at, before others have their turn."""
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
_NO_LINGER = struct.pack("ii", 1, 0)
"""Linger for no time: closing forgets the connection at once, here and in the kernel."""

Enough = Callable[[bytes], bool]
"""Whether somebody who has said this may go on."""
Admit = Callable[[trio.SocketStream, float], None]
"""Take over a connection, with the time by which its other side must have proved itself."""


class _Silent(Struct, eq=False):
    """A connection on which nothing was asked for yet."""

    socket: socket.socket
    deadline_s: float


class Acceptor:
    """Accepts connections, and hands over those on which enough was said.

    Args:
        listeners: that are already listened at; closed at the end of :meth:`run`.
        name: of who listens, for people.
        pending: takes a place for each; of too many the oldest is evicted.
        enough: looks at what has arrived, which stays to be received.
        peek_bytes_max: looked at.
        patience_s: how long the other side may take for everything before it has proved itself.
    """

    def __init__(
        self,
        listeners: Iterable[socket.socket],
        name: str,
        pending: PendingConnections,
        enough: Enough,
        *,
        peek_bytes_max: int,
        patience_s: float,
    ) -> None:
        self._listeners = {listener.fileno(): listener for listener in listeners}
        self._name = name
        self._pending = pending
        self._enough = enough
        self._peek_bytes_max = peek_bytes_max
        self._patience_s = patience_s
        self._silent: dict[int, _Silent] = {}
        self._evicted = 0
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
                for silent in list(self._silent.values()):
                    self._forget(silent)

    def _deadline_s(self) -> float:
        """Return when the first of the silent connections has had its time: the one that came first."""
        return next((silent.deadline_s for silent in self._silent.values()), float("inf"))

    def _take_turn(self, ready: select.epoll, admit: Admit) -> float:
        """Do what there is to do, up to a limit; return how long to rest after it."""
        now = trio.current_time()
        while self._deadline_s() <= now:
            silent = next(iter(self._silent.values()))
            log.info("%s let nobody in: no request in %g s", self._name, self._patience_s)
            self._forget(silent)
        found = ready.poll(0, TAKEN_AT_ONCE)
        for descriptor, events in found:
            if descriptor in self._silent:
                self._look_at(self._silent[descriptor], events, ready, admit)
        rests_s = [
            self._accept(self._listeners[descriptor], ready, now)
            for descriptor, _ in found
            if descriptor in self._listeners
        ]
        return max(rests_s, default=0.0)

    def _accept(self, listener: socket.socket, ready: select.epoll, now: float) -> float:
        """Let some in; return how long not to."""
        for _ in range(TAKEN_AT_ONCE):
            if self._pending.is_closed(now):
                return REST_S
            try:
                connection, _ = listener.accept()
            except BlockingIOError:
                break
            except OSError as error:
                if error.errno in _BROKEN_LISTENER:
                    raise
                if error.errno in _SHORTAGES:
                    self._pending.evict_oldest()
                    self._warn(now, f"cannot accept connections: {_why(error)}")
                    return SHORTAGE_S
                continue  # that connection alone has failed
            connection.setblocking(False)
            silent = _Silent(connection, now + self._patience_s)
            self._silent[connection.fileno()] = silent
            self._pending.enter(silent, partial(self._evict, silent), now)
            ready.register(connection.fileno(), select.EPOLLIN | select.EPOLLRDHUP | select.EPOLLET)
        return 0.0

    def _look_at(self, silent: _Silent, events: int, ready: select.epoll, admit: Admit) -> None:
        """Hand a connection over if enough was said on it, forget it if its other side is gone."""
        try:
            said = silent.socket.recv(self._peek_bytes_max, socket.MSG_PEEK)
        except BlockingIOError:
            said = b""
        except OSError:
            self._forget(silent)
            return
        if len(said) == self._peek_bytes_max or (said and self._enough(said)):
            ready.unregister(silent.socket)
            del self._silent[silent.socket.fileno()]
            stream = trio.SocketStream(trio.socket.from_stdlib_socket(silent.socket))
            self._pending.ask(silent, trio.current_time(), stream)
            admit(stream, silent.deadline_s)
        elif events & (select.EPOLLRDHUP | select.EPOLLHUP | select.EPOLLERR):
            self._forget(silent)

    def _evict(self, silent: _Silent) -> None:
        self._evicted += 1
        self._warn(trio.current_time(), f"too many connections at once: {self._evicted} closed so far")
        self._forget(silent)

    def _forget(self, silent: _Silent) -> None:
        del self._silent[silent.socket.fileno()]
        self._pending.leave(silent)
        with suppress(OSError):
            silent.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _NO_LINGER)
        silent.socket.close()

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
