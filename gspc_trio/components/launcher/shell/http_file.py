"""The file with the address and the token of the HTTP interface of a study; its owner alone can read it."""

from __future__ import annotations

from pathlib import Path

from msgspec import Struct

from gspc_trio.nursery.connections.private_file import (
    process_is_gone,
    read_private_file,
    write_private_file,
)
from gspc_trio.protocol.plain import BadPlainData, from_json, to_json

SECRETS = "secret"
"""Directory in that of a study, for what its owner alone can read."""

HTTP_FILE = "http.json"
"""Name of the file, in that directory."""


class HttpFileError(Exception):
    """The file is missing, unsafe or unreadable; the message is one line that says what to do."""


class HttpAccess(Struct, frozen=True):
    """What the file says.

    Attributes:
        address: of the interface, for processes of its host.
        token: lets its owner look.
        host: name of that host, "" if it is not known.
        pid: of the launcher, 0 if it is not known.
        process_started: when that process started (``process_start``), 0 if it is not known.
    """

    address: str
    token: str
    host: str = ""
    pid: int = 0
    process_started: int = 0

    @property
    def process_is_gone(self) -> bool:
        """Whether the launcher was killed, so that its port may be another's by now."""
        return self.pid > 0 and process_is_gone(self.host, self.pid, self.process_started)

    def __repr__(self) -> str:
        return f"HttpAccess({self.address!r})"


def write_http_file(directory: Path, access: HttpAccess) -> Path:
    """Write the file, in one step for whoever reads it, and return its path.

    Raises:
        OSError: it cannot be written.
    """
    path = directory / HTTP_FILE
    write_private_file(path, to_json(access) + "\n")
    return path


def read_http_file(directory: Path) -> HttpAccess:
    """Read the file in the directory of secrets of a study.

    Raises:
        HttpFileError: it is missing, another user's, open to others, or something else.
    """
    path = directory / HTTP_FILE
    try:
        text, problem = read_private_file(path, "file of the launcher")
        if text is None or problem:
            raise HttpFileError(problem or f"{path} is not the file of a launcher")
        return from_json(text, HttpAccess)
    except FileNotFoundError:
        words = "the launcher of this study has ended, or there is no study"
        raise HttpFileError(f"there is no {path}: {words}") from None
    except OSError as error:
        raise HttpFileError(f"cannot read {path}: {error.strerror}") from error
    except (ValueError, BadPlainData) as error:
        raise HttpFileError(f"{path} is not the file of a launcher: {error}") from error
