"""The RTS machine: RIFs, their resources, jobs (GSPC19 2.1)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from gspc_trio.components.rm.messages import GrantsAhead, Revoke, Revoked
from gspc_trio.components.rts import events
from gspc_trio.components.rts.actions import (
    HostToResource,
    QuestionRefused,
    Stopped,
    TellRm,
)
from gspc_trio.components.rts.jobs import Jobs
from gspc_trio.components.rts.lifecycle import Actions, LifeCycle
from gspc_trio.components.rts.requests import Requests
from gspc_trio.components.rts.returns import Returns
from gspc_trio.components.rts.state import Add, JobEntry, Limits, Rif, RifState
from gspc_trio.core.ids import JobId, ResourceId, RifId
from gspc_trio.core.machine import IllegalEvent, Tick


class Rts:
    """Owns RIFs, resource DAGs and the list of jobs; the resource manager owns use and allocation (RTS-3).

    Args:
        strategies: names of the strategies there are.
        limits: times and sizes.
    """

    def __init__(self, strategies: frozenset[str], limits: Limits | None = None) -> None:
        self.limits = limits or Limits()
        registered: dict[JobId, JobEntry] = {}
        self._lives = LifeCycle(strategies, self.limits, registered)
        self._requests = Requests(self._lives)
        self._jobs = Jobs(self._lives, registered)
        self._returns = Returns(self._lives, self._jobs)
        self._stopped = False
        self._table: dict[type, Callable[[Any, float, Actions], None]] = {
            events.BootstrapAsked: self._asked,
            events.TeardownAsked: self._asked,
            events.AddAsked: self._asked,
            events.RemoveAsked: self._asked,
            events.WeightAsked: self._asked,
            events.RifUp: self._rif_up,
            events.RifBack: self._returns.rif_back,
            events.RifRestored: self._returns.restored,
            events.JobServerEnded: self._jobs.ended,
            events.RifLost: self._lives.link_lost,
            events.RifEnded: self._lives.ended,
            events.RifUnfit: self._lives.unfit,
            events.RifAnswered: self._requests.answered,
            events.RifRefused: self._requests.refused,
            events.RevokedBy: self._revoked_by,
            events.ResourcesLeft: self._requests.left,
            events.RmAnswered: self._requests.rm_answered,
            events.JobAsked: self._jobs.asked,
            events.JobBack: self._jobs.back,
            events.JobGone: self._jobs.gone,
            events.TakeoverDone: self._jobs.takeover_done,
            Revoke: self._revoke,
            GrantsAhead: self._lives.tell_of_grants,
            events.Stop: self._stop,
            Tick: self._tick,
        }

    # The contract of machines -------------------------------------------------------------------------------

    def handle(self, event: Any, now: float) -> Actions:
        """Take one event and return the actions to carry out, in order.

        Raises:
            IllegalEvent: the event is unknown or impossible now; nothing was changed.
        """
        handler = self._table.get(type(event))
        if handler is None:
            raise IllegalEvent(f"the RTS does not know {type(event).__name__}")
        out: Actions = []
        handler(event, now, out)
        self._lives.expected.tell(out)
        if self._lives.stopping and not self._lives.rifs and not self._stopped:
            self._stopped = True
            out.append(Stopped())
        return out

    def deadline(self) -> float | None:
        """Return the time at which ``Tick`` is due, or None."""
        due = self._lives.deadline(), self._jobs.deadline()
        return min((due_s for due_s in due if due_s is not None), default=None)

    def check(self) -> None:
        """Assert every invariant."""
        self._lives.check()
        self._lives.expected.check(self._lives.rifs.values())
        self._jobs.check()
        assert not self._stopped or not self._lives.rifs

    # What it knows ------------------------------------------------------------------------------------------

    @property
    def rifs(self) -> tuple[Rif, ...]:
        """The RIFs, oldest first; not to be changed."""
        return tuple(self._lives.rifs.values())

    @property
    def named(self) -> tuple[int, int]:
        """Numbers of RIFs and of jobs that were ever named, and so the last parts of the newest names."""
        return self._lives.names.last, self._jobs.names.last

    def skip_names(self, rifs: int, jobs: int) -> None:
        """Name no RIF and no job like one of the first: those belonged to a run-time system of before."""
        self._lives.names.last = max(rifs, self._lives.names.last)
        self._jobs.names.last = max(jobs, self._jobs.names.last)

    @property
    def jobs(self) -> tuple[JobEntry, ...]:
        """The jobs registered now, oldest first."""
        return tuple(self._jobs.registered.values())

    def may_have(self, rif_id: RifId, resource_id: ResourceId) -> bool:
        """Return whether a RIF has this resource, or was asked to have it."""
        rif = self._lives.rifs.get(rif_id)
        if rif is None:
            return False
        added = rif.request.resources if isinstance(rif.request, Add) else ()
        return resource_id in rif.resources or any(one.resource_id == resource_id for one in added)

    def host_to_resource(self) -> HostToResource:
        """Return host -> ids of the resources there are on it, parents before children (RTS-3)."""
        return {
            rif.host: tuple(one.resource_id for one in rif.usable())
            for rif in self.rifs
            if rif.state is RifState.UP
        }

    # Handlers -----------------------------------------------------------------------------------------------

    def _asked(self, event: Any, now: float, out: Actions) -> None:
        if self._lives.stopping:
            out.append(QuestionRefused(event.ask, "the run-time system is stopping"))
        elif isinstance(event, events.BootstrapAsked):
            self._lives.bootstrap(event, now, out)
        elif isinstance(event, events.TeardownAsked):
            self._lives.teardown(event, now, out)
        elif isinstance(event, events.WeightAsked):
            self._jobs.weight_asked(event, out)
        else:
            self._requests.asked(event, out)

    def _rif_up(self, event: events.RifUp, now: float, out: Actions) -> None:
        self._returns.first_word(event, now, out)
        if self._lives.up(event, now, out):
            self._requests.pump(self._lives.by_link[event.link], out)

    def _stop(self, _: events.Stop, now: float, out: Actions) -> None:
        self._lives.stopping = True
        for rif in self.rifs:
            self._lives.stop(rif, now, out)

    def _tick(self, _: Tick, now: float, out: Actions) -> None:
        self._lives.tick(now, out)
        self._jobs.tick(now, out)

    def _revoke(self, event: Revoke, now: float, out: Actions) -> None:
        """Send a revoke to the RIFs concerned; what a lost one had is gone from the RM already."""
        parts: dict[RifId, list[ResourceId]] = {}
        for resource_id in event.resources:
            parts.setdefault(resource_id.partition(".")[0], []).append(resource_id)
        for rif_id, ids in parts.items():
            rif = self._lives.rifs.get(rif_id)
            if rif is None or rif.state not in (RifState.UP, RifState.AWAY):
                continue
            there = tuple(name for name in ids if name in rif.resources and name not in rif.left)
            if there:
                self._lives.revoke(rif, event.grant_id, there, now, out)

    def _revoked_by(self, event: events.RevokedBy, _: float, out: Actions) -> None:
        rif = self._lives.by_link.get(event.link)
        if rif is None or rif.state is not RifState.UP:
            return
        revoked = event.revoked
        foreign = [name for name in revoked.resources if name.partition(".")[0] != rif.rif_id]
        if foreign:
            raise IllegalEvent(f"{rif.rif_id} answered for {', '.join(foreign)}, which it does not have")
        there = tuple(name for name in revoked.resources if name in rif.resources and name not in rif.left)
        rif.settle(there, revoked.grant_id)
        if there:
            out.append(TellRm(Revoked(revoked.grant_id, there)))
