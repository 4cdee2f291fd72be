"""How a RIF of a block gets its order: it shows the ticket of its block to the run-time system."""

from __future__ import annotations

import os
import stat
from collections.abc import Mapping

import trio

from gspc_trio.components.provision.batch import BATCH_ID_VARIABLE, NODE_VARIABLE, RESTARTS_VARIABLE
from gspc_trio.components.provision.blocks import EnrolmentFile
from gspc_trio.components.provision.messages import Enrol
from gspc_trio.components.provision.shell.enrolments import ROLE
from gspc_trio.components.wire.codec import wire_codec
from gspc_trio.nursery.connections.network import ConnectFailed, Network
from gspc_trio.nursery.connections.rpc import PeerGone, RemoteError
from gspc_trio.protocol.address import BadAddress
from gspc_trio.protocol.plain import BadPlainData, from_json

PATIENCE_S = 60.0
"""How long a RIF looks for its run-time system, which may be started again, and waits for its order."""

RETRY_S = 1.0
"""Pause between two tries."""

FILE_BYTES_MAX = 1 << 16


class EnrolmentFailed(Exception):
    """There is no order for this process; one line says why."""


def read_enrolment(path: str) -> EnrolmentFile:
    """Return what a file says of how to enrol.

    Raises:
        EnrolmentFailed: there is no such file, others can read it, or it holds something else.
    """
    try:
        with open(path, "rb") as file:
            if os.fstat(file.fileno()).st_mode & (stat.S_IRWXG | stat.S_IRWXO):
                raise EnrolmentFailed(f"others can read {path}, so it proves nothing")
            return from_json(file.read(FILE_BYTES_MAX), EnrolmentFile)
    except FileNotFoundError:
        raise EnrolmentFailed(f"there is no file {path}: the block is not wanted any more") from None
    except OSError as error:
        raise EnrolmentFailed(f"cannot read {path}: {error.strerror}") from error
    except BadPlainData as error:
        raise EnrolmentFailed(f"{path} does not say how to enrol: {error}") from error


def place_of(environment: Mapping[str, str]) -> Enrol:
    """Return where this process runs, as its provider has noted in its environment.

    Raises:
        EnrolmentFailed: it has not, or not so.
    """
    try:
        node = int(environment[NODE_VARIABLE])
        restarts = int(environment.get(RESTARTS_VARIABLE) or "0")
    except KeyError:
        raise EnrolmentFailed(
            f"the variable {NODE_VARIABLE} does not say which node of its block this is"
        ) from None
    except ValueError as error:
        raise EnrolmentFailed(f"{NODE_VARIABLE} and {RESTARTS_VARIABLE} are numbers: {error}") from None
    if node < 0 or restarts < 0:
        raise EnrolmentFailed(f"{NODE_VARIABLE} and {RESTARTS_VARIABLE} are 0 or more")
    return Enrol(node, environment.get(BATCH_ID_VARIABLE, ""), restarts)


async def enrol(path: str, environment: Mapping[str, str]) -> str:
    """Return the order that the run-time system gives to this process.

    Args:
        path: of the file that says how to enrol.
        environment: of this process.

    Raises:
        EnrolmentFailed: it gives none.
    """
    told, place = read_enrolment(path), place_of(environment)
    network = Network(wire_codec, told.ticket, credentials=told.credentials)
    problem = "it was given no order"
    with trio.move_on_after(PATIENCE_S):
        while True:
            try:
                async with network.connect(told.rts, role=ROLE, name=told.block, expect="rts") as rts:
                    return (await rts.call(place)).order
            except RemoteError as error:
                raise EnrolmentFailed(f"the run-time system refused: {error}") from error
            except (ConnectFailed, PeerGone) as error:
                problem = str(error)
            except (OSError, BadAddress, ValueError) as error:
                raise EnrolmentFailed(str(error)) from error
            await trio.sleep(RETRY_S)
    raise EnrolmentFailed(f"no order within {PATIENCE_S:g} s: {problem}")
