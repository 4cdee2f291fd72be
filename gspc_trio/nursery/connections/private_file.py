"""Files that their owner alone can read, and processes that may have ended since they wrote one."""

from __future__ import annotations

import os
import secrets
import socket
import stat
from pathlib import Path

SIZE_BYTES_MAX = 64 * 1024


def write_private_file(path: Path, text: str) -> None:
    """Write a file, in one step for whoever reads it.

    Raises:
        OSError: it cannot be written.
    """
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(8)}")
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
    try:
        with open(descriptor, "w", encoding="utf-8") as file:
            file.write(text)
        os.replace(temporary, path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


def read_private_file(path: Path, kind: str) -> tuple[str | None, str]:
    """Return what a file says, and why the token in it is no secret, "" if it is one.

    Args:
        path: of the file.
        kind: what it is, for people.

    Returns:
        the text, None if it is no regular file; and a sentence.

    Raises:
        OSError: it cannot be read.
    """
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOCTTY)
    with open(descriptor, encoding="utf-8", errors="replace") as file:
        status = os.fstat(file.fileno())
        if not stat.S_ISREG(status.st_mode):
            return None, ""
        mode, problem = stat.S_IMODE(status.st_mode), ""
        if status.st_uid != os.getuid():
            problem = f"the {kind} {path} belongs to user {status.st_uid}, not to you"
        elif mode & 0o077:
            problem = (
                f"others can read the {kind} {path} (mode {mode:04o}), so its token is not secret: "
                f"chmod 600 {path}, and restart the service"
            )
        return file.read(SIZE_BYTES_MAX), problem


def process_is_gone(host: str, pid: int, started: int) -> bool:
    """Return whether a process has ended; its pid may be another's by now.

    Of one on another host that cannot be told.

    Args:
        host: on which it runs, "" if unknown.
        pid: of the process.
        started: when it started (:func:`process_start`), 0 if unknown.
    """
    if host not in ("", socket.gethostname()):
        return False
    now = process_start(pid)
    return now is None or (started > 0 and now not in (0, started))


def process_start(pid: int) -> int | None:
    """Return when a process started (ticks since the host did), 0 if unknown, None if it is gone.

    One that has ended, and whose parent has not asked how, is gone.
    """
    try:
        fields = Path(f"/proc/{pid}/stat").read_text(errors="replace").rpartition(")")[2].split()
        return None if fields[0] == "Z" else int(fields[19])
    except (OSError, ValueError, IndexError):
        pass
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return None
    except (PermissionError, OverflowError):
        pass
    return 0
