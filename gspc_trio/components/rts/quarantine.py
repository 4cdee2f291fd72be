"""Quarantine of hosts: the RM gives out nothing of them and has grants given back; what runs there goes on.

A host is in it for one of two reasons. Its RIF cannot start processes: then it is tried again after a while,
and each time in which it fails at once this while is longer. Or monitoring has found an anomaly: then it is
in it until monitoring says otherwise, for only that sees when the anomaly is over; but the last host that can
be used is never in it for this reason, since a slow host is better than none. What monitoring says stands
while its RIF is away, started again, or gets other resources. Memory of a host stays in use in either case.
If the host may fail, jobs are told to evacuate it: they bring away what runs and lies there.

An anomaly may slow some tasks down only: those with files, say. Then the RM gives the host out as ever, and
jobs are told for which tasks they are not to use it, as long as there is a host without any anomaly.
"""

from __future__ import annotations

import math
from collections.abc import Collection

from msgspec.structs import replace

from gspc_trio.components.rm.events import Rested, Resumed
from gspc_trio.components.rts.actions import TellJobs, TellRm
from gspc_trio.components.rts.events import HostAvoided, HostUsed, RifUnfit
from gspc_trio.components.rts.lifecycle import LifeCycle
from gspc_trio.components.rts.messages import Evacuate, Rest, Restrict
from gspc_trio.components.rts.state import ManagedRif, Quarantine, Restriction, RifState
from gspc_trio.core.ids import JobId, ResourceId
from gspc_trio.core.resources import MEMORY_CLASS


class Quarantines:
    """Which hosts are not used.

    Args:
        lives: the RIFs.
        jobs: those that are told what is to be evacuated.
    """

    def __init__(self, lives: LifeCycle, jobs: Collection[JobId]) -> None:
        self._lives = lives
        self._jobs = jobs
        self._wished: dict[str, HostAvoided] = {}
        self._resting: dict[ManagedRif, None] = {}
        self._restricted: dict[ManagedRif, None] = {}

    def unfit(self, event: RifUnfit) -> None:
        """A host could not start a process: use it no more for a while."""
        lives = self._lives
        rif = lives.by_link.get(event.link)
        if rif is None or rif.state is not RifState.UP or rif.quarantine is not None:
            return
        tops = _tops(rif)
        if not tops:  # all has been removed: should something be added, it will say so again
            return
        delays_s = lives.limits.quarantine_delays_s
        if lives.now - rif.fit_at >= lives.limits.stable_after_s:
            rif.quarantines = 0
        due_s = lives.now + delays_s[min(rif.quarantines, len(delays_s) - 1)]
        rif.quarantines += 1
        self._begin(rif, Quarantine(event.reason, due_s, tops))

    def avoided(self, event: HostAvoided) -> None:
        """Use a host no more, or less, until it is said, unless no other one could be used."""
        before, evacuate, uses = self._wished.get(event.host), event.evacuate, event.uses
        if before is not None:  # another anomaly makes it no better
            evacuate = evacuate or before.evacuate
            uses = tuple(sorted({*uses, *before.uses})) if uses and before.uses else ()
        self._wished[event.host] = HostAvoided(event.host, event.reason, evacuate, uses)
        for rif in self._of(event.host):
            if rif.quarantine is not None and not uses:
                self._avoid_more(rif, rif.quarantine, self._wished[event.host])

    def used(self, event: HostUsed) -> None:
        """Use a host again that was avoided."""
        self._wished.pop(event.host, None)
        for rif in self._of(event.host):
            if rif.quarantine is not None and rif.quarantine.due_s == math.inf:
                self._end(rif, rif.quarantine)

    def settle(self) -> None:
        """Avoid what is to be avoided and has come back since, or was the last one; never all."""
        for rif in list(self._resting):
            if rif.quarantine is None:
                del self._resting[rif]  # it is lost
            else:
                self._follow(rif, rif.quarantine)
        if not (self._wished or self._restricted):
            return
        ready = [rif for rif in self._lives.rifs.values() if rif.state is RifState.UP and _stays(rif)]
        self._avoid(ready)
        self._restrict(ready)

    def _avoid(self, ready: list[ManagedRif]) -> None:
        """Avoid hosts for all tasks, but never all that are ready."""
        used = [rif for rif in ready if rif.quarantine is None]
        wished = [(rif, self._wished[rif.host]) for rif in used if rif.host in self._wished]
        for rif, wish in sorted(wished, key=lambda one: not one[1].evacuate):
            if len(used) > 1 and not wish.uses:
                used.remove(rif)
                self._begin(rif, Quarantine(wish.reason, math.inf, _tops(rif), wish.evacuate))
        avoided = [rif for rif in ready if rif.quarantine is not None and rif.quarantine.due_s == math.inf]
        if not used and avoided:
            last = next((rif for rif in avoided if not self._wished[rif.host].evacuate), avoided[0])
            assert last.quarantine is not None
            self._end(last, last.quarantine)

    def _restrict(self, ready: list[ManagedRif]) -> None:
        """Have jobs avoid hosts for some tasks, as long as there is one for these."""
        is_free = any(rif.quarantine is None and rif.host not in self._wished for rif in ready)
        for rif in dict.fromkeys((*ready, *self._restricted)):
            wish = self._wished.get(rif.host)
            wanted = None
            if rif.state is RifState.AWAY:
                wanted = rif.restriction
            elif is_free and wish is not None and wish.uses and rif in ready and rif.quarantine is None:
                wanted = Restriction(wish.reason, wish.uses)
            is_gone = rif.state not in (RifState.UP, RifState.AWAY)
            if wanted is None:
                self._restricted.pop(rif, None)
            else:
                self._restricted[rif] = None
            if wanted != rif.restriction and not is_gone:
                rif.restriction = wanted
                self._lives.actions.append(rif.record(self._lives.now))
                if self._jobs:
                    told = ((), "") if wanted is None else (wanted.uses, wanted.reason)
                    self._lives.actions.append(TellJobs(tuple(self._jobs), Restrict(rif.rif_id, *told)))

    def _follow(self, rif: ManagedRif, pause: Quarantine) -> None:
        """Have all of a host rest, whatever was added and removed since."""
        tops = _tops(rif)
        if rif.state is not RifState.UP or tops == pause.resource_ids:
            return
        new = tuple(name for name in tops if name not in pause.resource_ids)
        if new:
            self._lives.actions.append(TellRm(Rested(new)))
        rif.quarantine = replace(pause, resource_ids=tops)

    def _avoid_more(self, rif: ManagedRif, before: Quarantine, wish: HostAvoided) -> None:
        """A host that is not used has another reason for it."""
        rif.quarantine = Quarantine(wish.reason, math.inf, before.resource_ids, wish.evacuate)
        self._lives.actions.append(rif.record(self._lives.now))
        if wish.evacuate and not before.evacuate:
            self._tell_jobs(rif, wish.reason, evacuate=True)

    def tick(self) -> None:
        """Try those hosts again whose time has come."""
        for rif in self._lives.rifs.values():
            pause = rif.quarantine
            if pause is not None and pause.due_s <= self._lives.now:
                rif.fit_at = self._lives.now
                self._end(rif, pause)

    def deadline(self) -> float | None:
        """Return the earliest time at which a host is to be tried again."""
        pauses = (rif.quarantine for rif in self._lives.rifs.values() if rif.quarantine is not None)
        return min((pause.due_s for pause in pauses if pause.due_s < math.inf), default=None)

    def check(self) -> None:
        """Assert that only hosts are in it that are there, with something that could be used."""
        for rif in self._lives.rifs.values():
            pause = rif.quarantine
            if pause is not None:
                assert rif.state in (RifState.UP, RifState.AWAY), rif
                assert rif.state is RifState.AWAY or pause.resource_ids == _tops(rif), rif
                assert pause.due_s < math.inf or rif.host in self._wished, rif
                assert pause.due_s == math.inf or rif.quarantines, rif
            assert rif.restriction is None or rif in self._restricted, rif
            assert rif.restriction is None or rif.state in (RifState.UP, RifState.AWAY), rif

    def _of(self, host: str) -> list[ManagedRif]:
        return [rif for rif in self._lives.rifs.values() if rif.host == host]

    def _begin(self, rif: ManagedRif, quarantine: Quarantine) -> None:
        rif.quarantine, self._resting[rif] = quarantine, None
        self._lives.actions.append(rif.record(self._lives.now))
        self._lives.actions.append(TellRm(Rested(quarantine.resource_ids)))
        self._tell_jobs(rif, quarantine.reason, quarantine.evacuate)

    def _end(self, rif: ManagedRif, quarantine: Quarantine) -> None:
        rif.quarantine = None
        del self._resting[rif]
        self._lives.actions.append(rif.record(self._lives.now))
        self._tell_jobs(rif, "", quarantine.evacuate)  # first: what they are granted of it then they may use
        if quarantine.resource_ids:
            self._lives.actions.append(TellRm(Resumed(quarantine.resource_ids)))

    def _tell_jobs(self, rif: ManagedRif, reason: str, evacuate: bool) -> None:
        """Have jobs evacuate a host, or count on it no more, or use it again."""
        if self._jobs:
            message = Evacuate(rif.rif_id, reason) if evacuate else Rest(rif.rif_id, reason)
            self._lives.actions.append(TellJobs(tuple(self._jobs), message))


def _stays(rif: ManagedRif) -> bool:
    """Return whether something of a host can be given out that is not to be removed."""
    return any(name not in rif.leaving for name in _tops(rif))


def _tops(rif: ManagedRif) -> tuple[ResourceId, ...]:
    return tuple(
        name
        for name, one in rif.resources.items()
        if not one.parents and one.resource_class != MEMORY_CLASS and name not in rif.left
    )
