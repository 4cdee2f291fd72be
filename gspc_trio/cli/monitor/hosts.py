"""``gspc-rts hosts``: what hosts have and how they are; lines and columns for people."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from gspc_trio.cli.common import CommandError, print_json, running_connection
from gspc_trio.components.monitor.messages import GetHardware, HostHardware, NodeFrame
from gspc_trio.components.rts.shell.client import join_rts
from gspc_trio.nursery.connections.rpc import RemoteError
from gspc_trio.protocol.plain import to_plain
from gspc_trio.tui.text import size as size_text

RunningFile = Annotated[
    Path | None,
    Parameter(
        name=["--connection-file", "--rts"],
        help="Connection file of the run-time system; by default that of the current user.",
    ),
]
Json = Annotated[bool, Parameter(name="--json", negative=(), help="Print one JSON object, not text.")]

NOT_TOLD = "-"
"""In place of what a host does not tell."""


async def hosts(host: str = "", *, connection_file: RunningFile = None, json: Json = False) -> None:
    """Show what hosts have and how they are: metrics of the last 5 s. Start with --monitor DIR to have them.

    Parameters
    ----------
    host
        Show all metrics of this host.
    """
    async with join_rts(running_connection(connection_file)) as rts:
        try:
            hardware = (await rts.peer.call(GetHardware(host))).hosts
            stats = await rts.sys_stats()
        except RemoteError as error:
            raise CommandError(error.message) from error
    frames = {name: stats.hosts[name] for name in hardware if name in stats.hosts}
    if json:
        print_json(
            {
                name: {"hardware": to_plain(has), "stats": to_plain(frames.get(name))}
                for name, has in hardware.items()
            }
        )
    elif host:
        print("\n".join(describe_host(hardware[host], frames.get(host))))
    else:
        print("\n".join(describe_hosts(hardware, frames)))


def describe_hosts(hardware: dict[str, HostHardware], frames: dict[str, NodeFrame]) -> Iterator[str]:
    """Yield lines for people: a table with a line for each host."""
    if not hardware:
        yield "no hosts"
        return
    rates = ("disk_read_bytes", "disk_written_bytes", "network_received_bytes", "network_sent_bytes")
    titles = ("disk read/s", "written/s", "received/s", "sent/s")
    rows: list[tuple[str, ...]] = [("host", "cores", "busy", "memory", "available", *titles)]
    for name, has in sorted(hardware.items()):
        frame = frames.get(name, NodeFrame(0, 0.0))
        busy, memory = frame.busy_cores, has.memory_bytes
        rows.append(
            (
                name,
                str(has.cores),
                NOT_TOLD if busy is None else f"{busy:.1f}",
                _size(memory),
                _size(frame.levels.get("memory_available_bytes")),
                *(_size(frame.per_s(rate)) for rate in rates),
            )
        )
    yield from in_columns(rows)


def describe_host(has: HostHardware, frame: NodeFrame | None) -> Iterator[str]:
    """Yield lines for people: all that is known of a host."""
    yield f"processor: {has.processor or NOT_TOLD}"
    numa = NOT_TOLD if has.numa_nodes is None else str(has.numa_nodes)
    yield f"cores: {has.cores} offered, {len(has.cpus)} CPUs, {has.sockets} sockets, {numa} NUMA nodes"
    yield f"memory: {_size(has.memory_bytes)}"
    yield f"disks: {', '.join(f'{one.name} ({_size(one.size_bytes)})' for one in has.disks) or NOT_TOLD}"
    yield f"GPUs: {len(has.gpus) or 'none'}"
    yield f"features: {', '.join(has.features) or NOT_TOLD}"
    if frame is None:
        yield "no metrics yet: they come every 5 s"
        return
    yield f"in {frame.covered_s:g} s:"
    yield from (f"  {line}" for line in in_columns([(n, str(c)) for n, c in frame.counts.items()]))
    yield "mean:"
    levels = [(name, f"{level:.3f}".rstrip("0").rstrip(".")) for name, level in frame.levels.items()]
    yield from (f"  {line}" for line in in_columns(levels))


def _size(size_bytes: float | None) -> str:
    return NOT_TOLD if size_bytes is None else size_text(size_bytes)


def in_columns(rows: Sequence[Sequence[str]]) -> Iterator[str]:
    """Yield rows as lines with columns: the first to the left, the others to the right."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for first, *rest in rows:
        others = (text.rjust(width) for text, width in zip(rest, widths[1:], strict=True))
        yield "  ".join((first.ljust(widths[0]), *others)).rstrip()
