"""Sources of a terminal's model: a running system, or a file."""

from __future__ import annotations

from typing import Protocol

from gspc_trio.core.ids import JobId
from gspc_trio.core.messages import AnswerT, Question
from gspc_trio.tui.model import Model

LAYER = "iml"
"""Who is asked, in place of a job, for the memory layer that stands alone."""

COALLOCATION = "coallocation"
"""Who is asked, in place of a job, for the co-allocation service of the user."""


class CannotAsk(Exception):
    """There is nobody to ask; the message is one line for people."""


class Source(Protocol):
    """Fills a model, and carries questions to whoever knows.

    Attributes:
        model: what it fills; may be another one after a time.
        why_not: why nothing can be changed through it, "" if it can.
    """

    model: Model
    why_not: str

    def start(self) -> None:
        """Begin; called in the asyncio loop of the terminal."""
        ...

    async def stop(self) -> None:
        """End; nothing is left afterwards."""
        ...

    def beat(self, elapsed_s: float) -> None:
        """Some time has passed; called several times a second."""
        ...

    def title(self) -> tuple[str, str]:
        """Return what it shows, for the first line, and the name of a style."""
        ...

    async def ask(self, job: JobId | None, message: Question[AnswerT]) -> AnswerT:
        """Return the answer of a job server, of the RTS (None), of the memory layer (LAYER), or of the
        co-allocation service (COALLOCATION).

        Raises:
            CannotAsk: there is nobody to ask, or it refused.
        """
        ...
