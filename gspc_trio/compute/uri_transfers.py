"""A process that fetches and stores what URIs name, by fsspec and its drivers, one after another.

The template forks it, so what a driver does or where it hangs concerns nobody else: its RIF kills it. It ends
when its RIF is gone, or wants nothing for a while.
"""

from __future__ import annotations

import errno
import os
import resource
import socket
import tempfile
from array import array
from collections.abc import Sequence
from contextlib import contextmanager
from time import monotonic
from typing import TYPE_CHECKING, Any

from gspc_trio.compute.channel import (
    CONTROL_BYTES_MAX,
    DONE,
    FAILED,
    FETCH,
    FOUND,
    MOVED,
    STORE,
    pack,
    unpack,
)
from gspc_trio.compute.folders import enter, find_files, open_plain, whole_file
from gspc_trio.core.file_sets import escape, is_directory
from gspc_trio.core.imports import missing_extra
from gspc_trio.core.uri import (
    FILE_SCHEMES,
    HTTP_SCHEMES,
    URI_BYTES_MAX,
    BadUri,
    UriPart,
    mask_text,
    mask_uri,
    name_in_uri,
    parts_of_uri,
    path_of,
    set_of,
    unfinished,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

IDLE_S = 10.0
"""So long a process waits for the next order."""

COPY_BYTES = 1 << 20
SAID_BYTES = 1 << 20
SAID_S = 0.5
"""So often it is said how far a transfer is, at most."""

FOUND_BYTES = 1 << 14
"""About so many bytes of names are in one packet."""

_LASTING = frozenset(
    {
        *(errno.EACCES, errno.EPERM, errno.ENOENT, errno.EISDIR, errno.ENOTDIR, errno.EEXIST, errno.ELOOP),
        *(errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EFBIG, errno.EINVAL, errno.ENAMETOOLONG),
    }
)
"""Errors of the system that do not pass when something is tried again."""

_LASTING_TYPES = (
    *(FileNotFoundError, PermissionError, ImportError, ValueError, TypeError, LookupError, AttributeError),
    NotImplementedError,
)

_PASSING_STATUSES = frozenset({408, 425, 429})
"""Answers of HTTP that mean that it may be tried again, beside those of a server in trouble (5xx)."""

_MISSING = (404, 410)


class TooLarge(ValueError):
    """There are more bytes than there may be."""


def serve(channel: socket.socket) -> None:
    """Carry out the orders that come, one after another, until the RIF is gone or wants nothing more."""
    while True:
        channel.settimeout(IDLE_S)
        try:
            data, ancillary, _, _ = channel.recvmsg(CONTROL_BYTES_MAX, socket.CMSG_SPACE(4))
        except OSError:
            return
        if not data:
            return
        channel.settimeout(None)
        descriptors = array("i")
        for _, _, attached in ancillary:
            descriptors.frombytes(attached)
        kind, uri, host, allowed, temporary, amount = unpack(data)
        try:
            answer = _Order(channel, uri, host, allowed, temporary, amount).carry_out(kind, list(descriptors))
        except Exception as error:  # of any driver
            answer = [FAILED, may_pass(error), describe(error, uri)]
        finally:
            for descriptor in descriptors:
                os.close(descriptor)
        channel.sendall(pack(answer))


def may_pass(error: BaseException) -> bool:
    """Return whether what was asked for may succeed when it is tried again."""
    error = _root(error)
    if status := status_of(error):
        return status >= 500 or status in _PASSING_STATUSES
    if isinstance(error, _LASTING_TYPES) or "Credential" in type(error).__name__:
        return False
    return not (isinstance(error, OSError) and error.errno in _LASTING)


def status_of(error: BaseException) -> int:
    """Return the status of HTTP that an error of a driver has, 0 if it has none."""
    answer = getattr(error, "response", None)
    if isinstance(answer, dict):  # as botocore has it
        answer = answer.get("ResponseMetadata")
        found = [answer.get("HTTPStatusCode")] if isinstance(answer, dict) else []
    else:
        found = [getattr(one, name, None) for one in (error, answer) for name in ("status", "status_code")]
    return next((status for status in found if isinstance(status, int) and 100 <= status < 600), 0)


def _root(error: BaseException) -> BaseException:
    """Return the error by which a driver has come to say that there is no such file, if that is not it."""
    cause = error.__cause__
    if not isinstance(error, FileNotFoundError) or cause is None:
        return error
    return error if status_of(cause) in _MISSING else cause


def describe(error: BaseException, uri: str) -> str:
    """Return what has gone wrong in one line, without secrets."""
    error = _root(error)
    if isinstance(error, FileNotFoundError) or status_of(error) in _MISSING:
        why = "there is no such file"
    elif isinstance(error, OSError) and error.errno == errno.EFBIG:
        why = "it has more bytes than the files of a task may have (StageLimits.file_bytes_max)"
    elif isinstance(error, BadUri | TooLarge | _NoDriver | _NotAllowed):
        why = str(error)
    elif isinstance(error, ValueError) and "range requests" in str(error):
        why = "the server sends no parts of files: put simplecache:: before http"
    elif isinstance(error, OSError) and error.strerror:
        why = error.strerror
    else:
        why = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
    return mask_text(" ".join(why.split()), uri)[:1000]


class _NoDriver(ImportError):
    """The driver of a scheme is not installed."""


class _NotAllowed(PermissionError):
    """A file of this host is none that a task may name."""

    def __str__(self) -> str:
        return str(self.args[0])


class _Order:
    """What is to be done with one URI.

    Args:
        channel: to the RIF.
        uri: what.
        host: name of this one.
        allowed: directories of this host in which files may be.
        temporary: directory for what drivers keep meanwhile.
        amount: bytes that may be moved, or files that may be found.
    """

    def __init__(
        self,
        channel: socket.socket,
        uri: str,
        host: str,
        allowed: Sequence[str],
        temporary: str,
        amount: int,
    ) -> None:
        self._channel = channel
        self._uri = uri
        self._host = host
        self._parts = parts_of_uri(uri)
        self._allowed = allowed
        self._temporary = temporary
        self._amount = amount
        self._said_bytes = 0
        self._said_s = monotonic()

    def carry_out(self, kind: int, descriptors: Sequence[int]) -> list[object]:
        """Do it; return the answer."""
        os.environ["TMPDIR"] = tempfile.tempdir = self._temporary
        _, most = resource.getrlimit(resource.RLIMIT_FSIZE)
        bound = self._amount if kind == FETCH else most
        resource.setrlimit(resource.RLIMIT_FSIZE, (bound if most < 0 else min(bound, most), most))
        if kind == FETCH:
            return [DONE, self._fetch(descriptors[0])]
        if kind == STORE:
            self._store(descriptors[0])
            return [DONE, self._amount]
        return self._list()

    # Fetch

    def _fetch(self, target: int) -> int:
        os.ftruncate(target, 0)
        os.lseek(target, 0, os.SEEK_SET)
        if self._is_file:
            with self._opened_file(self._parts[0]) as source:
                self._copy(source, target)
            return os.fstat(target).st_size
        known: list[int] = []

        def moved(size: int | None, value: int, **_: object) -> None:
            known[:] = [] if size is None else [size]
            self._moved(max(value, size or 0), value)

        with self._driver() as (driver, path):
            from fsspec.callbacks import Callback  # from here on it is there

            driver.get_file(path, f"/proc/self/fd/{target}", callback=Callback(hooks={"moved": moved}))
        size_bytes = os.fstat(target).st_size
        self._moved(size_bytes, size_bytes)
        if known and size_bytes < known[0] and self._parts[0].scheme not in HTTP_SCHEMES:
            raise OSError(f"only {size_bytes} of its {known[0]} bytes have come")
        return size_bytes

    def _moved(self, size_bytes: int, moved_bytes: int) -> None:
        """Say now and then how far it is."""
        if size_bytes > self._amount:
            raise TooLarge(f"{size_bytes} bytes in a file are more than it may have ({self._amount})")
        now = monotonic()
        if moved_bytes - self._said_bytes >= SAID_BYTES or now - self._said_s >= SAID_S:
            self._said_bytes, self._said_s = moved_bytes, now
            self._channel.sendall(pack([MOVED, moved_bytes]))

    def _copy(self, source: int, target: int) -> None:
        size_bytes, offset = os.fstat(source).st_size, 0
        self._moved(size_bytes, 0)
        while done := os.sendfile(target, source, offset, COPY_BYTES):
            offset += done
            self._moved(offset, offset)

    # Store

    def _store(self, source: int) -> None:
        if len(self._parts) > 1:
            raise BadUri("nothing is stored in a chain: name one file")
        scheme = self._parts[0].scheme
        if self._is_file:
            self._store_file(source)
            return
        with self._driver() as (driver, path):
            if scheme in HTTP_SCHEMES:
                self._put(driver, path, source)
                return
            with driver.transaction, driver.open(path, "wb") as target:
                offset = 0
                while data := os.pread(source, COPY_BYTES, offset):
                    target.write(data)
                    offset += len(data)
                    self._moved(0, offset)

    def _put(self, driver: Any, path: str, source: int) -> None:
        from fsspec.callbacks import Callback

        def moved(size: int | None, value: int, **_: object) -> None:
            del size
            self._moved(0, value)

        driver.put_file(
            f"/proc/self/fd/{source}",
            path,
            callback=Callback(hooks={"moved": moved}),
            method="put",
            headers={"Content-Length": str(self._amount)},
        )

    def _store_file(self, source: int) -> None:
        """Write a file of this host: it is seen when it is whole."""
        way, name = os.path.split(path_of(self._parts[0]))
        if not name:
            raise BadUri(f"{mask_uri(self._uri)} is a directory, not a file")
        where = self._enter(way, make=True)
        own_name = os.path.basename(unfinished(path_of(self._parts[0]), self._temporary))
        try:
            with whole_file(where, name, own_name) as target:
                self._copy(source, target)
        finally:
            os.close(where)

    # List

    def _list(self) -> list[object]:
        """Say which files there are, all but the last in packets of their own."""
        found = self._found()
        if len(found) > self._amount:
            raise TooLarge(f"{len(found)} files match it; at most {self._amount} may be")
        packet: list[str] = []
        size_bytes = 0
        for uri in found:
            uri_bytes = len(uri.encode("utf-8", "surrogateescape"))
            if uri_bytes > URI_BYTES_MAX:  # whoever is told could neither read that nor fetch it
                raise TooLarge(f"a file there has a name with which its URI is too long ({uri_bytes} bytes)")
            size_bytes += uri_bytes
            if packet and size_bytes > FOUND_BYTES:
                self._channel.sendall(pack([FOUND, True, packet]))
                packet, size_bytes = [], 0
            packet.append(uri)
        return [FOUND, False, packet]

    def _found(self) -> list[str]:
        first = set_of(self._uri)
        if not first:
            return [self._uri] if self._is_there() else []
        _, chained, behind = self._uri.partition("::")
        base = first[: first.rindex("/", 0, first.index("*")) + 1] if "*" in first else first
        if self._is_file:
            names = self._files_below(path_of(UriPart("file", base.partition("://")[2])), first[len(base) :])
            return [base + name_in_uri(base, name) for name in names]
        with self._driver() as (driver, path):
            start = driver._strip_protocol(base).rstrip("/")
            if is_directory(first):
                found = driver.find(start)
            else:
                found = driver.glob("*".join(map(escape, path.split("*"))))
                found = [one for one in found if not driver.isdir(one)]
        names = [name[len(start) :].lstrip("/") for name in found]
        return sorted(base + name + chained + behind for name in names)

    def _is_there(self) -> bool:
        try:
            if self._is_file:
                with self._opened_file(self._parts[0]):
                    return True
            with self._driver() as (driver, path):
                driver.info(path)
        except FileNotFoundError as error:
            if _root(error) is error:
                return False
            raise _root(error) from None
        return True

    def _files_below(self, directory: str, pattern: str) -> list[str]:
        try:
            where = self._enter(directory)
        except FileNotFoundError:
            return []
        try:
            return find_files(where, pattern or "./", self._amount)
        finally:
            os.close(where)

    # Files of this host

    @property
    def _is_file(self) -> bool:
        return len(self._parts) == 1 and self._parts[0].scheme in FILE_SCHEMES

    def _enter(self, path: str, make: bool = False) -> int:
        """Return a descriptor of a directory in which files may be; nothing on the way there is a link."""
        real = os.path.realpath(path)
        for directory in self._allowed:
            allowed = os.path.realpath(directory)
            if os.path.commonpath((allowed, real)) == allowed:
                start = os.open(allowed, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
                try:
                    return enter(start, [part for part in real[len(allowed) :].split("/") if part], make)
                finally:
                    os.close(start)
        below = " or ".join(self._allowed) or "no directory"
        raise _NotAllowed(
            f"on host {self._host}, file:// may name files below {below} alone; --allow-files DIR adds one"
        )

    @contextmanager
    def _opened_file(self, part: UriPart) -> Iterator[int]:
        way, name = os.path.split(os.path.realpath(path_of(part)))
        where = self._enter(way)
        try:
            source, _ = open_plain(where, name, name, links=True)
        finally:
            os.close(where)
        try:
            yield source
        finally:
            os.close(source)

    # Drivers

    @contextmanager
    def _driver(self) -> Iterator[tuple[Any, str]]:
        """Have the driver of the URI, and what it calls the file.

        A file of this host in a chain is opened here.
        """
        try:
            import fsspec
        except ModuleNotFoundError as error:
            why = missing_extra("a URI", "fsspec", "uri")
            raise _NoDriver(f"{why} on host {self._host}") from error
        *wrappers, last = self._parts
        for part in self._parts:
            _load_driver(part.scheme, self._host)
        options: dict[str, dict[str, object]] = {
            part.scheme: {"skip_instance_cache": True} for part in self._parts
        }
        if last.scheme in HTTP_SCHEMES:
            options[last.scheme]["client_kwargs"] = _http_options()
        with self._opened_file(last) if last.scheme in FILE_SCHEMES else _nothing() as opened:
            inner = last if opened is None else UriPart("file", f"/proc/self/fd/{opened}")
            text = "::".join(map(str, (*wrappers, inner)))
            options.setdefault(inner.scheme, {})
            yield fsspec.core.url_to_fs(text, **options)


@contextmanager
def _nothing() -> Iterator[None]:
    yield None


def _load_driver(scheme: str, host: str) -> None:
    from fsspec.registry import get_filesystem_class, known_implementations

    try:
        get_filesystem_class(scheme)
    except ImportError as error:
        cause = error.__cause__
        home = known_implementations.get(scheme, {}).get("class", "").partition(".")[0]
        package = cause.name if home == "fsspec" and isinstance(cause, ImportError) and cause.name else home
        if isinstance(cause, ModuleNotFoundError) or cause is None:
            raise _NoDriver(f"{scheme}:// needs the package {package or scheme} on host {host}") from error
        raise _NoDriver(f"the driver of {scheme}:// does not work on host {host}: {cause}") from error
    except ValueError:
        raise _NoDriver(f"fsspec knows no driver for {scheme}:// on host {host}") from None


def _http_options() -> dict[str, object]:
    """Return how HTTP is spoken: as long as bytes come, and with the proxies and logins of this host."""
    from aiohttp import ClientTimeout

    return {
        "timeout": ClientTimeout(total=None, sock_connect=30.0),
        "trust_env": True,
        "headers": {"Accept-Encoding": "identity"},
    }
