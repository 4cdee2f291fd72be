"""A memory server in a process of its own: ``python -m gspc_trio.iml.shell.iml_process``.

A RIF or an application starts it. It reads its order, a line of JSON, on standard input, and answers
with one on standard output. It ends when its standard input does: with the process that started it.
"""

from __future__ import annotations

import gc
import logging
import os
import resource
import signal
import sys
from functools import partial

import trio

from gspc_trio.components.wire.codec import wire_codec
from gspc_trio.iml.errors import ImlError, NoRoom
from gspc_trio.iml.messages import ServerOrder, ServerStarted
from gspc_trio.iml.shell.coordinator import CoordinatorService
from gspc_trio.iml.shell.server import ImlServer
from gspc_trio.nursery.connections.network import Network, address_towards
from gspc_trio.nursery.scopes.scope import leaves
from gspc_trio.protocol.plain import from_json, to_json

LISTEN = "ws://127.0.0.1:0"
INSIDE = "memory:iml"


async def _run(order: ServerOrder) -> None:
    network = Network(wire_codec, order.token, credentials=order.credentials)
    host, directory, spill_bytes = order.host, order.quota.spill_directory, order.quota.spill_bytes
    if spill_bytes and directory and not os.access(directory, os.W_OK | os.X_OK):
        raise NoRoom(f"host {host} cannot spill: it cannot write to the directory {directory}")
    server = ImlServer(network, host, order.quota.memory_bytes, spill_bytes, directory)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(_end_with_stdin, nursery.cancel_scope)
        nursery.start_soon(_end_with_signal, nursery.cancel_scope)
        address = order.coordinator
        listen = order.listen or (address_towards(address) if address else LISTEN)
        if not address:
            coordinator = CoordinatorService(network)
            await nursery.start(partial(coordinator.run, listen, inside=INSIDE))
            address = coordinator.address
        inside = "" if order.coordinator else INSIDE
        await nursery.start(partial(server.run, listen, address, inside=inside))
        _say(ServerStarted(address, server.local_address))
        await server.gone.wait()
        nursery.cancel_scope.cancel()


async def _end_with_stdin(scope: trio.CancelScope) -> None:
    stdin = trio.lowlevel.FdStream(0)
    while await stdin.receive_some(4096):
        pass
    scope.cancel()


async def _end_with_signal(scope: trio.CancelScope) -> None:
    with trio.open_signal_receiver(signal.SIGTERM, signal.SIGINT) as signals:
        async for _ in signals:
            scope.cancel()


def _say(answer: ServerStarted) -> None:
    print(to_json(answer), flush=True)


def _read_line() -> bytes:
    """Read no further than the line: what follows on standard input is its end, and that is waited for."""
    line = b""
    while not line.endswith(b"\n"):
        byte = os.read(0, 1)
        if not byte:
            return b""
        line += byte
    return line


def main() -> int:
    """Run a memory server as standard input says; return the exit status."""
    line = _read_line()
    if not line:
        return 1
    logging.basicConfig(level=logging.WARNING, stream=sys.stderr, format="gspc-iml: %(message)s")
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    gc.freeze()
    gc.set_threshold(50_000, 20, 100)
    try:
        trio.run(_run, from_json(line, ServerOrder))
    except (OSError, ImlError, BaseExceptionGroup) as error:
        problem = next((e for e in leaves(error) if isinstance(e, ImlError | OSError)), None)
        if problem is None:
            raise
        kind = type(problem).__name__ if isinstance(problem, ImlError) else "LayerGone"
        _say(ServerStarted(problem=(kind, str(problem))))
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
