"""A resource manager as one of several: what it takes, and what it says, at one time (ASP-11)."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TypeAlias

from gspc_trio.components.managers.messages import (
    JobWords,
    ManagerClaim,
    ManagerEvent,
    ManagerWords,
    Word,
    WordToJob,
)
from gspc_trio.components.rm.events import RmAction, RmEvent
from gspc_trio.components.rm.machine import ResourceManager
from gspc_trio.components.rm.messages import Grant, GrantsAhead, Offence, Revoke
from gspc_trio.components.rm.replay_log import ENDING
from gspc_trio.components.rts.events import ResourcesLeft, RmAnswered
from gspc_trio.core.ids import JobId
from gspc_trio.core.machine import IllegalEvent, Machine, Tick
from gspc_trio.records.facts import GrantChanged, Record, ResourceChanged

WORDS_MIN = 1000
"""A manager says so many words at least before it says what all jobs hold."""

WORDS_PER_GRANT = 16
"""And so many for each grant that is live then, so that this costs little beside the words."""

Said: TypeAlias = RmAction | Revoke | ResourcesLeft | RmAnswered | GrantsAhead
"""What a resource manager decides, and what its run-time system hears of it."""


class MemberManager:
    """The machine of a manager: it takes what a job says at one time as one event.

    Args:
        rm: the resource manager.
        answering: the same, with what its run-time system hears.
        claims: what it gives is a claim, which names what it had been told by then.

    Attributes:
        told: number of events that it has taken.
    """

    def __init__(
        self, rm: ResourceManager, answering: Machine[RmEvent, Said], *, claims: bool = False
    ) -> None:
        self.rm = rm
        self.told: int = 0
        self.claims = claims
        self._answering = answering
        self.deadline: Callable[[], float | None] = rm.deadline
        self.check: Callable[[], None] = rm.check

    def handle(self, event: ManagerEvent, now: float) -> list[Said | ManagerClaim | Offence]:
        """Take one event; see :class:`gspc_trio.core.machine.Machine`.

        A word of a job that cannot be changes nothing, nor does what the job has said after it.
        """
        if type(event) is not Tick:
            self.told += 1
        said: list[Said | ManagerClaim | Offence] = []
        if isinstance(event, JobWords):
            try:
                for word in event.words:
                    said += self._answering.handle(word, now)
            except IllegalEvent as error:
                said.append(Offence(event.job, f"{type(word).__name__}: {error}"))
        else:
            said += self._answering.handle(event, now)
        if self.claims:
            return [ManagerClaim(self.told, one) if type(one) is Grant else one for one in said]
        return said


class Outgoing:
    """Gathers what a manager says at one time; what belongs to one job is said together.

    Args:
        member: the manager. Unless it claims, it says now and then what all jobs hold and wait for.
        checkpoint_words: after how many words it does so; 0: as many as cost little beside the words.
    """

    def __init__(self, member: MemberManager, checkpoint_words: int = 0) -> None:
        self._member = member
        self._checkpoint_words = checkpoint_words
        self._by_job: dict[JobId, list[WordToJob]] = {}
        self._records: list[Record] = []
        self._ready: list[Word] = []
        self._words = 0

    def add(self, said: Iterable[Said | ManagerClaim | Offence]) -> None:
        """Add what it says."""
        claims = self._member.claims
        for one in said:
            if isinstance(one, GrantChanged):
                if not claims and one.job != ENDING:
                    self._records.append(one)
            elif isinstance(one, WordToJob):
                self._by_job.setdefault(one.job, []).append(one)
                self._words += 1
            elif isinstance(one, ResourceChanged):
                if not claims:
                    self._records.append(one)
            else:  # nothing overtakes it
                self._gather()
                self._ready.append(one)

    def take(self) -> list[Word]:
        """Return what is to be said now, in order."""
        self._gather()
        rm = self._member.rm
        due = self._checkpoint_words or max(WORDS_MIN, WORDS_PER_GRANT * rm.held)
        if not self._member.claims and self._words >= due:
            self._words = 0
            self._ready.append(rm.checkpoint(self._member.told))
        ready, self._ready = self._ready, []
        return ready

    def _gather(self) -> None:
        if self._by_job or self._records:
            by_job = tuple((job, tuple(words)) for job, words in self._by_job.items())
            self._ready.append(ManagerWords(by_job, tuple(self._records)))
            self._by_job.clear()
            self._records.clear()
