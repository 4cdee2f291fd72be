"""Client of the HTTP interface of a launcher, for commands and the terminal; it blocks."""

from __future__ import annotations

import http.client
import json
import os
from pathlib import Path
from urllib.parse import quote, urlencode, urlsplit

from gspc_trio.components.launcher.http_questions import StudyRefuses, StudyUnreachable
from gspc_trio.components.launcher.shell.http_file import (
    HTTP_FILE,
    SECRETS,
    HttpAccess,
    HttpFileError,
    read_http_file,
)

TIMEOUT_S = 10.0
ANSWER_BYTES_MAX = 64 * 1024 * 1024

STUDY_GLOB = "study-*"
"""Directories of studies whose name nobody has chosen."""


def find_study(directory: Path | None, here: Path) -> Path:
    """Return the directory of a study that runs.

    Args:
        directory: what the user has named; None: the newest that runs in ``here``.
        here: where the user is.

    Raises:
        StudyUnreachable: none runs there.
    """
    if directory is not None:
        if not directory.is_dir():
            raise StudyUnreachable(f"there is no directory {directory}: name the output_dir of a study")
        return directory
    running = [path for path in sorted(here.glob(STUDY_GLOB)) if (path / SECRETS / HTTP_FILE).exists()]
    if not running:
        raise StudyUnreachable(f"no study runs in {here}: name its output_dir with --study DIR")
    return running[-1]


class StudyClient:
    """Asks the launcher of one study.

    Args:
        directory: of the study.
    """

    def __init__(self, directory: Path) -> None:
        self.directory = directory

    def get(self, *path: object, **query: object) -> dict[str, object]:
        """Return what there is at a path.

        Raises:
            StudyUnreachable: nobody answers.
            StudyRefuses: there is no such thing.
        """
        access = self._access()
        asked = urlencode({name: value for name, value in query.items() if value is not None})
        return self._ask(access, "GET", "/" + "/".join(quote(str(word)) for word in path), asked)

    def cancel(self, client_id: int) -> None:
        """Have a client end, as its server can: with the server's secret, which the owner can read.

        Raises:
            StudyUnreachable: nobody answers.
            StudyRefuses: there is no such client.
        """
        incarnation = self.get("status")["incarnation"]
        path = self.directory / SECRETS / f"server.{incarnation}.json"
        try:
            secret = json.loads(path.read_text(encoding="utf-8"))["token"]
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise StudyUnreachable(f"cannot read {path}: {error}") from error
        self._ask(HttpAccess(self._access().address, str(secret)), "DELETE", f"/jobs/{client_id}")

    def _access(self) -> HttpAccess:
        try:
            access = read_http_file(self.directory / SECRETS)
        except HttpFileError as error:
            raise StudyUnreachable(str(error)) from error
        here = os.uname().nodename
        if access.host not in ("", here):  # somebody else may listen at the same port here: tell him nothing
            words = f"runs on the host {access.host}, which alone can reach it, and this is {here}: ask there"
            raise StudyUnreachable(f"the launcher of {self.directory} {words}")
        if access.process_is_gone:
            words = "was killed; gspc-launcher --journal DIR goes on, if it was started so"
            raise StudyUnreachable(f"the launcher of {self.directory} {words}")
        return access

    def _ask(self, access: HttpAccess, method: str, path: str, query: str = "") -> dict[str, object]:
        where = urlsplit(access.address)
        connection = http.client.HTTPConnection(where.hostname or "", where.port, timeout=TIMEOUT_S)
        try:
            headers = {"Authorization": f"Bearer {access.token}".encode()}
            connection.request(method, f"{path}?{query}" if query else path, headers=headers)
            answer = connection.getresponse()
            told: object = json.loads(answer.read(ANSWER_BYTES_MAX))
        except (OSError, http.client.HTTPException, ValueError) as error:
            reason = getattr(error, "strerror", None) or str(error) or type(error).__name__
            words = f"the launcher of {self.directory} does not answer at {access.address}: {reason}"
            raise StudyUnreachable(words) from error
        finally:
            connection.close()
        if not isinstance(told, dict):
            raise StudyUnreachable(f"the launcher of {self.directory} has answered with what is no object")
        if answer.status >= 300:
            raise StudyRefuses(answer.status, str(told.get("error", answer.reason)))
        return told
