"""A stand-alone RIF: ``python -m gspc_trio.components.rif.shell.rif_process [--enrol FILE]``.

It reads its order, a line of JSON, on standard input, or enrols with its run-time system and gets it there.
It prints nothing and logs to standard error.
"""

from __future__ import annotations

import gc
import logging
import os
import signal
import stat
import sys
import tempfile
from collections.abc import AsyncIterator, Mapping
from typing import TYPE_CHECKING

import trio
from msgspec.structs import replace

from gspc_trio.components.monitor.io_frames import checked_mode
from gspc_trio.components.provision.batch import BATCH_ID_VARIABLE, NODE_VARIABLE, RESTARTS_VARIABLE
from gspc_trio.components.provision.blocks import ENROL_ROLE, EnrolmentFile
from gspc_trio.components.provision.messages import Enrol
from gspc_trio.components.provision.shell.hardware import discover_hardware
from gspc_trio.components.provision.strategy import STAGING_OPTIONS, ends_in_s
from gspc_trio.components.rif.messages import RifProcessOrder
from gspc_trio.components.rif.shell.service import RifService, open_rif
from gspc_trio.components.wire.codec import wire_codec
from gspc_trio.components.worker.shell.compute import open_process_backend
from gspc_trio.core.resources import Resource, parse_features, with_features
from gspc_trio.iml.quota import quota_of
from gspc_trio.nursery.connections.network import ConnectFailed, Network, address_towards
from gspc_trio.nursery.connections.rpc import PeerGone, RemoteError
from gspc_trio.nursery.connections.tls import BadCredentials
from gspc_trio.nursery.scopes.scope import only_error
from gspc_trio.nursery.scopes.spawn import UnsupportedSystem
from gspc_trio.protocol.address import BadAddress
from gspc_trio.protocol.limits import DEFAULT_LIMITS
from gspc_trio.protocol.plain import BadPlainData, from_json

if TYPE_CHECKING:  # a host without a site needs nothing of that
    from gspc_trio.components.provision.staging import StagingSettings

log: logging.Logger = logging.getLogger(__name__)

ORDER_BYTES_MAX = 1 << 16
"""Longest order."""

RTS_SILENCE_S = 5.0
"""A RIF that hears nothing from its RTS for so long ends its work and itself, before the RTS gives it up."""


ENROL_PATIENCE_S = 60.0
"""How long a RIF looks for its run-time system, which may be started again, and waits for its order."""

ENROL_RETRY_S = 1.0
"""Pause between two tries."""


class BadOrder(ValueError):
    """There is no order; one line says what is wrong."""


def read_order(line: bytes) -> RifProcessOrder:
    """Return the order that a line of JSON holds.

    Raises:
        BadOrder: it holds none.
    """
    try:
        return from_json(line, RifProcessOrder)
    except BadPlainData as error:
        raise BadOrder(f"the line on standard input is no order for a RIF: {error}") from error


def read_enrolment(path: str) -> EnrolmentFile:
    """Return what a file says of how to enrol.

    Raises:
        BadOrder: there is no such file, others can write it, or it holds something else.
    """
    try:
        with open(path, "rb") as file:
            if os.fstat(file.fileno()).st_mode & (stat.S_IWGRP | stat.S_IWOTH):
                raise BadOrder(f"others can write {path}, so it proves nothing")
            return from_json(file.read(ORDER_BYTES_MAX), EnrolmentFile)
    except FileNotFoundError:
        raise BadOrder(f"there is no file {path}: the block is not wanted any more") from None
    except OSError as error:
        raise BadOrder(unreadable(path, error)) from error
    except BadPlainData as error:
        raise BadOrder(f"{path} does not say how to enrol: {error}") from error


def unreadable(path: str, error: OSError) -> str:
    """Return what people are told of a file with which a RIF should enrol, and which it cannot read."""
    words = f"cannot read {path}: {error.strerror}"
    if isinstance(error, PermissionError):
        words += (
            f"; only who has started the run-time system may: the block runs as another user ({os.getuid()})"
        )
    return words


def place_of(environment: Mapping[str, str]) -> Enrol:
    """Return where this process runs, as its provider has noted in its environment.

    Raises:
        BadOrder: it has not, or not so.
    """
    try:
        node = int(environment[NODE_VARIABLE])
        restarts = int(environment.get(RESTARTS_VARIABLE) or "0")
    except KeyError:
        raise BadOrder(f"the variable {NODE_VARIABLE} does not say which node of its block this is") from None
    except ValueError as error:
        raise BadOrder(f"{NODE_VARIABLE} and {RESTARTS_VARIABLE} are numbers: {error}") from None
    if node < 0 or restarts < 0:
        raise BadOrder(f"{NODE_VARIABLE} and {RESTARTS_VARIABLE} are 0 or more")
    return Enrol(node, environment.get(BATCH_ID_VARIABLE, ""), restarts)


async def enrol(path: str, environment: Mapping[str, str]) -> str:
    """Return the order that the run-time system gives to this process.

    Args:
        path: of the file that says how to enrol.
        environment: of this process.

    Raises:
        BadOrder: it gives none.
    """
    told, place = read_enrolment(path), place_of(environment)
    return await ask_for_order(Network(wire_codec, told.ticket, credentials=told.credentials), told, place)


async def ask_for_order(network: Network, told: EnrolmentFile, place: Enrol) -> str:
    """Return the order that the run-time system gives to a process of a block.

    Args:
        network: knows the ticket of the block.
        told: how to enrol.
        place: where the process runs.

    Raises:
        BadOrder: it gives none.
    """
    problem = "it was given no order"
    with trio.move_on_after(ENROL_PATIENCE_S):
        while True:
            try:
                async with network.connect(told.rts, role=ENROL_ROLE, name=told.block, expect="rts") as rts:
                    return (await rts.call(place)).order
            except RemoteError as error:
                raise BadOrder(f"the run-time system refused: {error}") from error
            except (ConnectFailed, PeerGone) as error:
                problem = str(error)
            except (OSError, BadAddress, ValueError) as error:
                raise BadOrder(str(error)) from error
            await trio.sleep(ENROL_RETRY_S)
    raise BadOrder(f"no order within {ENROL_PATIENCE_S:g} s: {problem}")


async def run_rif(order: RifProcessOrder) -> str:
    """Run the RIF until its RTS is gone, it is told to stop, or a signal comes; return why it ended."""
    limits = replace(DEFAULT_LIMITS, lease_s=RTS_SILENCE_S)
    network = Network(wire_codec, order.token, limits=limits, credentials=order.credentials)
    with trio.open_signal_receiver(signal.SIGTERM, signal.SIGINT) as signals:
        async with open_process_backend(io=order.options.get("io", "off")) as backend:
            async with open_rif(
                network,
                rif_id=order.rif_id,
                incarnation=order.incarnation,
                host=order.host,
                hardware=_hardware(order),
                backend=backend,
                listen=order.options.get("listen") or address_towards(order.rts),
                rts=order.rts,
                grace_s=order.grace_s,
                ends_in_s=ends_in_s(order.options),
                files=_files(order),
            ) as rif:
                async with trio.open_nursery() as nursery:
                    nursery.start_soon(_stop_on_signal, rif, signals)
                    reason = await rif.wait_ended()
                    nursery.cancel_scope.cancel()
    return reason


def _hardware(order: RifProcessOrder) -> tuple[Resource, ...]:
    """Return what this host has.

    Raises:
        ValueError: its features can be none.
    """
    features = parse_features(order.options.get("features", ""))
    return with_features(discover_hardware(order.rif_id, order.cores), features)


def _files(order: RifProcessOrder) -> StagingSettings | None:
    """Return how files get to its tasks, None for the usual way.

    Raises:
        ValueError: its options cannot be used.
    """
    if not any(name in order.options for name in STAGING_OPTIONS):
        return None
    from gspc_trio.components.provision.staging import staging_settings

    return staging_settings(order.options)


async def _stop_on_signal(rif: RifService, signals: AsyncIterator[int]) -> None:
    async for number in signals:
        rif.stop(f"it got {signal.Signals(number).name}")


def find_order(arguments: list[str]) -> RifProcessOrder:
    """Return the order for this RIF, from standard input or from the service at which RIFs of blocks enrol.

    Raises:
        BadOrder: there is none.
    """
    if not arguments:
        return read_order(sys.stdin.buffer.readline(ORDER_BYTES_MAX))
    if len(arguments) != 2 or arguments[0] != "--enrol":
        raise BadOrder("a RIF knows one argument: --enrol FILE")
    return read_order(trio.run(enrol, arguments[1], os.environ).encode())


def main() -> int:
    """Run a RIF as its order says; return the exit status."""
    try:
        order = find_order(sys.argv[1:])
    except BadOrder as error:
        print(error, file=sys.stderr)
        return 2
    level = logging.getLevelNamesMapping().get(order.options.get("log_level", "").upper(), logging.WARNING)
    logging.basicConfig(level=level, stream=sys.stderr, format=f"{order.rif_id}: %(levelname)s: %(message)s")
    try:
        directories = order.options.get("directory", ""), quota_of(order.options).spill_directory
        ends_in_s(order.options)
        parse_features(order.options.get("features", ""))
        checked_mode(order.options.get("io", "off"))
        _files(order)
    except ValueError as error:
        print(f"{order.rif_id} ends: {error}", file=sys.stderr)
        return 1
    for directory in filter(None, directories):
        if not os.access(directory, os.W_OK | os.X_OK):
            print(f"{order.rif_id} ends: it cannot write to the directory {directory}", file=sys.stderr)
            return 1
    if directories[0]:
        tempfile.tempdir = directories[0]  # of this process, not of the tasks
    # Nobody else's garbage collector: this process does nothing but pass messages on.
    gc.freeze()
    gc.set_threshold(50_000, 20, 100)
    try:
        log.info("it ends: %s", trio.run(run_rif, order))
    except (OSError, UnsupportedSystem, BadAddress, BadCredentials, BaseExceptionGroup) as error:
        problem = only_error(error)
        if not isinstance(problem, OSError | UnsupportedSystem | BadAddress | BadCredentials):
            raise
        print(f"{order.rif_id} ends: {problem}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
