"""The strategies for RIFs in other processes: ``local`` is built in, packages may offer others (RTS-1).

A package offers one under the entry point group ``gspc_trio.strategies``: a name and a callable without
arguments that returns a :class:`~gspc_trio.components.provision.strategy.Strategy`.
"""

from __future__ import annotations

import logging
import shlex
import signal
import sys
from collections.abc import Sequence

import trio

from gspc_trio.components.provision.strategy import (
    STAGING_OPTIONS,
    RifOrder,
    Strategy,
    StrategyError,
    check_options,
)
from gspc_trio.components.rif.messages import RifProcessOrder
from gspc_trio.nursery.scopes.process import Process, open_process
from gspc_trio.protocol.address import MemoryAddress, parse_address
from gspc_trio.version import SOURCES

log: logging.Logger = logging.getLogger(__name__)

ENTRY_POINTS = "gspc_trio.strategies"
"""Group in which packages offer strategies."""

RIF_OPTIONS = (
    *("directory", "features", "io", "listen", "log_level", "memory", "rack", "spill", "spill_directory"),
    "time",
    *STAGING_OPTIONS,
)
"""Options that a RIF in a process of its own knows, whatever has started it."""

LINE_LENGTH_MAX = 500
"""Longer lines are cut."""

TERMINATE_GRACE_S = 0.5
"""How long the process of a RIF may take to end when it is told to; then it is killed with all it started."""

LAST_WORDS_S = 0.1
"""How long to read on what a RIF printed after its process has ended."""

RIF_PROGRAM = f"""
import os, sys
os.dup2(1, 2)
sys.path.append({str(SOURCES)!r})
from gspc_trio.components.rif.shell.rif_process import main
sys.exit(main())
"""
"""Runs a RIF whose standard error joins its standard output, from its first import on."""

RIF_COMMAND = (sys.executable, "-P", "-c", RIF_PROGRAM)
"""Without the working directory on the path, in which a user's module may have the name of one of ours."""


INSTALLED_RIF_PROGRAM = """
import os, sys
os.dup2(1, 2)
from gspc_trio.components.rif.shell.rif_process import main
sys.exit(main())
"""
"""Runs a RIF where gspc-trio is installed."""

FIND_PYTHON = """
for python in "$@"; do
    if "$python" -P -c "import gspc_trio" >/dev/null 2>&1; then
        if [ -n "$ENROL" ]; then exec "$python" -P -c "$PROGRAM" --enrol "$ENROL"; fi
        exec "$python" -P -c "$PROGRAM"
    fi
done
echo "no Python 3.11 here has gspc-trio (tried $*): install it there, or say where by --set python=PATH" >&2
exit 127
"""
"""What the host's shell runs; its arguments are the interpreters to try."""


class LocalStrategy:
    """Runs each RIF in a process of its own on this machine; the host names are logical.

    Args:
        command: the program, which reads one line of JSON on standard input (``rif_process``).
    """

    def __init__(self, command: Sequence[str] = RIF_COMMAND) -> None:
        self._command = tuple(command)

    async def run(self, order: RifOrder) -> str:
        """Run the process until it ends or this is cancelled."""
        check_options(order, *RIF_OPTIONS)
        return describe_exit(await run_command(self._command, order))


async def run_command(command: Sequence[str], order: RifOrder) -> int:
    """Run the process of a RIF, which is told its order on standard input, and return its exit status.

    Args:
        command: the program; what it prints, also on standard error, comes on its standard output.
        order: for the RIF.
    """
    line = order_line(order)
    async with open_process(command, stdin=line, hold_stdin=True, grace_s=TERMINATE_GRACE_S) as process:
        async with trio.open_nursery() as nursery:
            silent = trio.Event()
            nursery.start_soon(_listen_to, process, order, silent)
            status = await process.wait()
            # What it printed at its very end is in the pipe; a child that it left may hold the pipe open.
            with trio.move_on_after(LAST_WORDS_S):
                await silent.wait()
            nursery.cancel_scope.cancel()
    return status


def order_line(order: RifOrder) -> bytes:
    """Return the line that the process of a RIF reads on its standard input; it is secret."""
    told = RifProcessOrder(
        order.rts_address("ws:"),
        order.token,
        order.rif_id,
        order.incarnation,
        order.host,
        order.cores,
        order.options,
        order.credentials,
        order.grace_s,
    )
    from gspc_trio.protocol.plain import to_json  # only here: a host in the same process needs none

    return to_json(told).encode() + b"\n"


async def _listen_to(process: Process, order: RifOrder, silent: trio.Event) -> None:
    """Keep the last lines that a RIF prints; set ``silent`` when there will be no more."""
    while True:
        try:
            line = await process.receive_line()
        except (trio.EndOfChannel, ValueError):  # a line without end is as good as the end
            silent.set()
            return
        if line.strip():
            order.said.append(line.strip()[:LINE_LENGTH_MAX])
            log.info("%s says: %s", order.rif_id, line.rstrip())


def describe_exit(status: int) -> str:
    """Return how a process ended, for people."""
    if status >= 0:
        return f"its process ended with exit status {status}"
    try:
        return f"its process was ended by {signal.Signals(-status).name}"
    except ValueError:
        return f"its process was ended by signal {-status}"


def find_strategies() -> dict[str, Strategy]:
    """Return the strategies for RIFs outside this process: ``local`` and those of installed packages."""
    found: dict[str, Strategy] = {"local": LocalStrategy()}
    from importlib.metadata import entry_points

    for entry in entry_points(group=ENTRY_POINTS):
        try:
            found[entry.name] = entry.load()()
        except Exception as error:
            log.warning("strategy %s of %s cannot be used: %s", entry.name, entry.value, error)
    return found


def check_reachable(order: RifOrder) -> None:
    """See that a RIF on another host can reach its run-time system.

    Raises:
        StrategyError: the run-time system listens on this host alone.
    """
    where = parse_address(order.rts_address("ws:"))
    if isinstance(where, MemoryAddress) or where.is_loopback:
        raise StrategyError(
            f"{order.host} cannot reach the run-time system at {where}: start it with "
            "gspc-rts start --tls --listen ADDRESS"
        )


def remote_command(options: dict[str, str], enrol: str = "") -> str:
    """Return what another host is to run, for whatever shell its user has.

    Args:
        options: of the strategy.
        enrol: file with which the RIF enrols; "" if its order comes on standard input.
    """
    given = options.get("python")
    pythons = [given] if given else list(dict.fromkeys([sys.executable, "python3"]))
    names = f"PROGRAM={shlex.quote(INSTALLED_RIF_PROGRAM)}\nENROL={shlex.quote(enrol)}"
    script = f"{names}\n{FIND_PYTHON}"
    return "exec " + shlex.join(["/bin/sh", "-c", script, "sh", *pythons])
