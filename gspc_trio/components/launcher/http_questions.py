"""Questions to the HTTP interface of a launcher, whoever carries them, and how they fail."""

from __future__ import annotations

from pathlib import Path
from typing import Protocol


class StudyUnreachable(Exception):
    """There is no answer from the launcher of a study; the message is one line for people."""


class StudyRefuses(Exception):
    """The launcher refuses what it was asked, and this is why.

    Attributes:
        status: of HTTP.
    """

    def __init__(self, status: int, reason: str) -> None:
        super().__init__(reason)
        self.status = status


class StudyQuestions(Protocol):
    """Asks the launcher of one study.

    Attributes:
        directory: of the study.
    """

    directory: Path

    def get(self, *path: object, **query: object) -> dict[str, object]:
        """Return what there is at a path.

        Raises:
            StudyUnreachable: nobody answers.
            StudyRefuses: there is no such thing.
        """
        ...
