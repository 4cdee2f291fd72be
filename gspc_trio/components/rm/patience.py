"""Patience: the time for which a request waits for resources that it prefers. It waits only while others are
free, and only for ``patience_s``, which the requirement states or else the resource manager's limits.

The time runs from when others have come free, or the request has come, whichever is later. While there is
nothing else for the request there is nothing to decline, however long it has waited for its turn: the first
other one to come free is still declined for a while, since the preferred one may follow at once. A request
that has lost its patience does not find it again before its oldest credit has been used.

A request for several resources, or with memory, waits for a *strict* form of itself: all that it prefers is
what it must have, as far as that goes together. Each of its requirements insists for as long as it says.
Whether there are others for it is looked at, request by request, when everything that could be given has
been. What is put aside for it counts as others do as soon as a part of that lies idle.

Those that want one resource and nothing else are many, and looked at together, by class.
"""

from __future__ import annotations

from heapq import heappop, heappush

from attrs import evolve
from msgspec.structs import replace

from gspc_trio.components.rm.parts import NEVER, ClassQueue, Form, Need, Want
from gspc_trio.components.rm.pool import Pool
from gspc_trio.components.rm.search import impossible, preferred


class Patience:
    """Who waits for what it prefers, and until when.

    Attributes:
        idle: queue -> since when it has had free resources, of those for which somebody waits like this.
        declined: those for whom something else lies idle -> since when; not those of whom the class says it.
        ends_at: when somebody loses patience if nothing else happens, or None.
        pool: the resources.
    """

    def __init__(self, pool: Pool, patience_s: float) -> None:
        self.idle: dict[ClassQueue, float] = {}
        self.declined: dict[Want, float] = {}
        self.ends_at: float | None = None
        self.pool: Pool = pool
        self._patience_s = patience_s
        self._timed: list[tuple[float, int, Want]] = []
        """Heap of those that came while others were free, or that are in doubt: when to decide anew."""
        self._together: dict[ClassQueue, dict[float, dict[Want, None]]] = {}
        """The others, by their patience: those with the same for a queue lose it together, so long after
        something has come free."""
        self._strict: dict[Want, None] = {}
        """Those that wait for a strict form of themselves."""
        self._judged_at = -1
        """Version of the pool's resources at which it was seen what they can wait for."""
        self._ends: dict[Want, float] = {}
        """Of those for whom something else lies idle: when to decide anew."""

    @property
    def is_simple(self) -> bool:
        """Whether nobody insists on several things at once, or declines what is put aside for it."""
        return not (self._strict or self.declined)

    def begin(self, want: Want) -> None:
        """Let a want that does not wait yet take no more than it prefers."""
        form = want.form
        want.patient = form.preferring
        if form.soft and not form.preferring:
            want.strict = self._insisting(form, self._patient_needs(form, NEVER, 0.0))
            want.patient = want.strict is not None

    def decide(self, want: Want, now: float) -> None:
        """Let the want wait for what it prefers (for ever if it must), or for anything that will do."""
        self._forget(want)
        form = want.form
        if not form.preferring:
            if form.soft:
                want.strict = self._insisting(form, self._patient_needs(form, self._start(want), now))
                want.patient = want.strict is not None
            if want.patient:
                self._strict[want] = None
            return
        need, queue = form.needs[0], form.queue
        if need.hard:
            want.patient = True
            return
        start, patience_s = self._start(want), self._patience_of(need)
        until = start + patience_s
        want.patient = patience_s > 0 and now < until and bool(preferred(self.pool, need))
        if want.patient and want.since > self.idle.get(queue, NEVER):
            self.doubt(want, until)
        elif want.patient:
            self._together.setdefault(queue, {}).setdefault(patience_s, {})[want] = None

    def _start(self, want: Want) -> float:
        """Return since when the want has declined something, or NEVER."""
        since = self.declined.get(want, NEVER)
        if want.form.preferring:
            since = min(since, self.idle.get(want.form.queue, NEVER))
        return since if since == NEVER else max(want.since, since)

    def _patience_of(self, need: Need) -> float:
        return self._patience_s if need.patience_s is None else need.patience_s

    def _patient_needs(self, form: Form, start: float, now: float) -> tuple[int, ...]:
        """Return the positions of those who insist on what they prefer, having done so since ``start``."""
        patience_s = [(position, self._patience_of(form.needs[position])) for position in form.soft]
        return tuple(position for position, some_s in patience_s if some_s > 0 and now < start + some_s)

    def _insisting(self, form: Form, positions: tuple[int, ...]) -> Form | None:
        """Return what someone waits for who insists, at these positions, on what he prefers.

        One that is not there, or does not go together with those before, is not insisted on; None if that
        leaves nothing.
        """
        if form.strict_at != self.pool.changed:
            form.strict_at = self.pool.changed
            form.strict.clear()
        if positions not in form.strict:
            found: Form | None = None
            requirements = list(form.shape.requirements)
            for position in positions:
                if not preferred(self.pool, form.needs[position]):
                    continue
                before = requirements[position]
                requirements[position] = evolve(before, hard=True, patience_s=None)
                strict = Form(replace(form.shape, requirements=tuple(requirements)), self.pool.queue)
                if impossible(self.pool, strict) is None:
                    found = strict
                else:
                    requirements[position] = before
            form.strict[positions] = found
        return form.strict[positions]

    def strict_form(self, want: Want) -> Form | None:
        """Return what the want waits for as long as it is patient; None: for anything that will do."""
        if want.form.preferring and want.form.soft and want.patient:
            return self._insisting(want.form, want.form.soft)
        return want.strict

    def ends_for(self, want: Want) -> float | None:
        """Return when the want takes anything; None: it does, it never will, or there is nothing else."""
        start = self._start(want)
        if start == NEVER or not want.patient or not want.form.soft:
            return None
        return start + max(self._patience_of(want.form.needs[position]) for position in want.form.soft)

    def declines(self, want: Want, now: float) -> None:
        """From now on something else lies idle that the want could have."""
        self.declined[want] = now

    def resume(self, want: Want) -> None:
        """There is nothing else for the want any more: it may wait for what it prefers."""
        self.declined.pop(want, None)

    def doubt(self, want: Want, until: float) -> None:
        """Decide then whether the want goes on waiting for what it prefers."""
        heappush(self._timed, (until, want.number, want))

    def leave(self, want: Want) -> None:
        """The want waits no more (an entry in the heap goes when it comes up)."""
        self._forget(want)
        self.declined.pop(want, None)

    def _forget(self, want: Want) -> None:
        want.patient, want.strict = False, None
        self._strict.pop(want, None)
        if not want.form.preferring:
            return
        queue, patience_s = want.form.queue, self._patience_of(want.form.needs[0])
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
        if self._ends:
            found += [want for want, end in self._ends.items() if end <= now]
        if self._judged_at != self.pool.changed:
            self._judged_at = self.pool.changed
            found += self._strict
        return found

    def look(self, now: float) -> None:
        """Everything that could be given has been: note what is free all the same."""
        ends_at = self._timed[0][0] if self._timed else NEVER
        if ends_at == NEVER and not self._together:
            self.idle.clear()
        else:
            for queue in self.pool.queues.values():
                if not queue.free:
                    self.idle.pop(queue, None)
                elif queue in self._together:
                    shortest_s = min(self._together[queue])
                    ends_at = min(ends_at, self.idle.setdefault(queue, now) + shortest_s)
                else:
                    self.idle.setdefault(queue, now)
        if self.declined or self._ends:
            self._ends = {want: self._next_end(want, now) for want in self.declined}
            ends_at = min(ends_at, min(self._ends.values(), default=NEVER))
        self.ends_at = None if ends_at == NEVER else ends_at

    def _next_end(self, want: Want, now: float) -> float:
        """Return when the first of its needs that still insists will insist no more."""
        start, needs = self._start(want), want.form.needs
        ends = [start + self._patience_of(needs[position]) for position in want.form.soft]
        return min((end for end in ends if end > now), default=NEVER)

    def rest(self) -> None:
        """Nobody waits."""
        self.ends_at = None
        self.idle.clear()
        self.declined.clear()
        self._ends.clear()
        self._timed.clear()
        self._together.clear()
        self._strict.clear()

    def watches(self, want: Want) -> bool:
        """Whether the want's patience will be looked at again."""
        if want in self._strict:
            return True
        together = self._together.get(want.form.queue, {}).get(self._patience_of(want.form.needs[0]), {})
        return want in together or any(entry[2] is want for entry in self._timed)
