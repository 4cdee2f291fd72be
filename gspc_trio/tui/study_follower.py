"""Follows a study that runs, through the HTTP interface of its launcher."""

from __future__ import annotations

import json
from functools import partial

import trio

from gspc_trio.components.launcher.http_questions import StudyQuestions, StudyRefuses, StudyUnreachable
from gspc_trio.core.ids import JobId
from gspc_trio.core.messages import AnswerT, Question
from gspc_trio.records.lines import BadRecordLine, decode_record
from gspc_trio.tui.model import RTS, Model
from gspc_trio.tui.source import CannotAsk

WAIT_S = 5
"""So long an answer of the launcher waits for news."""

PAUSE_S = 0.2
"""Seconds between two questions."""

RETRY_S = 2.0
"""Pause before a launcher is asked again that has not answered."""


class StudyFollower:
    """Brings the records of a study into a model.

    Args:
        client: asks its launcher.
        model: the fold that takes the records.

    Attributes:
        up: set when the launcher has answered.
    """

    def __init__(self, client: StudyQuestions, model: Model) -> None:
        self.model = model
        self.up: trio.Event = trio.Event()
        self._client = client

    async def run(self) -> None:
        """Follow the study until cancelled."""
        while True:
            try:
                await self._follow()
            except (StudyUnreachable, StudyRefuses) as error:
                self.model.link = str(error)
                self.model.changed()
            await trio.sleep(RETRY_S)

    async def look(self) -> None:
        """Take in how the study is now.

        Raises:
            StudyUnreachable: nobody answers.
        """
        await self._begin()

    async def ask(self, job: JobId | None, message: Question[AnswerT]) -> AnswerT:
        """Refuse: a launcher answers no messages."""
        del job, message
        raise CannotAsk("this is a study: change it with gspc-launcher cancel")

    async def _begin(self) -> int:
        told = await self._get(snapshot=1)
        self.model.begin(RTS)
        number = self._take(told, quiet=True)
        self.model.link = ""
        self.model.changed()
        self.up.set()
        return number

    async def _follow(self) -> None:
        number = await self._begin()
        while True:
            await trio.sleep(PAUSE_S)
            told = await self._get(after=number, wait_s=WAIT_S)
            if told.get("missed"):
                return  # it begins anew
            number = self._take(told, quiet=False)

    async def _get(self, **query: object) -> dict[str, object]:
        return await trio.to_thread.run_sync(
            partial(self._client.get, "events", **query), abandon_on_cancel=True
        )

    def _take(self, told: dict[str, object], *, quiet: bool) -> int:
        """Take in records; return the number to ask with next."""
        events, number = told.get("events"), told.get("next")
        if not isinstance(events, list) or not isinstance(number, int):
            raise StudyUnreachable(f"what answers for {self._client.directory} is no launcher")
        for event in events:
            try:
                record = decode_record(json.dumps(event))
            except BadRecordLine as error:
                raise StudyUnreachable(f"the launcher says what cannot be read: {error}") from error
            self.model.apply(RTS, record, quiet=quiet)
        return number
