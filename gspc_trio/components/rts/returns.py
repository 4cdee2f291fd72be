"""RIFs that come back: to this run-time system, or to one that was started again in its place."""

from __future__ import annotations

from gspc_trio.components.rif.messages import Claim, StopRif
from gspc_trio.components.rm.events import Added, Claimed
from gspc_trio.components.rm.messages import Grant
from gspc_trio.components.rts.actions import (
    CloseJobAt,
    TellRif,
    TellRm,
)
from gspc_trio.components.rts.events import RifConnected, RifRestored
from gspc_trio.components.rts.jobs import Jobs
from gspc_trio.components.rts.lifecycle import LifeCycle
from gspc_trio.components.rts.state import ManagedRif, RifState, checked_dag
from gspc_trio.core.machine import IllegalEvent
from gspc_trio.core.resources import BadResources
from gspc_trio.core.task import Requirement, Shape
from gspc_trio.records.facts import RifChanged


class Returns:
    """Takes back what it had, or what an earlier run-time system had.

    Args:
        lives: the RIFs.
        jobs: whose work they may bring.
    """

    def __init__(self, lives: LifeCycle, jobs: Jobs) -> None:
        self._lives = lives
        self._jobs = jobs

    def restored(self, event: RifRestored) -> None:
        """Await a RIF that an earlier run-time system had; start it again at once if it has ended."""
        lives = self._lives
        if event.rif_id in lives.rifs or any(rif.host == event.host for rif in lives.rifs.values()):
            raise IllegalEvent(f"{event.rif_id} on {event.host} is there already")
        rif = ManagedRif(event.rif_id, event.host, event.strategy, event.cores, dict(event.options))
        rif.incarnation = event.incarnation
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
            self._lives.actions.append(RifChanged(self._lives.now, rif.rif_id, rif.host, *rif.shown))

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
        rif.address, rif.pid, rif.fresh = hello.address, hello.pid, False
        rif.resources = {resource.resource_id: resource for resource in resources}
        lives.come_back(rif, event.link)
        for claim in hello.claims or ():  # before the RM can give what is claimed to whoever waits
            self._claimed(rif, claim, new)
        if new and resources:
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
