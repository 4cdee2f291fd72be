"""Connections whose other end is gone without a word: a forwarder on the loopback interface that forgets."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from attrs import evolve

from gspc_trio.components.provision.shell.strategies import ENTRY_POINTS, LocalStrategy
from gspc_trio.components.provision.strategy import RifOrder

CHUNK_BYTES = 64 * 1024

STRATEGY = "forwarded"
"""Name of the strategy that :func:`offer_strategy` offers."""


class Forwarded(LocalStrategy):
    """Starts RIFs on this host that reach the run-time system through a forwarder, at the option ``port``."""

    async def run(self, order: RifOrder) -> str:
        """Run the process until it ends or this is cancelled."""
        address = f"ws://127.0.0.1:{order.options['port']}"
        return await super().run(evolve(order, rts_addresses=(address,)))


def offer_strategy(folder: Path) -> None:
    """Have run-time systems with this folder in their PYTHONPATH offer the strategy, as a package would."""
    about = folder / "forwarded-1.dist-info"
    about.mkdir()
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: forwarded\nVersion: 1\n")
    entry = f"{STRATEGY} = {Forwarded.__module__}:{Forwarded.__name__}"
    (about / "entry_points.txt").write_text(f"[{ENTRY_POINTS}]\n{entry}\n")


class Forwarder:
    """Forwards connections to another port until it forgets them: then both ends hear nothing more.

    Nothing is closed then, as when a host or a router between the ends has been started again.

    Args:
        target: returns the port to forward to, at each new connection.

    Attributes:
        port: where it listens.
    """

    def __init__(self, target: Callable[[], int]) -> None:
        self._target = target
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self._age = 0
        self._sockets: list[socket.socket] = []
        self._lock = threading.Lock()
        threading.Thread(target=self._accept, daemon=True).start()

    def forget(self) -> int:
        """Forward nothing more of the connections there are; return their number. New ones are forwarded."""
        with self._lock:
            self._age += 1
            return sum(one.fileno() >= 0 for one in self._sockets) // 2

    def close(self) -> None:
        """Close everything."""
        with self._lock:
            for one in (self._listener, *self._sockets):
                with suppress(OSError):
                    one.shutdown(socket.SHUT_RDWR)
                one.close()

    def _accept(self) -> None:
        while True:
            try:
                here, _ = self._listener.accept()
            except OSError:
                return
            try:
                there = socket.create_connection(("127.0.0.1", self._target()))
            except OSError:
                here.close()
                continue
            with self._lock:
                self._sockets = [one for one in self._sockets if one.fileno() >= 0]
                self._sockets += [here, there]
                age = self._age
            for source, to in ((here, there), (there, here)):
                threading.Thread(target=self._forward, args=(source, to, age), daemon=True).start()

    def _forward(self, source: socket.socket, to: socket.socket, age: int) -> None:
        with suppress(OSError):
            while data := source.recv(CHUNK_BYTES):
                if self._age != age:
                    return
                to.sendall(data)
        if self._age == age:
            for one in (source, to):
                with suppress(OSError):
                    one.shutdown(socket.SHUT_RDWR)
            source.close()
