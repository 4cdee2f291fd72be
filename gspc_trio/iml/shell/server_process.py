"""A memory server in a process of its own, as seen by whoever starts it."""

from __future__ import annotations

import secrets
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import trio
from msgspec import Struct
from msgspec.structs import replace

from gspc_trio.iml.data_layer import DataLayer
from gspc_trio.iml.errors import LayerGone, error_of
from gspc_trio.iml.messages import ServerOrder, ServerStarted
from gspc_trio.iml.quota import Quota
from gspc_trio.nursery.scopes.process import open_process
from gspc_trio.protocol.plain import from_json, to_json

START_S = 30.0
"""How long a server may take to start."""


class ServerProcess(Struct, frozen=True):
    """A memory server in a process of its own.

    Attributes:
        layer: how it is reached.
        host: its name in the layer.
        local_address: of its socket for processes of this machine.
        wait: returns when it has ended.
    """

    layer: DataLayer
    host: str
    local_address: str
    wait: Callable[[], Awaitable[object]]


@asynccontextmanager
async def open_server_process(
    host: str,
    quota: Quota,
    *,
    layer: DataLayer | None = None,
    listen: str = "",
    credentials: str = "",
) -> AsyncIterator[ServerProcess]:
    """Run a memory server in a process of its own for as long as the block lasts.

    Args:
        host: its name in the layer.
        quota: what it may use.
        layer: to join; None: it is the first server of a new layer, and coordinates it.
        listen: where it listens; "": where the coordinator can reach it, or the loopback interface.
        credentials: for the TLS of a new layer, or "".

    Raises:
        ImlError: the layer does not let it in.
        NoRoom: it cannot write where it may spill.
        LayerGone: it did not start.
    """
    layer = layer or DataLayer("", secrets.token_bytes(32), credentials=credentials)
    order = ServerOrder(layer.address, layer.token, layer.credentials, listen, host, quota)
    command = [sys.executable, "-m", "gspc_trio.iml.shell.iml_process"]
    line = to_json(order).encode() + b"\n"
    async with open_process(command, stdin=line, hold_stdin=True) as process:
        try:
            with trio.fail_after(START_S):
                answer = from_json(await process.receive_line(), ServerStarted)
        except (trio.EndOfChannel, trio.TooSlowError, ValueError) as error:
            raise LayerGone(f"the memory server of host {host} did not start") from error
        if answer.problem is not None:
            raise error_of(*answer.problem)
        layer = replace(layer, address=answer.coordinator)
        yield ServerProcess(layer, host, answer.local_address, process.wait)
