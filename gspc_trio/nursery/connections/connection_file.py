"""The file by which programs of one user find a running service and its token (APP-1; reliability, security).

It is readable by its owner alone, in a directory that only its owner can enter, and appears whole or not at
all.
"""

from __future__ import annotations

import fcntl
import json
import os
import secrets
import socket
import stat
import time
from contextlib import suppress
from pathlib import Path
from typing import ClassVar

import trio

from gspc_trio.nursery.connections.private_file import (
    process_is_gone,
    process_start,
    read_private_file,
    write_private_file,
)
from gspc_trio.protocol.address import BadAddress, WebSocketAddress, parse_address
from gspc_trio.protocol.hidden import HidesFields

FILE_VARIABLE = "GSPC_CONNECTION_FILE"
"""Environment variable that names another file than the default one."""

DIAL_S = 2.0
LOCK_TRIES, LOCK_PAUSE_S = 250, 0.02
"""For longer than whoever has the lock takes to find out whether a service answers."""


class ConnectionFileError(Exception):
    """The connection file is missing, unsafe or unreadable; the message is one line that says what to do."""


class ConnectionInfo(HidesFields, frozen=True):
    """What a connection file says.

    Attributes:
        address: where the service listens.
        token: the secret.
        pid: of the service's process.
        process_started: when that process started, in ticks since the host did: a pid may be used again. 0 is
            unknown.
        instance: made for this file, so that its writer knows it again.
        version: of the package.
        started_s: wall-clock time of writing, seconds since 1970.
        credentials: for TLS (``nursery.connections.tls``), or "".
        host: on which the service runs, "" if unknown.
        name: by which whoever the file is for connects, and which alone fits the token; "" for any name.
        http: address of the service for HTTP, "" if it has none.
        patience_s: how long whoever was connected waits for another service in the place of this one, which
            says so in the same file.
    """

    hidden: ClassVar[frozenset[str]] = frozenset({"token", "credentials"})

    address: str
    token: bytes
    pid: int
    process_started: int
    instance: str
    version: str
    started_s: float
    credentials: str = ""
    host: str = ""
    name: str = ""
    http: str = ""
    patience_s: float = 0.0

    @classmethod
    def create(
        cls,
        address: str,
        token: bytes,
        version: str,
        credentials: str = "",
        *,
        name: str = "",
        http: str = "",
        patience_s: float = 0.0,
    ) -> ConnectionInfo:
        """Return the information on a service in this process."""
        pid = os.getpid()
        started, instance, now = process_start(pid) or 0, secrets.token_hex(8), time.time()
        more = (credentials, socket.gethostname(), name, http, patience_s)
        return cls(address, token, pid, started, instance, version, now, *more)

    @property
    def process_is_gone(self) -> bool:
        """Whether the process that wrote the file has ended; its pid may be another's by now.

        Of one on another host, with which this one shares the directory, that cannot be told.
        """
        return process_is_gone(self.host, self.pid, self.process_started)

    async def process_end(self) -> None:
        """Wait until the process that wrote the file has ended; not for one on another host."""
        if self.host != socket.gethostname():
            return
        with suppress(ProcessLookupError):
            descriptor = os.pidfd_open(self.pid)
            try:
                if not self.process_is_gone:
                    await trio.lowlevel.wait_readable(descriptor)
            finally:
                os.close(descriptor)


def default_connection_file() -> Path:
    """Return the user's connection file: by environment variable, in the runtime directory, or below /tmp."""
    named = os.environ.get(FILE_VARIABLE)
    if named:
        return Path(named)
    runtime = os.environ.get("XDG_RUNTIME_DIR")
    if runtime and Path(runtime).is_dir():
        return Path(runtime) / "gspc-trio" / "rts.json"
    return Path("/tmp") / f"gspc-trio-{os.getuid()}" / "rts.json"


def write_connection_file(path: Path, info: ConnectionInfo) -> None:
    """Write the file, in one step for whoever reads it; a directory that is missing is created for the owner
    alone.

    Raises:
        ConnectionFileError: the directory is another user's or open to others, or the file cannot be written,
            or the one that is there is no connection file, or unsafe: it stays as it is.
    """
    _read_if_there(path)
    data = {
        "address": info.address,
        "token": info.token.hex(),
        "pid": info.pid,
        "process_started": info.process_started,
        "instance": info.instance,
        "version": info.version,
        "started_s": info.started_s,
        "credentials": info.credentials,
        "host": info.host,
        "name": info.name,
        "http": info.http,
        "patience_s": info.patience_s,
    }
    try:
        _prepare_directory(path.parent)
        write_private_file(path, json.dumps(data) + "\n")
    except OSError as error:
        raise ConnectionFileError(f"cannot write the connection file {path}: {error.strerror}") from error


def read_connection_file(path: Path) -> ConnectionInfo:
    """Read the file.

    Raises:
        ConnectionFileError: it is missing, another user's, open to others, or not a connection file.
    """
    try:
        text, problem = read_private_file(path, "connection file")
        if text is None:
            raise ConnectionFileError(f"{path} is not a connection file")
        info = _parse(path, text)  # first: of another file, nothing else matters
        if problem:
            raise ConnectionFileError(problem)
        return info
    except FileNotFoundError:
        raise ConnectionFileError(
            f"there is no connection file {path}: start the service, or name its file"
        ) from None
    except OSError as error:
        raise ConnectionFileError(f"cannot read the connection file {path}: {error.strerror}") from error


def _read_if_there(path: Path) -> ConnectionInfo | None:
    try:
        return read_connection_file(path)
    except ConnectionFileError:
        if os.path.lexists(path):
            raise
        return None  # it was never there, or its service has just removed it


def remove_connection_file(path: Path, info: ConnectionInfo) -> None:
    """Remove the file if it is still the one that was written with ``info``; never raises."""
    try:
        if read_connection_file(path).instance == info.instance:
            path.unlink(missing_ok=True)
    except (ConnectionFileError, OSError):
        return


async def find_live_connection(path: Path) -> ConnectionInfo | None:
    """Return what the file says if somebody listens there, None if there is no file or it is stale.

    Stale is a file whose process is gone, or whose address refuses connections (all were killed). It may be
    replaced.

    Raises:
        ConnectionFileError: the file is unsafe or not a connection file.
    """
    info = _read_if_there(path)
    if info is None or info.process_is_gone:
        return None
    try:
        where = parse_address(info.address)
    except BadAddress:
        return None
    if not isinstance(where, WebSocketAddress):
        return None
    try:
        with trio.fail_after(DIAL_S):
            stream = await trio.open_tcp_stream(where.host, where.port)
    except trio.TooSlowError:
        return info  # it is there, if slow
    except OSError:
        return None
    await trio.aclose_forcefully(stream)
    return info


async def claim_connection_file(path: Path, info: ConnectionInfo) -> ConnectionInfo | None:
    """Write the file unless it is that of a live service; of several that start at once one gets it.

    Returns:
        what the file of the live service says; None when the file was written.

    Raises:
        ConnectionFileError: the file or its directory is unsafe or cannot be written, or the directory stays
            locked by another process.
    """
    try:
        _prepare_directory(path.parent)
        directory = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError as error:
        raise ConnectionFileError(f"cannot write the connection file {path}: {error.strerror}") from error
    try:
        await _lock(directory, path.parent)
        alive = await find_live_connection(path)
        if alive is None:
            write_connection_file(path, info)
        return alive
    finally:
        os.close(directory)


async def _lock(descriptor: int, directory: Path) -> None:
    """Lock a directory for as long as the descriptor is open: unlike a file for locks it leaves nothing."""
    for _ in range(LOCK_TRIES):
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return
        except BlockingIOError:
            await trio.sleep(LOCK_PAUSE_S)
    raise ConnectionFileError(f"another process keeps the directory {directory} locked")


def _prepare_directory(directory: Path) -> None:
    """Create it for the owner alone, or see that an existing one of ours is so."""
    try:
        directory.mkdir(mode=0o700, parents=True)
        return
    except FileExistsError:
        pass
    status = directory.stat()
    mode = stat.S_IMODE(status.st_mode)
    # In a directory that others can write to, they could put another file in place of ours.
    if status.st_uid not in (os.getuid(), 0) or (mode & 0o022 and not mode & stat.S_ISVTX):
        raise ConnectionFileError(
            f"others can write to the directory {directory} (of user {status.st_uid}, mode {mode:04o}): "
            f"chmod 700 {directory}, or name a file elsewhere"
        )


_FIELDS: dict[str, tuple[type, ...]] = {
    "address": (str,),
    "token": (str,),
    "pid": (int,),
    "process_started": (int,),
    "instance": (str,),
    "version": (str,),
    "started_s": (float, int),
}


_LATER_FIELDS = ("credentials", "host", "name", "http")
"""Texts that are "" in a file without them."""


def _parse(path: Path, text: str) -> ConnectionInfo:
    try:
        data: object = json.loads(text)
        if type(data) is not dict or any(type(data.get(name)) not in kind for name, kind in _FIELDS.items()):
            raise ValueError("a field is missing or of a wrong type")
        fields = {name: data[name] for name in _FIELDS}
        fields["token"] = bytes.fromhex(data["token"])
        fields |= {name: str(data.get(name, "")) for name in _LATER_FIELDS}
        fields["patience_s"] = float(data.get("patience_s", 0.0))
        return ConnectionInfo(**fields)
    except (ValueError, RecursionError) as error:
        raise ConnectionFileError(f"{path} is not a connection file: {error}") from error
