"""Tasks that an earlier job server has given out, and whose workers still live: their results are waited for.

A journaled job that is resumed in time adopts the job that it was: what RIFs say of that one's tasks is taken
in as if it had come before. What nobody speaks of is run again.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable

import trio

from gspc_trio.components.job.journal import JournaledEngine
from gspc_trio.components.job.machine import Close, Look, TakenOver
from gspc_trio.components.rif.messages import Orphans
from gspc_trio.core.ids import JobId, RifId, TaskId
from gspc_trio.core.task import Reason

WAIT_S = 60.0
"""How long RIFs may take to say what they have; what none has spoken of by then is run again.

The run-time system tells sooner of those that are lost, unless it has gone and has forgotten them."""


class Takeover:
    """Takes over from an earlier job server.

    Args:
        engine: of the job; it hands out nothing that was under way until it is known to be lost.
        orphan: the job that the earlier job server had.
        rifs: that may have something of it, each of which will say so, or be said to be gone.
        put: takes an event for the job's machine.
    """

    def __init__(
        self,
        engine: JournaledEngine,
        orphan: JobId,
        rifs: Iterable[RifId],
        put: Callable[[Close | Look | TakenOver], None],
    ) -> None:
        self.orphan = orphan
        self._engine = engine
        self._put = put
        self._unheard = set(rifs)
        self._out: dict[RifId, set[TaskId]] = {}
        self._taken: set[TaskId] = set()
        self._heard, self._over = trio.Event(), trio.Event()
        engine.hold_back()

    def report(self, rif_id: RifId, orphans: Orphans | None) -> None:
        """A RIF says what it has, or is gone (None)."""
        self._unheard.discard(rif_id)
        if orphans is None or orphans.over:
            self._out.pop(rif_id, None)
        else:
            out = self._out.setdefault(rif_id, set())
            out.update(orphans.outstanding)
            out.difference_update(outcome.task_id for outcome in orphans.outcomes)
            good = tuple(one for one in orphans.outcomes if one.reason is Reason.FINISHED)
            if good:
                self._taken.update(outcome.task_id for outcome in good)
                self._put(TakenOver(good))
        self._settle()

    def _settle(self) -> None:
        """Hand out what is known to be lost; the takeover ends with the last RIF."""
        if not self._unheard:
            self._heard.set()
            self._engine.release(self._taken.union(*self._out.values()))
            self._put(Look())
            if not self._out:
                self._over.set()

    async def run(self, leave: Callable[[JobId], Awaitable[None]]) -> None:
        """See it through.

        Args:
            leave: tells the run-time system that the earlier job is needed no more.
        """
        if self._unheard:
            with trio.move_on_after(WAIT_S):
                await self._heard.wait()
        self._unheard.clear()
        self._settle()
        await self._over.wait()
        self._put(Close())
        await leave(self.orphan)
