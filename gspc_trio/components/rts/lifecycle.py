"""The life of RIFs: started, up, lost and started again, failed, taken down (RTS-5).

While one is up it revokes what it is told to, and rests for a while when its host cannot start processes.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

from gspc_trio.components.rif.messages import StopRif
from gspc_trio.components.rm.events import Added, Awaited, Removed
from gspc_trio.components.rm.messages import GrantsAhead, Revoke
from gspc_trio.components.rts.actions import (
    DropLink,
    KillRif,
    QuestionRefused,
    RtsAction,
    StartRif,
    TellJobs,
    TellRif,
    TellRm,
    TellStrategy,
)
from gspc_trio.components.rts.awaiting import ComingRifs, Questions
from gspc_trio.components.rts.events import (
    BootstrapAsked,
    RifConnected,
    RifEnded,
    RifLost,
    RifOrdered,
    RifRestored,
    TeardownAsked,
    refusal_of,
)
from gspc_trio.components.rts.messages import Evacuate, Rest, Restrict, RifGone, RifUp
from gspc_trio.components.rts.state import (
    Add,
    Limits,
    ManagedJob,
    ManagedRif,
    RifState,
    check_rif,
    checked_dag,
)
from gspc_trio.core.ids import Counter, GrantId, JobId, ResourceId, RifId
from gspc_trio.core.machine import IllegalEvent, Turn
from gspc_trio.core.resources import BadResources
from gspc_trio.records.facts import RifChanged

UNCONFIRMED = "it did not say in time that revoked work has ended"


class LifeCycle(Turn[RtsAction]):
    """RIFs and the questions that wait for them.

    Args:
        strategies: names of those there are.
        limits: times and sizes.
        jobs: those that hear of RIFs; only looked at here.
    """

    def __init__(self, strategies: frozenset[str], limits: Limits, jobs: Mapping[JobId, ManagedJob]) -> None:
        super().__init__()
        self.strategies: frozenset[str] = strategies
        self.limits = limits
        self.rifs: dict[RifId, ManagedRif] = {}
        self.by_link: dict[int, ManagedRif] = {}
        self._jobs = jobs
        self.stopping = False
        self.names: Counter = Counter("r")
        self.grants_ahead: GrantsAhead | None = None
        self._hosts: dict[str, ManagedRif] = {}
        self._questions = Questions()
        self._coming = ComingRifs()

    def add_strategy(self, name: str, come_up_s: float | None) -> None:
        """See Rts."""
        self.strategies |= {name}
        if come_up_s is not None:
            self.limits.come_up_s[name] = come_up_s

    def remove_strategy(self, name: str) -> None:
        """See Rts."""
        self.strategies -= {name}
        self.limits.come_up_s.pop(name, None)

    # Bootstrap ----------------------------------------------------------------------------------------------

    def bootstrap(self, event: BootstrapAsked) -> None:
        """Start a RIF on each host, or say at once why not."""
        has_blocks = self.has_blocks(event.strategy)
        reason = refusal_of(event, self.strategies, len(self.rifs), self.limits.rifs_max, has_blocks)
        if reason:
            self.actions.append(QuestionRefused(event.ask, reason))
            return
        batch = self._questions.begin_bootstrap(event.ask)
        taken = {rif.block for rif in self.rifs.values() if rif.once} if has_blocks else set()
        for host, block, node in event.places(has_blocks):
            if block in taken or (event.nodes and block in self._hosts):
                batch.failed[host] = f"there is a block {block} already"
                continue
            there = self._hosts.get(host)
            if there is not None and there.is_to_come_again and not there.end_s(self.limits):
                self._try_now(there, event)
                batch.waiting.add(there.rif_id)
                continue
            if there is not None and there.state is not RifState.FAILED:
                batch.failed[host] = f"{host} has the RIF {there.rif_id} already ({there.state})"
                continue
            if there is not None:
                self._forget(there)
            rif = ManagedRif(
                self.names.next_name(), host, event.strategy, event.cores, dict(event.options), ask=event.ask
            )
            rif.block, rif.node, rif.nodes, rif.once = block, node, event.nodes or 1, event.nodes > 0
            self.rifs[rif.rif_id] = self._hosts[host] = rif
            batch.waiting.add(rif.rif_id)
            self._start(rif)
        self.actions.extend(self._questions.answer_bootstrap(event.ask))

    def _try_now(self, rif: ManagedRif, event: BootstrapAsked) -> None:
        """A person, who may have mended the host, does not wait for the next try of a lost RIF."""
        if (rif.strategy, rif.cores, rif.options) != (event.strategy, event.cores, dict(event.options)):
            rif.strategy, rif.cores, rif.options = event.strategy, event.cores, dict(event.options)
            rif.wanted, rif.proven = None, False
        rif.ask, rif.tries = event.ask, 0
        self._start(rif)

    def _start(self, rif: ManagedRif) -> None:
        if rif.state is not RifState.STARTING:
            rif.move(RifState.STARTING)
        rif.incarnation += 1
        rif.running, rif.reason = True, ""
        rif.killed = rif.adrift = rif.fresh = rif.doubled = rif.ordered = False
        rif.until_s = None
        rif.timer_at = self.now + self._come_up_s(rif)
        self.actions.append(start_of(rif))
        self._record(rif)

    def has_blocks(self, strategy: str) -> bool:
        """Return whether a strategy starts batch jobs, which wait in a queue for as long as it takes."""
        return self.limits.come_up_s.get(strategy) == math.inf

    def ordered(self, event: RifOrdered) -> None:
        """A RIF of a block has its order: from now on it is to come up as soon as any."""
        rif = self.rifs.get(event.rif_id)
        if rif is None or rif.incarnation != event.incarnation or rif.link is not None:
            return
        if rif.state is RifState.STARTING:
            rif.ordered, rif.timer_at = True, self.now + self.limits.bootstrap_timeout_s

    def _tell_strategy(self, rif: ManagedRif, lost: str = "") -> None:
        """Whoever keeps the block of a RIF hears whether that is connected."""
        if rif.block:
            is_connected = rif.link is not None and not lost
            self.actions.append(TellStrategy(rif.block, rif.node, rif.incarnation, is_connected, lost))

    def _come_up_s(self, rif: ManagedRif) -> float:
        return self.limits.come_up_s.get(rif.strategy, self.limits.bootstrap_timeout_s)

    def note_end(self, rif: ManagedRif, ends_in_s: float | None) -> None:
        """A RIF says when its host ends: it is taken down a little before."""
        if ends_in_s is not None:
            rif.until_s = self.now + max(0.0, ends_in_s - self.limits.end_margin_s)

    def up(self, event: RifConnected) -> bool:
        """Take the first word of a RIF; return whether it is to get its resources now."""
        if event.link in self.by_link:
            raise IllegalEvent(f"link {event.link} is that of {self.by_link[event.link].rif_id} already")
        hello = event.hello
        rif = self.rifs.get(hello.rif_id)
        why = ""
        if rif is None or hello.incarnation != rif.incarnation:
            why = f"the newest is {rif.incarnation}" if rif else "there is no such RIF"
        elif rif.state is not RifState.STARTING or rif.link is not None:
            why = f"it is {rif.state}" if rif.state is not RifState.STARTING else "it is connected already"
        if rif is None or why:
            if rif is not None and rif.incarnation == hello.incarnation:
                rif.doubled = rif.link is not None or rif.state is RifState.AWAY
            refused = f"{hello.rif_id} incarnation {hello.incarnation} is refused: {why}"
            self.actions.append(DropLink(event.link, refused))
            return False
        rif.link, rif.pid, rif.reason = event.link, hello.pid, ""
        rif.address, rif.outside = hello.address, hello.outside
        if self._come_up_s(rif) != self.limits.bootstrap_timeout_s:  # from now on it is as quick as any
            rif.timer_at = self.now + self.limits.bootstrap_timeout_s
        self.note_end(rif, hello.ends_in_s)
        self.by_link[event.link] = rif
        self._tell_strategy(rif)
        if self.grants_ahead is not None:
            self.actions.append(TellRif(event.link, self.grants_ahead))
        try:
            wanted = checked_dag(rif, hello.hardware if rif.wanted is None else rif.wanted)
        except BadResources as error:
            self.lose(rif, f"its hardware makes no sense: {error}")
            return False
        if not wanted:
            self.open(rif)
            return False
        rif.waiting.append(Add(wanted))
        return True

    def tell_of_grants(self, event: GrantsAhead) -> None:
        """Tell all RIFs how high grants may count from now on, and those that come later when they come."""
        self.grants_ahead = event
        self.actions.extend(TellRif(link, event) for link in self.by_link)

    def open(self, rif: ManagedRif) -> None:
        """The RIF is up, with what it was to have at first."""
        rif.move(RifState.UP)
        rif.up_at, rif.timer_at, rif.wanted = self.now, None, None
        self._record(rif)
        self.announce(rif)
        if rif.resources:
            self.actions.append(TellRm(Added(tuple(rif.resources.values()), rif.host)))
        else:
            self._conclude(rif, "")

    def taken(self, rif: ManagedRif, refusal: str) -> None:
        """The RM has taken in what a RIF came up with, or would not."""
        if refusal:
            self.lose(rif, refusal)
        else:
            self._conclude(rif, "")

    def announce(self, rif: ManagedRif) -> None:
        """Tell all jobs what the RIF has now."""
        if self._jobs:
            self.actions.extend(announcements(rif, tuple(self._jobs), self.now))

    # Loss ---------------------------------------------------------------------------------------------------

    def link_lost(self, event: RifLost) -> None:
        """The connection of a RIF is over: the RIF is lost, unless it was stopping."""
        rif = self.by_link.pop(event.link, None)
        if rif is None:
            return
        rif.link = None
        self._tell_strategy(rif)
        if rif.state is not RifState.STOPPING:
            self.part(rif, event.reason)
        elif rif.adrift:
            self._forget(rif)

    def part(self, rif: ManagedRif, reason: str) -> None:
        """A RIF cannot be heard any more: it is awaited if it may come back as it was, else lost."""
        if not (self.limits.grace_s and rif.state is RifState.UP and rif.is_idle):
            self.lose(rif, reason)
            return
        rif.move(RifState.AWAY)
        rif.reason, rif.timer_at = reason, self.now + self.limits.grace_s
        self._put_off(rif)
        self._record(rif)

    def adopt(self, rif: ManagedRif) -> None:
        """Take in a RIF that an earlier run-time system had."""
        self.rifs[rif.rif_id] = self._hosts[rif.host] = rif
        self._coming.changed(rif)

    def adopt_node(self, rif: ManagedRif, event: RifRestored) -> None:
        """Take in a RIF of a block, whose batch job goes on to run, or to wait in the queue."""
        self.adopt(rif)
        if event.fresh:
            self._start(rif)
            return
        rif.state, rif.running = RifState.AWAY, True
        rif.timer_at = self.now + (0.0 if event.gone else rif.awaited_s(self.limits))
        self.actions.append(start_of(rif, taken=True))

    def come_back(self, rif: ManagedRif, link: int) -> None:
        """A RIF that was away can be heard again."""
        rif.link = link
        self.by_link[link] = rif
        self._tell_strategy(rif)
        if self.grants_ahead is not None:
            self.actions.append(TellRif(link, self.grants_ahead))
        rif.move(RifState.UP)
        rif.up_at, rif.timer_at, rif.reason = self.now, None, ""
        self._record(rif)
        self.announce(rif)
        self._make_up(rif)

    def ended(self, event: RifEnded) -> None:
        """Nothing is left of an incarnation."""
        rif = self.rifs.get(event.rif_id)
        if rif is None or not rif.running or rif.incarnation != event.incarnation:
            raise IllegalEvent(f"{event.rif_id} incarnation {event.incarnation} does not run")
        rif.running = False
        if rif.once and rif.state is not RifState.STOPPING and not event.adrift:
            self._node_ended(rif, event)
        elif event.adrift and self.limits.grace_s and rif.state in (RifState.UP, RifState.AWAY):
            rif.adrift = True
        elif rif.state is RifState.STOPPING and rif.doubled:
            rif.adrift, rif.killed, rif.timer_at = True, False, self.now + self.limits.last_end_s
        elif rif.state is RifState.STOPPING:
            self._forget(rif)
        elif rif.state is RifState.LOST:
            if event.reason and event.reason not in rif.reason:
                rif.reason = f"{rif.reason}; {event.reason}"
            self._settle(rif)
        else:
            self.lose(rif, event.reason or "it ended")

    def _node_ended(self, rif: ManagedRif, event: RifEnded) -> None:
        """It is over with the block of a RIF, or another process has come in place of this one."""
        if rif.state is not RifState.LOST:
            self.lose(rif, event.reason or "it ended")
        if event.again:
            rif.wanted = None
            self._start(rif)
        else:
            rif.reason = event.reason or rif.reason
            self._forget(rif)

    def lose(self, rif: ManagedRif, reason: str) -> None:
        """A RIF that was starting or up is over: whatever it had is gone, and what is left of it is ended."""
        was_up = rif.state in (RifState.UP, RifState.AWAY)
        if rif.state is RifState.UP or rif.resources:
            rif.wanted = rif.staying()
            if self.now - rif.up_at >= self.limits.stable_after_s:
                rif.tries = 0
        rif.move(RifState.LOST)
        rif.reason, rif.timer_at = reason, None
        if rif.running or rif.is_first_try:
            self._record(rif)
        self._coming.changed(rif)
        self._cut(rif, reason)
        if was_up:
            self._withdraw(rif, reason)
        self._refuse_requests(rif, f"{rif.rif_id} was lost: {reason}")
        if rif.once:  # forgotten with its block, unless the batch system puts another in its place
            rif.until_s = None
            self._tell_strategy(rif, reason or "it was lost")
            self._conclude(rif, reason)
            if rif.adrift:
                self._forget(rif)
        elif rif.running:
            self._kill(rif)
        else:
            self._settle(rif)

    def _withdraw(self, rif: ManagedRif, reason: str) -> None:
        """Take all resources of a RIF from jobs and RM."""
        if self._jobs:
            self.actions.append(TellJobs(tuple(self._jobs), RifGone(rif.rif_id, rif.incarnation, reason)))
        self.tell_what_comes()  # first, or the RM would refuse who waits for what comes back
        if usable := rif.usable():
            self.actions.append(TellRm(Removed(tuple(resource.resource_id for resource in usable), "lose")))
        for what in (rif.resources, rif.leaving, rif.left, rif.owed, rif.unsaid):
            what.clear()
        rif.quarantine = rif.restriction = None

    def _settle(self, rif: ManagedRif) -> None:
        """Nothing is left of a lost RIF: bootstrap it again after a pause, or say that it did not come up.

        One whose host ends now has done what it was for.
        """
        if rif.until_s is not None and rif.until_s <= self.now:
            self._conclude(rif, rif.reason)
            self._forget(rif)
            return
        if not rif.is_first_try:
            self._conclude(rif, rif.reason)
            delays = self.limits.retry_delays_s
            rif.pause_s = max(delays[min(rif.tries, len(delays) - 1)], rif.end_s(self.limits))
            rif.timer_at = self.now + rif.pause_s
            rif.tries += 1
            self._record(rif)
            return
        rif.move(RifState.FAILED)
        self._record(rif)
        self._conclude(rif, rif.reason)

    def _refuse_requests(self, rif: ManagedRif, reason: str) -> None:
        self.actions.extend(QuestionRefused(ask, reason) for ask in rif.drop_requests())

    def _cut(self, rif: ManagedRif, reason: str) -> None:
        if rif.link is not None:
            del self.by_link[rif.link]
            self.actions.append(TellRif(rif.link, StopRif()) if rif.adrift else DropLink(rif.link, reason))
            rif.link = None

    def _kill(self, rif: ManagedRif) -> None:
        if not rif.killed:
            rif.killed = True
            self.actions.append(KillRif(rif.rif_id, rif.incarnation))

    # Revocations --------------------------------------------------------------------------------------------

    def revoke(self, rif: ManagedRif, grant_id: GrantId, names: tuple[ResourceId, ...]) -> None:
        """Have a RIF end what runs under a grant, and say when nothing of it is left.

        The RM waits for one that is away.
        """
        if rif.link is not None:
            rif.owe(grant_id, names, self.now + self.limits.revoke_timeout_s)
            self.actions.append(TellRif(rif.link, Revoke(grant_id, names)))
            return
        assert rif.timer_at is not None, "nobody awaits it"
        rif.unsaid[grant_id] = (*rif.unsaid.get(grant_id, ()), *names)
        # When it is back at the last moment, it has the usual time to answer.
        self.actions.append(TellRm(Awaited(grant_id, rif.timer_at + 2 * self.limits.revoke_timeout_s)))

    def _put_off(self, rif: ManagedRif) -> None:
        """A RIF has gone away before it has answered: it is told again."""
        owed = {grant_id: tuple(sorted(one.resource_ids)) for grant_id, one in rif.owed.items()}
        rif.owed.clear()
        for grant_id, names in owed.items():
            self.revoke(rif, grant_id, names)

    def _make_up(self, rif: ManagedRif) -> None:
        """Tell a RIF that is back what it is to revoke."""
        unsaid = dict(rif.unsaid)
        rif.unsaid.clear()
        for grant_id, names in unsaid.items():
            self.revoke(rif, grant_id, names)

    # Teardown -----------------------------------------------------------------------------------------------

    def teardown(self, event: TeardownAsked) -> None:
        """Take RIFs down; the answer comes when nothing is left of them."""
        unknown = [rif_id for rif_id in event.rif_ids if rif_id not in self.rifs]
        if unknown:
            there = ", ".join(self.rifs) or "none"
            self.actions.append(
                QuestionRefused(event.ask, f"there is no RIF {', '.join(unknown)}; there are: {there}")
            )
            return
        rif_ids = tuple(dict.fromkeys(event.rif_ids))
        self._questions.begin_teardown(event.ask, rif_ids)
        for rif_id in rif_ids:
            self.stop(self.rifs[rif_id])
        self.actions.extend(self._questions.answer_teardowns(""))

    def stop(self, rif: ManagedRif, reason: str = "it was taken down") -> None:
        """Take one RIF down: ask it if it can be asked, end it if not."""
        if rif.state is RifState.STOPPING:
            return
        if rif.state in (RifState.LOST, RifState.FAILED) and not rif.running:
            self._forget(rif)
            return
        was_up = rif.state in (RifState.UP, RifState.AWAY)
        rif.move(RifState.STOPPING)
        rif.reason, rif.timer_at = reason, None
        self._coming.changed(rif)
        if was_up:
            self._withdraw(rif, rif.reason)
        self._refuse_requests(rif, f"{rif.rif_id} is gone: {reason}")
        self._conclude(rif, rif.reason)
        if rif.link is not None:
            self.actions.append(TellRif(rif.link, StopRif()))
            rif.timer_at = self.now + self.limits.stop_grace_s
        elif rif.adrift:
            self._forget(rif)
        else:
            self._kill(rif)

    def _forget(self, rif: ManagedRif) -> None:
        """Nothing is left of a RIF, and nothing comes."""
        self._cut(rif, rif.reason)
        del self.rifs[rif.rif_id]
        del self._hosts[rif.host]
        if rif.state is not RifState.STOPPING:
            rif.move(RifState.STOPPING)
        self._coming.changed(rif)
        self.actions.append(RifChanged(self.now, rif.rif_id, rif.host, "down", rif.reason))
        self.actions.extend(self._questions.answer_teardowns(rif.rif_id))

    # Time ---------------------------------------------------------------------------------------------------

    def deadline(self) -> float | None:
        """Return the earliest time at which a RIF's timer is due."""
        rifs = self.rifs.values()
        times = [rif.timer_at for rif in rifs if rif.timer_at is not None]
        times += [rif.until_s for rif in rifs if rif.until_s is not None and rif.is_there]
        return min(times, default=None)

    def tick(self) -> None:
        """Look at the timers."""
        for rif in list(self.rifs.values()):
            if rif.until_s is not None and rif.until_s <= self.now and rif.is_there:
                self.stop(rif, "its host ends")
        for rif in [
            rif for rif in self.rifs.values() if rif.timer_at is not None and rif.timer_at <= self.now
        ]:
            if rif.state is RifState.STARTING:
                done = "add its first resources" if rif.link is not None else "come up"
                is_quick = rif.link is not None or rif.ordered
                within_s = self.limits.bootstrap_timeout_s if is_quick else self._come_up_s(rif)
                self.lose(rif, f"it did not {done} within {within_s:g} s")
            elif rif.state is RifState.LOST:
                self._start(rif)
            elif rif.state is RifState.UP:
                self.lose(rif, UNCONFIRMED)
            elif rif.state is RifState.AWAY:
                within_s = rif.awaited_s(self.limits)
                why = f"{rif.reason or 'it is away'}; it did not come back within {within_s:g} s"
                self.lose(rif, why)
            elif rif.adrift:
                self._forget(rif)
            else:
                rif.timer_at = None
                self._kill(rif)

    def tell_what_comes(self) -> None:
        """Tell the RM which RIFs are on their way, as far as that has changed."""
        self.actions.extend(self._coming.news())

    # Answers ------------------------------------------------------------------------------------------------

    def _conclude(self, rif: ManagedRif, failure: str) -> None:
        self.actions.extend(self._questions.conclude(rif, failure))

    def _record(self, rif: ManagedRif) -> None:
        self._coming.changed(rif)
        self.actions.append(rif.record(self.now))

    def check(self) -> None:
        """Assert the invariants of RIFs and of the questions that wait for them."""
        self._coming.check(self.rifs.values())
        assert self._hosts == {rif.host: rif for rif in self.rifs.values()}
        assert self.by_link == {rif.link: rif for rif in self.rifs.values() if rif.link is not None}
        for rif in self.rifs.values():
            check_rif(rif)
        self._questions.check(self.rifs)


def start_of(rif: ManagedRif, taken: bool = False) -> StartRif:
    """Return what a strategy is told to start; ``taken``: an earlier run-time system has done so."""
    known = (rif.rif_id, rif.incarnation, rif.host, rif.strategy, rif.cores, dict(rif.options))
    return StartRif(*known, rif.block, rif.node, rif.nodes, taken)


def announcements(rif: ManagedRif, jobs: tuple[JobId, ...], now: float) -> list[TellJobs]:
    """Return what these jobs are told of a RIF that is up, and for which tasks it is not to be used."""
    known = (rif.rif_id, rif.incarnation, rif.host, rif.address, rif.usable(), rif.ends_in_s(now))
    told = [TellJobs(jobs, RifUp(*known, rif.outside))]
    if rif.restriction is not None:
        told.append(TellJobs(jobs, Restrict(rif.rif_id, rif.restriction.uses, rif.restriction.reason)))
    if rif.quarantine is not None:
        kind = Evacuate if rif.quarantine.evacuate else Rest
        told.append(TellJobs(jobs, kind(rif.rif_id, rif.quarantine.reason)))
    return told
