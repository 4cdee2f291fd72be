"""Resources that waiting tasks have lent: another one like each, for as long as its task waits.

A lent resource has the CPUs and the parents of its lender, and an id of its own. When fewer tasks wait it
rests: nothing more runs on it, what runs goes on to its end. It is used again when a task waits again, and
removed when none did for a while.
"""

from __future__ import annotations

from msgspec import Struct, field
from msgspec.structs import replace

from gspc_trio.components.rm.events import Rested, Resumed
from gspc_trio.components.rts.actions import Answer, QuestionRefused, TellRm
from gspc_trio.components.rts.events import AddAsked, LendAsked, RemoveAsked
from gspc_trio.components.rts.lifecycle import LifeCycle
from gspc_trio.components.rts.requests import Requests
from gspc_trio.components.rts.state import ManagedJob, ManagedRif, RifState
from gspc_trio.core.ids import JobId, ResourceId, host_name
from gspc_trio.core.nested import LENT_MAX
from gspc_trio.core.resources import LENT, is_lent, lender_of

LENT_KEEP_S = 2.0
"""A lent resource that rests for so long is removed."""

RETRY_S = 0.2
"""After so long a resource that could not be added is asked for again."""

_ANSWERS = (Answer, QuestionRefused)


class _Copy(Struct, eq=False):
    """A lent resource.

    Attributes:
        resource_id: its id.
        ask: the question that was asked last, to add or to remove it, until it is answered.
        there: whether it is added.
        rests: whether nothing more runs on it.
        since_s: since when it rests.
    """

    resource_id: ResourceId
    ask: int = 0
    there: bool = False
    rests: bool = False
    since_s: float = 0.0

    @property
    def is_idle(self) -> bool:
        """Whether it may be removed when it has rested for long enough."""
        return self.rests and self.there and not self.ask


class _Lender(Struct, eq=False):
    """A resource, how many tasks of each job wait on it, and what was lent of it, oldest first.

    ``last`` is the number of the newest, ``retry_at`` when to ask again for what was refused.
    """

    wanted: dict[JobId, int] = field(default_factory=dict)
    copies: list[_Copy] = field(default_factory=list)
    last: int = 0
    retry_at: float | None = None

    @property
    def count(self) -> int:
        return sum(self.wanted.values())


class Lending:
    """Has resources added, rested and removed as tasks wait and go on.

    Args:
        lives: the RIFs.
        requests: adds and removes resources.
        jobs: those there are.
    """

    def __init__(self, lives: LifeCycle, requests: Requests, jobs: dict[JobId, ManagedJob]) -> None:
        self._lives = lives
        self._requests = requests
        self._jobs = jobs
        self._lenders: dict[ResourceId, _Lender] = {}
        self._asked: dict[int, ResourceId] = {}
        self._last_ask = 0

    def asked(self, event: LendAsked) -> None:
        """A job says how many of its tasks wait on a resource."""
        lender_id = lender_of(event.resource_id)
        rif = self._lives.rifs.get(host_name(lender_id))
        there = rif is not None and lender_id in rif.resources
        if not self._is_there(event.job) or not (there or lender_id in self._lenders):
            return  # it is gone, and its tasks with it
        lender = self._lenders.setdefault(lender_id, _Lender())
        lender.wanted.pop(event.job, None)
        if event.count:
            lender.wanted[event.job] = min(event.count, LENT_MAX)  # more an honest job does not lend

    def _is_there(self, job: JobId) -> bool:
        """Whether its job server can be heard."""
        return job in self._jobs and self._jobs[job].away_until is None

    def found(self, rif: ManagedRif) -> None:
        """A RIF has come back to a run-time system that may not know what was lent there."""
        for name in rif.resources:
            if not is_lent(name):
                continue
            lender = self._lenders.setdefault(lender_of(name), _Lender())
            if all(copy.resource_id != name for copy in lender.copies):
                lender.last = max(lender.last, int(name.rpartition(LENT)[2]))
                lender.copies.append(_Copy(name, there=True))

    def settle(self) -> None:
        """Have lent what is wanted, and take the answers to what was asked here."""
        while self._lenders or self._asked:
            for lender_id, lender in list(self._lenders.items()):
                self._settle(lender_id, lender)
            actions = self._lives.actions
            answers = [one for one in actions if isinstance(one, _ANSWERS) and one.ask in self._asked]
            if not answers:
                return
            asked = {answer.ask for answer in answers}
            actions[:] = [one for one in actions if not (isinstance(one, _ANSWERS) and one.ask in asked)]
            for answer in answers:
                self._answered(answer)

    def _settle(self, lender_id: ResourceId, lender: _Lender) -> None:
        """Forget what is gone, and have so many lent as are wanted."""
        rif = self._lives.rifs.get(host_name(lender_id))
        there = rif.resources if rif is not None else {}
        if lender_id not in there:  # somebody has removed it, or its host is lost
            lender.wanted.clear()
        for job in [job for job in lender.wanted if not self._is_there(job)]:
            del lender.wanted[job]  # should it come back, it says again what it lends
        if any(copy.there and copy.resource_id not in there for copy in lender.copies):
            lender.copies = [one for one in lender.copies if not one.there or one.resource_id in there]
        if rif is not None and rif.state is RifState.UP and lender.retry_at is None:
            self._adjust(rif, lender_id, lender)
        if not (lender.copies or lender.wanted):
            del self._lenders[lender_id]

    def _answered(self, answer: Answer | QuestionRefused) -> None:
        lender_id = self._asked.pop(answer.ask)
        lender = self._lenders.get(lender_id, _Lender())
        refused = isinstance(answer, QuestionRefused)
        for copy in [one for one in lender.copies if one.ask == answer.ask]:
            copy.ask = 0
            if copy.there and refused:
                continue  # it could not be removed: once more after a while
            if refused:
                lender.copies.remove(copy)
                lender.retry_at = self._lives.now + RETRY_S
            elif copy.there:
                lender.copies.remove(copy)
            else:
                copy.there = True
                if copy.rests:
                    self._lives.actions.append(TellRm(Rested((copy.resource_id,))))

    def _adjust(self, rif: ManagedRif, lender_id: ResourceId, lender: _Lender) -> None:
        """Have so many that do not rest as are wanted."""
        working = [copy for copy in lender.copies if not copy.rests]
        resting = [copy for copy in lender.copies if copy.rests and not (copy.there and copy.ask)]
        for copy in working[lender.count :]:
            copy.rests, copy.since_s = True, self._lives.now
            if copy.there:
                self._lives.actions.append(TellRm(Rested((copy.resource_id,))))
        for _ in range(lender.count - len(working)):
            if resting:
                copy = resting.pop(0)
                copy.rests = False
                if copy.there:
                    self._lives.actions.append(TellRm(Resumed((copy.resource_id,))))
            else:
                self._add(rif, lender_id, lender)

    def _add(self, rif: ManagedRif, lender_id: ResourceId, lender: _Lender) -> None:
        lender.last += 1
        copy = _Copy(f"{lender_id}{LENT}{lender.last}", self._next_ask(lender_id))
        lender.copies.append(copy)
        resource = replace(rif.resources[lender_id], resource_id=copy.resource_id, memory_bytes=0)
        self._requests.asked(AddAsked(copy.ask, rif.rif_id, (resource,)))

    def _next_ask(self, lender_id: ResourceId) -> int:
        """Return a number that no question of a user has: those count up."""
        self._last_ask -= 1
        self._asked[self._last_ask] = lender_id
        return self._last_ask

    def deadline(self) -> float | None:
        """Return when a resource is to be removed, or asked for again."""
        lenders = self._lenders.values()
        times = [one.since_s + LENT_KEEP_S for lender in lenders for one in lender.copies if one.is_idle]
        times += [lender.retry_at for lender in lenders if lender.retry_at is not None]
        return min(times, default=None)

    def tick(self) -> None:
        """Remove what has rested for long, ask again for what was refused, forget what is gone."""
        now = self._lives.now
        for lender_id, lender in list(self._lenders.items()):
            rif = self._lives.rifs.get(host_name(lender_id))
            for copy in lender.copies:
                if rif is not None and copy.is_idle and copy.since_s + LENT_KEEP_S <= now:
                    copy.since_s, copy.ask = now, self._next_ask(lender_id)
                    self._requests.asked(RemoveAsked(copy.ask, rif.rif_id, (copy.resource_id,), "wait"))
            if lender.retry_at is not None and lender.retry_at <= now:
                lender.retry_at = None

    def check(self) -> None:
        """Assert that questions and resources agree."""
        asks = {copy.ask for lender in self._lenders.values() for copy in lender.copies if copy.ask}
        assert asks <= set(self._asked), (asks, self._asked)
