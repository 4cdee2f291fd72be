"""The RTS machine: RIFs, their resources, jobs (GSPC19 2.1)."""

from __future__ import annotations

from gspc_trio.components.rif.messages import Claim, StopRif
from gspc_trio.components.rm.events import Added, Claimed
from gspc_trio.components.rm.messages import Grant, GrantsAhead, Revoke, Revoked
from gspc_trio.components.rts import events
from gspc_trio.components.rts.actions import (
    CloseJobAt,
    HostToResource,
    QuestionRefused,
    RtsAction,
    Stopped,
    TellRif,
    TellRm,
)
from gspc_trio.components.rts.events import RifConnected, RifRestored
from gspc_trio.components.rts.history import History
from gspc_trio.components.rts.jobs import Jobs
from gspc_trio.components.rts.lending import Lending
from gspc_trio.components.rts.lifecycle import LifeCycle
from gspc_trio.components.rts.quarantine import Quarantines
from gspc_trio.components.rts.requests import Requests
from gspc_trio.components.rts.state import Add, Limits, ManagedJob, ManagedRif, RifState, checked_dag
from gspc_trio.core.ids import JobId, ResourceId, RifId
from gspc_trio.core.machine import ComposedMachine, IllegalEvent, Tick, handles
from gspc_trio.core.resources import BadResources
from gspc_trio.core.task import Requirement, Shape


class Returns:
    """Takes RIFs back: those that this run-time system had, or an earlier one in whose place it is.

    Args:
        lives: the RIFs.
        jobs: whose work they may bring.
        lending: told what was lent there.
    """

    def __init__(self, lives: LifeCycle, jobs: Jobs, lending: Lending) -> None:
        self._lives = lives
        self._jobs = jobs
        self._lending = lending

    def restored(self, event: RifRestored) -> None:
        """Await a RIF that an earlier run-time system had; start it again at once if it has ended."""
        lives = self._lives
        if event.rif_id in lives.rifs or any(rif.host == event.host for rif in lives.rifs.values()):
            raise IllegalEvent(f"{event.rif_id} on {event.host} is there already")
        rif = ManagedRif(event.rif_id, event.host, event.strategy, event.cores, dict(event.options))
        rif.incarnation = event.incarnation
        rif.block, rif.node, rif.nodes, rif.once = event.block, event.node, event.nodes, event.once
        if rif.block:
            lives.adopt_node(rif, event)
            return
        if event.gone:
            rif.state, rif.timer_at, rif.reason = (
                RifState.LOST,
                self._lives.now,
                "it ended with its run-time system",
            )
        else:
            rif.state, rif.adrift, rif.fresh = RifState.AWAY, True, event.fresh
            rif.timer_at = self._lives.now + rif.awaited_s(lives.limits)
        lives.adopt(rif)

    def first_word(self, event: RifConnected) -> None:
        """A RIF says its first word: it starts on if it was being started when its run-time system went."""
        rif = self._lives.rifs.get(event.hello.rif_id)
        if rif is None or not rif.fresh or rif.incarnation != event.hello.incarnation:
            return
        if rif.state is RifState.AWAY:
            rif.move(RifState.STARTING)
            rif.fresh, rif.timer_at = False, self._lives.now + self._lives.limits.bootstrap_timeout_s
            self._lives.actions.append(rif.record(self._lives.now))

    def rif_back(self, event: RifConnected) -> None:
        """A RIF has connected again: it goes on as it was, or is told to stop."""
        lives, hello = self._lives, event.hello
        if event.link in lives.by_link:
            raise IllegalEvent(f"link {event.link} is that of {lives.by_link[event.link].rif_id} already")
        rif = lives.rifs.get(hello.rif_id)
        same = rif is not None and (rif.incarnation, rif.address) == (hello.incarnation, hello.address)
        if rif is not None and same and rif.link is not None:
            del lives.by_link[rif.link]  # nobody has told yet that its old connection is over
            rif.link = None
            lives.part(rif, "it has connected again")
        if rif is None or rif.incarnation != hello.incarnation or rif.state is not RifState.AWAY:
            self._lives.actions.append(TellRif(event.link, StopRif()))
            return
        new = not rif.resources
        names = {resource.resource_id for resource in hello.hardware}
        try:
            resources = checked_dag(rif, hello.hardware) if new else tuple(rif.resources.values())
            if not new and names != set(rif.resources):
                raise BadResources("it has other resources than before")
        except BadResources as error:
            self._lives.actions.append(TellRif(event.link, StopRif()))
            lives.lose(rif, f"it came back, but {error}")
            return
        rif.address, rif.outside, rif.pid, rif.fresh = hello.address, hello.outside, hello.pid, False
        rif.resources = {resource.resource_id: resource for resource in resources}
        lives.note_end(rif, hello.ends_in_s)
        lives.come_back(rif, event.link)
        for claim in hello.claims or ():  # before the RM can give what is claimed to whoever waits
            self._claimed(rif, claim, new)
        if new and resources:
            self._lending.found(rif)
            self._lives.actions.append(TellRm(Added(resources, rif.host)))

    def _claimed(self, rif: ManagedRif, claim: Claim, new: bool) -> None:
        """Work goes on at a RIF that has come back: its job is awaited, too, unless it is over."""
        assert rif.link is not None
        if not self._jobs.awaits(claim.job, new):
            if claim.job not in self._jobs.registered:
                self._lives.actions.append(CloseJobAt((rif.link,), claim.job))
            return  # or it says itself what it holds, or what it holds is known
        there = [rif.resources[name] for name in claim.resources if name in rif.resources]
        if there:
            shape = Shape(tuple(Requirement(one.resource_class) for one in there))
            ids = tuple(one.resource_id for one in there)
            grant = Grant(claim.job, shape, claim.grant_id, ids)
            self._lives.actions.append(TellRm(Claimed(claim.job, (grant,))))


class Rts(ComposedMachine[events.RtsEvent, RtsAction]):
    """Owns RIFs, resource DAGs and the list of jobs; the resource manager owns use and allocation (RTS-3).

    Args:
        strategies: names of the strategies there are.
        limits: times and sizes.
    """

    noun = "the RTS"

    def __init__(self, strategies: frozenset[str], limits: Limits | None = None) -> None:
        self.limits: Limits = limits or Limits()
        registered: dict[JobId, ManagedJob] = {}
        self._lives = LifeCycle(strategies, self.limits, registered)
        self._quarantines = Quarantines(self._lives, registered)
        super().__init__(self._lives)
        self._requests = Requests(self._lives)
        self._jobs = Jobs(self._lives, registered)
        self._lending = Lending(self._lives, self._requests, registered)
        self._returns = Returns(self._lives, self._jobs, self._lending)
        self._stopped = False

    # The contract of machines -------------------------------------------------------------------------------

    def settle(self) -> None:
        """Tell the RM what comes, and the shell that nothing is left, after any event."""
        lives = self._lives
        self._lending.settle()
        self._quarantines.settle()
        lives.tell_what_comes()
        if lives.stopping and not lives.rifs and not self._stopped:
            self._stopped = True
            lives.actions.append(Stopped())

    def deadline(self) -> float | None:
        """Return the time at which ``Tick`` is due, or None."""
        parts = self._lives, self._quarantines, self._jobs, self._lending
        due = [part.deadline() for part in parts]
        return min((due_s for due_s in due if due_s is not None), default=None)

    def check(self) -> None:
        """Assert every invariant."""
        self._lives.check()
        self._quarantines.check()
        self._jobs.check()
        self._lending.check()
        assert not self._stopped or not self._lives.rifs

    # What it knows ------------------------------------------------------------------------------------------

    @property
    def rifs(self) -> tuple[ManagedRif, ...]:
        """The RIFs, oldest first; not to be changed."""
        return tuple(self._lives.rifs.values())

    def has_blocks(self, strategy: str) -> bool:
        """Return whether there is this strategy, and it starts blocks."""
        return strategy in self._lives.strategies and self._lives.has_blocks(strategy)

    @property
    def named(self) -> tuple[int, int]:
        """Numbers of RIFs and of jobs that were ever named, and so the last parts of the newest names."""
        return self._lives.names.last, self._jobs.names.last

    def add_strategy(self, name: str, come_up_s: float | None = None) -> None:
        """Let RIFs be started by one more strategy, under which they may take so long to come up."""
        self._lives.add_strategy(name, come_up_s)

    def remove_strategy(self, name: str) -> None:
        """Let no further RIF be started by a strategy."""
        self._lives.remove_strategy(name)

    def skip_names(self, rifs: int, jobs: int) -> None:
        """Name no RIF and no job like one of the first: those belonged to a run-time system of before."""
        self._lives.names.last = max(rifs, self._lives.names.last)
        self._jobs.names.last = max(jobs, self._jobs.names.last)

    @property
    def jobs(self) -> tuple[ManagedJob, ...]:
        """The jobs registered now, oldest first."""
        return tuple(self._jobs.registered.values())

    @property
    def history(self) -> History:
        """The jobs that are over; their times are those of this machine."""
        return self._jobs.history

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

    # Users ask ----------------------------------------------------------------------------------------------

    @handles(events.BootstrapAsked, events.TeardownAsked)
    def _rifs_asked(self, event: events.BootstrapAsked | events.TeardownAsked) -> None:
        if self._may_ask(event.ask):
            if isinstance(event, events.BootstrapAsked):
                self._lives.bootstrap(event)
            else:
                self._lives.teardown(event)

    @handles(events.AddAsked, events.RemoveAsked)
    def _resources_asked(self, event: events.AddAsked | events.RemoveAsked) -> None:
        if self._may_ask(event.ask):
            self._requests.asked(event)

    @handles(events.WeightAsked)
    def _weight_asked(self, event: events.WeightAsked) -> None:
        if self._may_ask(event.ask):
            self._jobs.weight_asked(event)

    def _may_ask(self, ask: int) -> bool:
        """Refuse a question while all is being taken down."""
        if self._lives.stopping:
            self._lives.actions.append(QuestionRefused(ask, "the run-time system is stopping"))
        return not self._lives.stopping

    @handles(events.Stop)
    def _stop(self, _: events.Stop) -> None:
        self._lives.stopping = True
        self._jobs.stopped()
        for rif in self.rifs:
            self._lives.stop(rif)

    # RIFs say -----------------------------------------------------------------------------------------------

    @handles(events.RifConnected)
    def _rif_connected(self, event: events.RifConnected) -> None:
        if event.hello.claims is not None:
            self._returns.rif_back(event)
            return
        self._returns.first_word(event)
        if self._lives.up(event):
            self._requests.pump(self._lives.by_link[event.link])

    @handles(events.RifRestored)
    def _rif_restored(self, event: events.RifRestored) -> None:
        self._returns.restored(event)

    @handles(events.RifLost)
    def _rif_lost(self, event: events.RifLost) -> None:
        self._lives.link_lost(event)

    @handles(events.RifWaits)
    def _rif_waits(self, event: events.RifWaits) -> None:
        lives = self._lives
        rif = lives.rifs.get(event.rif_id)
        if rif is None or rif.incarnation != event.incarnation or rif.state is not RifState.STARTING:
            return  # it is up, or over: this was under way
        if rif.link is None and rif.reason != event.reason:
            rif.reason = event.reason
            lives.actions.append(rif.record(lives.now))

    @handles(events.RifOrdered)
    def _rif_ordered(self, event: events.RifOrdered) -> None:
        self._lives.ordered(event)

    @handles(events.RifEnded)
    def _rif_ended(self, event: events.RifEnded) -> None:
        self._lives.ended(event)

    @handles(events.RifUnfit)
    def _rif_unfit(self, event: events.RifUnfit) -> None:
        self._quarantines.unfit(event)

    @handles(events.HostAvoided)
    def _host_avoided(self, event: events.HostAvoided) -> None:
        self._quarantines.avoided(event)

    @handles(events.HostUsed)
    def _host_used(self, event: events.HostUsed) -> None:
        self._quarantines.used(event)

    @handles(events.RifAnswered)
    def _rif_answered(self, event: events.RifAnswered) -> None:
        self._requests.answered(event)

    @handles(events.RifRefused)
    def _rif_refused(self, event: events.RifRefused) -> None:
        self._requests.refused(event)

    @handles(events.RevokedBy)
    def _revoked_by(self, event: events.RevokedBy) -> None:
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
            self._lives.actions.append(TellRm(Revoked(revoked.grant_id, there)))

    # The resource manager says ------------------------------------------------------------------------------

    @handles(events.ResourcesLeft)
    def _resources_left(self, event: events.ResourcesLeft) -> None:
        self._requests.left(event)

    @handles(events.RmAnswered)
    def _rm_answered(self, event: events.RmAnswered) -> None:
        self._requests.rm_answered(event)

    @handles(GrantsAhead)
    def _grants_ahead(self, event: GrantsAhead) -> None:
        self._lives.tell_of_grants(event)

    @handles(Revoke)
    def _revoke(self, event: Revoke) -> None:
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
                self._lives.revoke(rif, event.grant_id, there)

    @handles(events.LendAsked)
    def _lend_asked(self, event: events.LendAsked) -> None:
        if not self._lives.stopping:
            self._lending.asked(event)

    # Job servers say ----------------------------------------------------------------------------------------

    @handles(events.JobConnected)
    def _job_connected(self, event: events.JobConnected) -> None:
        if event.wish.job:
            self._jobs.back(event)
        else:
            self._jobs.asked(event)

    @handles(events.JobServerGone)
    def _job_server_gone(self, event: events.JobServerGone) -> None:
        self._jobs.gone(event)

    @handles(events.TakeoverDone)
    def _takeover_done(self, event: events.TakeoverDone) -> None:
        self._jobs.takeover_done(event)

    @handles(events.JobServerEnded)
    def _job_server_ended(self, event: events.JobServerEnded) -> None:
        self._jobs.ended(event)

    @handles(Tick)
    def _tick(self, _: Tick) -> None:
        self._lives.tick()
        self._quarantines.tick()
        self._jobs.tick()
        self._lending.tick()
