"""How long a request waits for a resource that it prefers: only while others are free does that cost
anything, and only for ``patience_s``, which the requirement says or else the resource manager's limits.

The time runs from when others have come free, or the request has come, whichever is later. While all
resources of the class are in use there is nothing to decline, however long the request has waited for its
turn: the first other one to come free is still declined for a while, since the preferred one may follow at
once. A request that has lost its patience does not find it again before its oldest credit has been used.
"""

from __future__ import annotations

from heapq import heappop, heappush

from gspc_trio.core.rm.jobs import NEVER, Want
from gspc_trio.core.rm.parts import ClassQueue
from gspc_trio.core.rm.pool import Pool
from gspc_trio.core.rm.search import preferred


class Patience:
    """Who waits for what it prefers, and until when.

    Attributes:
        idle: queue -> since when it has had free resources, of those for which somebody waits like this.
        ends_at: when somebody loses patience if nothing else happens, or None.
    """

    def __init__(self, pool: Pool, patience_s: float) -> None:
        self.idle: dict[ClassQueue, float] = {}
        self.ends_at: float | None = None
        self._pool = pool
        self._patience_s = patience_s
        self._timed: list[tuple[float, int, Want]] = []
        """Heap of those that came while others were free, or that are in doubt: when to decide anew."""
        self._together: dict[ClassQueue, dict[float, dict[Want, None]]] = {}
        """The others, by their patience: those with the same for a queue lose it together, so long after
        something has come free."""

    def decide(self, want: Want, now: float) -> None:
        """Let the want wait for what it prefers (for ever if it must), or for any resource of the class."""
        self.forget(want)
        need, queue = want.form.needs[0], want.form.queue
        if need.hard:
            want.patient = True
            return
        idle_since = self.idle.get(queue, NEVER)
        patience_s = self._patience_of(want)
        until = NEVER if idle_since == NEVER else max(want.since, idle_since) + patience_s
        want.patient = patience_s > 0 and now < until and bool(preferred(self._pool, need))
        if want.patient and want.since > idle_since:
            self.doubt(want, until)
        elif want.patient:
            self._together.setdefault(queue, {}).setdefault(patience_s, {})[want] = None

    def ends_for(self, want: Want) -> float | None:
        """Return when the want takes any resource; None: it does, it never will, or none of them is free."""
        idle_since = self.idle.get(want.form.queue)
        if idle_since is None or not want.patient or want.form.needs[0].hard:
            return None
        return max(want.since, idle_since) + self._patience_of(want)

    def _patience_of(self, want: Want) -> float:
        stated_s = want.form.needs[0].patience_s
        return self._patience_s if stated_s is None else stated_s

    def doubt(self, want: Want, until: float) -> None:
        """Decide then whether the want goes on waiting for what it prefers."""
        heappush(self._timed, (until, want.number, want))

    def forget(self, want: Want) -> None:
        """The want waits no more (an entry in the heap goes when it comes up)."""
        queue, patience_s = want.form.queue, self._patience_of(want)
        groups = self._together.get(queue, {})
        together = groups.get(patience_s, {})
        if want in together:
            del together[want]
            if not together:
                del groups[patience_s]
            if not groups:
                del self._together[queue]

    def due(self, now: float) -> list[Want]:
        """Return those about whom to decide now."""
        found = []
        timed = self._timed
        while timed and timed[0][0] <= now:
            found.append(heappop(timed)[2])
        for queue, since in self.idle.items():
            for patience_s, together in self._together.get(queue, {}).items():
                if now >= since + patience_s:
                    found += together
        return found

    def look(self, now: float) -> None:
        """Everything that could be given has been: note what is free all the same."""
        ends_at = self._timed[0][0] if self._timed else NEVER
        if ends_at == NEVER and not self._together:
            self.idle.clear()
        else:
            for queue in self._pool.queues.values():
                if not queue.free:
                    self.idle.pop(queue, None)
                elif queue in self._together:
                    shortest_s = min(self._together[queue])
                    ends_at = min(ends_at, self.idle.setdefault(queue, now) + shortest_s)
                else:
                    self.idle.setdefault(queue, now)
        self.ends_at = None if ends_at == NEVER else ends_at

    def rest(self) -> None:
        """Nobody waits."""
        self.ends_at = None
        self.idle.clear()
        self._timed.clear()
        self._together.clear()

    def watches(self, want: Want) -> bool:
        """Whether the want's patience will be looked at again."""
        together = self._together.get(want.form.queue, {}).get(self._patience_of(want), {})
        return want in together or any(entry[2] is want for entry in self._timed)
