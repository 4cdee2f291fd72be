"""The file with the address and the token of the HTTP interface of a study; its owner alone can read it."""

from __future__ import annotations

import os
import stat
from pathlib import Path

from msgspec import Struct

from gspc_trio.protocol.plain import BadPlainData, from_json, to_json

SECRETS = "secret"
"""Directory in that of a study, for what its owner alone can read."""

HTTP_FILE = "http.json"
"""Name of the file, in that directory."""

SIZE_BYTES_MAX = 64 * 1024


class HttpFileError(Exception):
    """The file is missing, unsafe or unreadable; the message is one line that says what to do."""


class HttpAccess(Struct, frozen=True):
    """What the file says.

    Attributes:
        address: of the interface, for processes of its host.
        token: lets its owner look.
        host: name of that host, "" if it is not known.
        pid: of the launcher, 0 if it is not known.
    """

    address: str
    token: str
    host: str = ""
    pid: int = 0

    def __repr__(self) -> str:
        return f"HttpAccess({self.address!r})"


def write_http_file(directory: Path, access: HttpAccess) -> Path:
    """Write the file, in one step for whoever reads it, and return its path.

    Raises:
        OSError: it cannot be written.
    """
    path = directory / HTTP_FILE
    temporary = path.with_name(f".{HTTP_FILE}.{os.getpid()}")
    temporary.unlink(missing_ok=True)
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
    try:
        with open(descriptor, "w", encoding="utf-8") as file:
            file.write(to_json(access) + "\n")
        os.replace(temporary, path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    return path


def read_http_file(directory: Path) -> HttpAccess:
    """Read the file in the directory of secrets of a study.

    Raises:
        HttpFileError: it is missing, another user's, open to others, or something else.
    """
    path = directory / HTTP_FILE
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            status = os.fstat(file.fileno())
            if status.st_uid != os.getuid() or stat.S_IMODE(status.st_mode) & 0o077:
                raise HttpFileError(
                    f"{path} is another user's, or others can read it: its token is no secret"
                )
            return from_json(file.read(SIZE_BYTES_MAX), HttpAccess)
    except FileNotFoundError:
        words = "the launcher of this study has ended, or there is no study"
        raise HttpFileError(f"there is no {path}: {words}") from None
    except OSError as error:
        raise HttpFileError(f"cannot read {path}: {error.strerror}") from error
    except (ValueError, BadPlainData) as error:
        raise HttpFileError(f"{path} is not the file of a launcher: {error}") from error
