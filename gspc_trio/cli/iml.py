"""``gspc-iml``: run a memory layer's server on this host, and look after the data in a running layer."""

from __future__ import annotations

import io
import json as json_texts
import os
import resource
import secrets
import socket
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from types import TracebackType
from typing import Annotated

import trio
from cyclopts import App, Parameter
from msgspec.structs import replace

from gspc_trio.cli.arguments import Port, Size, Whole
from gspc_trio.cli.common import (
    CommandError,
    UsageError,
    flatten,
    listen_address,
    print_json,
    run_command,
    set_up_logging,
)
from gspc_trio.components.wire.codec import wire_codec
from gspc_trio.iml.errors import ImlError, UnknownData
from gspc_trio.iml.layout import Layout
from gspc_trio.iml.messages import LayerStatus
from gspc_trio.iml.quota import parse_size
from gspc_trio.iml.shell.client import Iml
from gspc_trio.iml.shell.coordinator import CoordinatorService
from gspc_trio.iml.shell.layer import default_iml_file, join_layer
from gspc_trio.iml.shell.platform import MEMORY_SHARE, default_memory_bytes
from gspc_trio.iml.shell.server import ImlServer
from gspc_trio.iml.store_parts import PAGE_BYTES
from gspc_trio.nursery.connections.certificates import Authority
from gspc_trio.nursery.connections.connection_file import (
    ConnectionInfo,
    claim_connection_file,
    find_live_connection,
    read_connection_file,
    remove_connection_file,
)
from gspc_trio.nursery.connections.network import Network, address_towards
from gspc_trio.protocol.address import WebSocketAddress, parse_address
from gspc_trio.protocol.plain import to_plain
from gspc_trio.protocol.values import RAISED_BY_USERS, open_published, published_pieces
from gspc_trio.version import VERSION

app: App = App(
    name="gspc-iml",
    help="Start a memory layer, and show, publish, read or free the data in it.",
    version=VERSION,
)

File = Annotated[
    Path | None,
    Parameter(
        name=["--connection-file", "--iml"],
        help="Connection file of the memory layer; by default that of the current user.",
    ),
]
AsJson = Annotated[bool, Parameter(name="--json", negative=())]
STANDARD_STREAM = Path("-")

READ_TRIES = 5
"""So often data is looked up by its name whose place other data takes meanwhile."""

Json = Annotated[bool, Parameter(name="--json", negative=(), help="Print one JSON object, not text.")]


@app.command
async def start(
    *,
    host: str = "",
    memory: Size = "",
    spill: Size = "0",
    spill_directory: str = "",
    listen: str = "",
    port: Port = 0,
    tls: Annotated[bool, Parameter(negative=())] = False,
    connection_file: File = None,
    verbose: Annotated[bool, Parameter(name=["--verbose", "-v"], negative=())] = False,
) -> None:
    """Run the memory server of this host in the foreground; the first one creates the layer, others join it.

    The layer lives as long as its first server. It ends with Ctrl-C or gspc-iml stop. Servers on other hosts
    find it by the connection file of the first one: in a directory that they share, or copied there.

    Parameters
    ----------
    host
        Name of this host in the layer; by default its host name.
    memory
        How much shared memory the server may use, e.g. 4GiB; by default a quarter of the host's memory.
    spill
        How much disk the server may use when its memory is full, e.g. 20GiB; by default none.
    spill_directory
        Directory for data on disk; by default the system's directory for temporary files.
    listen
        Address to listen on; an address that other hosts can reach needs --tls. By default the loopback
        interface for the first server, and for others the address at which the first can reach them.
    port
        TCP port; 0 for any free one.
    tls
        Encrypt all connections (TLS 1.3), and let other hosts join. The first use creates a certificate
        authority, beside the connection file. Only the first server needs this option.
    connection_file
        Connection file of the layer; by default in the user's runtime directory.
    verbose
        Log everything, not only warnings.
    """
    set_up_logging(verbose, False)
    path = connection_file or default_iml_file()
    host = host or socket.gethostname()
    memory_bytes = _checked(parse_size(memory)) if memory else default_memory_bytes()
    if spill_directory and not await trio.Path(spill_directory).is_dir():
        raise CommandError(f"--spill-directory {spill_directory}: there is no such directory")
    _allow_many_files()
    alive = await find_live_connection(path)
    issue = Authority(path.parent / "tls").issue if tls and alive is None else lambda _: ""
    if alive is None:
        network = Network(wire_codec, secrets.token_bytes(32), credentials=issue("iml"))
    else:
        network = Network(wire_codec, alive.token, credentials=alive.credentials)
    server = ImlServer(network, host, memory_bytes, parse_size(spill), spill_directory)
    where = _listen_address(listen, port, tls, alive)
    with _Plainly():
        if alive is not None:
            await _join(server, str(where), alive.address, path)
        else:
            await _lead(network, server, where, path, issue("client"))


def _checked(memory_bytes: int) -> int:
    """Return the quota of a server if this host has so much.

    Raises:
        UsageError: it has not, or this is less than a page.
    """
    has_bytes = MEMORY_SHARE * default_memory_bytes()
    if not PAGE_BYTES <= memory_bytes <= has_bytes:
        raise UsageError(
            f"--memory {memory_bytes}: a memory server needs {PAGE_BYTES} bytes or more, and this host has "
            f"{has_bytes}"
        )
    return memory_bytes


async def _join(server: ImlServer, listen: str, coordinator: str, path: Path) -> None:
    """Run a server of a layer that is there, until that ends."""
    async with trio.open_nursery() as nursery:
        await _serve(nursery, server, listen, coordinator, path)
        await _end_with(server)


async def _end_with(server: ImlServer) -> None:
    """End this process when its server has lost the layer: without its memory it would be there in vain."""
    await server.gone.wait()
    raise CommandError(f"the memory layer has ended: {server.reason}")


async def _lead(
    network: Network, server: ImlServer, where: WebSocketAddress, path: Path, credentials: str
) -> None:
    """Run the first server of a layer, until it is stopped."""
    async with trio.open_nursery() as nursery:
        coordinator = CoordinatorService(network)
        await nursery.start(coordinator.run, str(replace(where, port=0)))
        info = ConnectionInfo.create(coordinator.address, network.token, VERSION, credentials)
        other = await claim_connection_file(path, info)
        if other is not None:
            raise CommandError(f"another memory layer has just been started there: {other.address}")
        try:
            await _serve(nursery, server, str(where), coordinator.address, path)
            nursery.start_soon(_end_with, server)
            await coordinator.stopped.wait()
        finally:
            remove_connection_file(path, info)
        nursery.cancel_scope.cancel()


def _listen_address(listen: str, port: int, tls: bool, alive: ConnectionInfo | None) -> WebSocketAddress:
    """Return where to listen: in a running layer as its first server does.

    Raises:
        UsageError: others could read along, or this is no single address.
    """
    if alive is None:
        return listen_address(listen or "127.0.0.1", port, tls)
    towards = parse_address(address_towards(alive.address))
    assert isinstance(towards, WebSocketAddress)
    if not listen:
        return replace(towards, port=port)
    return listen_address(listen, port, towards.secure)


async def _serve(nursery: trio.Nursery, server: ImlServer, listen: str, coordinator: str, path: Path) -> None:
    await nursery.start(server.run, listen, coordinator)
    print(
        f"memory server of host {server.host}, rank {server.rank}, process {os.getpid()}: "
        f"{server.machine.memory_bytes} bytes of memory, {server.machine.spill_bytes} on disk",
        flush=True,
    )
    print(f"connection file {path}", flush=True)


def _allow_many_files() -> None:
    """Every part of some data is a file in memory: allow as many as the system does."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))


class _Plainly:
    """Turn errors of the layer into one clear line."""

    def __enter__(self) -> None:
        return None

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None
    ) -> None:
        if error is None:
            return
        for each in flatten(error):
            if isinstance(each, ImlError):
                raise CommandError(str(each)) from error


@asynccontextmanager
async def _joined(connection_file: Path | None) -> AsyncIterator[Iml]:
    with _Plainly():
        info = read_connection_file(connection_file or default_iml_file())
        network = Network(wire_codec, info.token, credentials=info.credentials)
        async with join_layer(network, info.address) as iml:
            yield iml


@app.command
async def status(*, connection_file: File = None, json: Json = False) -> None:
    """Show the hosts of a running layer and the data in it."""
    async with _joined(connection_file) as iml:
        layer = await iml.status()
    if json:
        print_json(to_plain(layer))
    else:
        print("\n".join(describe_status(layer)))


def describe_status(layer: LayerStatus) -> list[str]:
    """Return the state of a layer as lines for people."""
    lines = [f"{'RANK':<6}{'HOST':<24}{'MEMORY':>16}{'DISK':>16}{'HELD':>16}"]
    lines += [
        f"{server.rank:<6}{server.host:<24}{server.memory_bytes:>16}{server.spill_bytes:>16}"
        f"{server.held_bytes:>16}"
        for server in layer.servers
    ]
    lines += ["", f"{'DATA':<20}{'BYTES':>16}  {'STATE':<10}{'JOB':<12}{'NAME':<20}HOSTS"]
    lines += [
        f"{entry.data_id:<20}{entry.size_bytes:>16}  {entry.state:<10}{entry.job:<12}"
        f"{entry.name:<20}{', '.join(entry.hosts)}"
        for entry in layer.data
    ]
    return lines


@app.command
async def partition(data_id: str, *, connection_file: File = None, json: Json = False) -> None:
    """Show which ranges of some data lie on which host.

    Parameters
    ----------
    data_id
        Id of the data, as gspc-iml status shows it.
    """
    async with _joined(connection_file) as iml:
        found = await iml.partition(data_id)
    if json:
        print_json(
            {host: [[part.offset, part.size_bytes] for part in ranges] for host, ranges in found.items()}
        )
        return
    print(f"{'HOST':<24}{'OFFSET':>16}{'BYTES':>16}")
    for host, ranges in found.items():
        for part in ranges:
            print(f"{host:<24}{part.offset:>16}{part.size_bytes:>16}")


@app.command
async def publish(
    name: str, file: Path | None = None, *, connection_file: File = None, json: AsJson = False
) -> None:
    """Keep the content of a file under a name, in place of what has that now.

    Tasks read it with read_published(NAME), or take it as an input Named(NAME). It stays until it is freed,
    or other data gets its name.

    Parameters
    ----------
    name
        Under which it is kept.
    file
        By default standard input.
    json
        The content is JSON: tasks get the value that it stands for, not its bytes.
    """
    read = sys.stdin.buffer.read if file is None or file == STANDARD_STREAM else file.read_bytes
    content: object = await trio.to_thread.run_sync(read, abandon_on_cancel=True)
    if json:
        content = _from_json(content, file or STANDARD_STREAM)
    data = b"".join(published_pieces(content))
    async with _joined(connection_file) as iml:
        made = await iml.alloc(len(data), data)
        try:
            await iml.publish(made, name, replace=True)
        except BaseException:
            with trio.CancelScope(shield=True), trio.move_on_after(1), suppress(ImlError):
                await iml.free(made)
            raise
    print(f"{name}: {made.data_id}, {len(data)} bytes")


@app.command
async def allocate(
    name: str,
    size: Size,
    *,
    block_size: Size = "",
    copies: Whole = 1,
    connection_file: File = None,
) -> None:
    """Allocate memory under a name: zeros, for tasks that write ranges of it.

    It stays until it is freed. Read it with gspc-iml read NAME.

    Parameters
    ----------
    name
        Under which it is found. No other data may have it.
    size
        How much, e.g. 1GiB.
    block_size
        Stripe it over the hosts in blocks of this size, e.g. 1MiB; by default all of it is on one host.
    copies
        On how many hosts each byte lies.
    """
    if not name:
        raise UsageError("the name is empty")
    block_bytes = parse_size(block_size) if block_size else 0
    async with _joined(connection_file) as iml:
        made = await iml.alloc(parse_size(size), layout=Layout((), block_bytes, copies), name=name)
    print(f"{name}: {made.data_id}, {made.size_bytes} bytes")


@app.command
async def read(
    name: str, *, output: Path | None = None, connection_file: File = None, json: Json = False
) -> None:
    """Print data that was published under a name: bytes as they are, other values as JSON.

    Parameters
    ----------
    name
        Under which it was published.
    output
        Write it to this file; by default it is printed.
    """
    async with _joined(connection_file) as iml:
        data = await _content_of(iml, name)
    try:
        value = open_published(memoryview(data))
    except RAISED_BY_USERS as error:  # opening it runs code of whoever made its class
        raise CommandError(f"{name} cannot be opened here: {type(error).__name__}: {error}") from error
    if json or not isinstance(value, bytes | memoryview):
        text = io.StringIO()
        print_json(value, text)
        data = text.getvalue().encode()
    elif not len(value):
        data = b""
    elif output is None and sys.stdout.isatty() and not _is_text(data):
        raise CommandError(f"{name} is {len(data)} bytes, and no text: write them to a file with --output")
    if output is not None:
        await trio.Path(output).write_bytes(data)
    else:
        sys.stdout.buffer.write(data)


async def _content_of(iml: Iml, name: str) -> bytes:
    """Return the bytes of published data, also if it is being replaced."""
    for _ in range(READ_TRIES - 1):
        with suppress(UnknownData):
            return await iml.get(await iml.look_up(name))
    return await iml.get(await iml.look_up(name))


def _from_json(content: object, file: Path) -> object:
    assert isinstance(content, bytes)
    try:
        value: object = json_texts.loads(content)
    except (ValueError, RecursionError) as error:
        what = "standard input" if file == STANDARD_STREAM else str(file)
        raise CommandError(f"{what}: this is no JSON: {error}") from error
    return value


def _is_text(data: bytes) -> bool:
    try:
        return all(each.isprintable() or each.isspace() for each in data.decode())
    except ValueError:
        return False


@app.command
async def free(data_ids: list[str], *, connection_file: File = None) -> None:
    """Free data, whatever job it belongs to.

    Parameters
    ----------
    data_ids
        Ids of the data, as gspc-iml status shows them.
    """
    async with _joined(connection_file) as iml:
        for data_id in data_ids:
            await iml.free(data_id)
            print(f"{data_id} is free")


@app.command
async def stop(*, connection_file: File = None) -> None:
    """End a running layer, with all data in it."""
    async with _joined(connection_file) as iml:
        await iml.stop_layer()
        await iml.wait_ended()
    print("stopped")


def main() -> None:
    """Run the command ``gspc-iml``."""
    run_command(app)


if __name__ == "__main__":
    main()
