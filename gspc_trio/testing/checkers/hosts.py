"""The life of hosts: started, tried again when they may be, ended, asked to go; nobody waits in vain."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from attrs import define

from gspc_trio.components.rif.messages import AddResources, StopRif
from gspc_trio.components.rm.events import Rested, Resumed
from gspc_trio.components.rts import events
from gspc_trio.components.rts.actions import (
    AskRif,
    KillRif,
    RtsAction,
    StartRif,
    Stopped,
    TellRif,
    TellRm,
)
from gspc_trio.components.rts.events import RtsEvent
from gspc_trio.components.rts.machine import Rts
from gspc_trio.components.rts.state import Limits, RifState
from gspc_trio.core.ids import RifId
from gspc_trio.testing.checkers.base import Broken
from gspc_trio.testing.checkers.due import Due
from gspc_trio.testing.checkers.rifs import STOPPING, Host, Rifs, is_refused, sends_away

EARLY_S = 1e-6
"""A time is rounded by less than that."""


@define(eq=False)
class _Clock:
    """When something happened to a RIF, and when something else is to follow.

    ``due_s`` is when it leaves the state it is in; ``tries`` are the starts since it was last up for long.
    """

    state: str = ""
    up_s: float | None = None
    due_s: float | None = None
    again_s: float | None = None
    tries: int = 0
    is_resting: bool = False
    is_avoided: bool = False
    rest_s: float | None = None
    rests: int = 0
    fit_s: float | None = None


class Hosts:
    """The life of the RIFs of one run-time system.

    Args:
        machine: of the run-time system, before its first event.
        rifs: what is known of its RIFs.
        now: the time.
    """

    def __init__(self, machine: Rts, rifs: Rifs, now: float) -> None:
        self._limits: Limits = machine.limits
        self._rifs = rifs
        self._avoided: set[str] = set()
        self._clocks: dict[RifId, _Clock] = {}
        self.due: Due = Due()
        for host in rifs:
            clock = self._clocks[host.rif_id] = _Clock(host.state)
            if host.state == RifState.LOST:
                clock.again_s, clock.tries = now, 0
            elif not (host.is_of_block and host.state == RifState.STARTING):
                clock.due_s = now + (self._limits.fresh_s if host.fresh else self._limits.grace_s)

    def before(self, event: RtsEvent, actions: Sequence[RtsAction]) -> None:
        """What may be taken, and what must be asked for, goes by what there was before an event.

        Raises:
            Broken: somebody is let in who must not be, or somebody is not asked to go.
        """
        if type(event) is events.RifConnected:
            self._check_first_word(event, actions)
        elif type(event) is events.Stop or type(event) is events.TeardownAsked:
            if not is_refused(event, actions):
                self._check_asked_to_go(event, actions)
        elif type(event) is events.RifLost:
            self._check_awaited(event, actions)

    def saw(self, event: RtsEvent, now: float, actions: Sequence[RtsAction]) -> None:
        """The run-time system took an event, and its RIFs are what they are now.

        Raises:
            Broken: something was done that must not be, or not done that must.
        """
        if type(event) is events.BootstrapAsked:
            for host in self._rifs:  # a person does not wait
                clock = self._clocks.get(host.rif_id)
                if host.host in event.hosts and clock is not None and clock.again_s is not None:
                    clock.again_s, clock.tries = now, 1
        if type(event) is events.HostUsed:
            self._avoided.discard(event.host)
        elif type(event) is events.HostAvoided:
            if not event.uses:  # else it rests for other reasons, if it does
                self._avoided.add(event.host)
            for host in self._rifs:
                clock = self._clocks.get(host.rif_id)
                is_avoided = host.host == event.host and event.host in self._avoided
                if clock is not None and is_avoided and clock.is_resting:
                    clock.is_avoided, clock.rest_s = True, None
        for action in actions:
            if type(action) is StartRif:
                self._started(action, event, now)
            elif type(action) is TellRm and isinstance(action.event, Rested | Resumed):
                self._rests(action.event, event, now)
            elif type(action) is Stopped and self._rifs.asks:
                raise Broken(f"all is over, and questions {sorted(self._rifs.asks)} were never answered")
        for host in self._rifs:
            self._follow(host, now)
        there = {host.rif_id for host in self._rifs}
        for rif_id in [rif_id for rif_id in self._clocks if rif_id not in there]:
            del self._clocks[rif_id]
        for ask, rif_id in self._rifs.asks.items():
            asked = self._rifs.get(rif_id)
            if asked is None or not asked.is_up:
                state = asked.state if asked is not None else "gone"
                raise Broken(f"{rif_id} is {state}, and question {ask} to it is not answered", rif_id)
        self.due.set(self._things())

    # What goes by what there was ----

    def _check_first_word(self, event: events.RifConnected, actions: Sequence[RtsAction]) -> None:
        hello = event.hello
        host = self._rifs.get(hello.rif_id)
        is_refused = any(sends_away(action, event.link) for action in actions)
        if is_refused:
            return
        if host is None or host.incarnation != hello.incarnation:
            newest = host.incarnation if host is not None else "none"
            raise Broken(
                f"{hello.rif_id} {hello.incarnation} is let in; the newest is {newest}", hello.rif_id
            )
        if hello.claims is None and (host.link is not None or host.state in ("up", "lost", STOPPING)):
            raise Broken(
                f"a second process of {hello.rif_id}, which is {host.state}, is let in", hello.rif_id
            )
        if hello.claims is not None and host.there:
            names = {resource.resource_id for resource in hello.hardware}
            if not host.there <= names:
                raise Broken(f"{hello.rif_id} is back without {host.there - names}", hello.rif_id)
        for action in actions:
            if type(action) is AskRif and isinstance(action.message, AddResources):
                names = {resource.resource_id for resource in action.message.resources}
                if names & host.removed:
                    raise Broken(
                        f"{hello.rif_id} brings {names & host.removed}, removed before", hello.rif_id
                    )

    def _check_asked_to_go(
        self, event: events.Stop | events.TeardownAsked, actions: Sequence[RtsAction]
    ) -> None:
        """Who can be asked is asked, who cannot is ended."""
        asked = {
            action.link
            for action in actions
            if type(action) is TellRif and isinstance(action.message, StopRif)
        }
        killed = {action.rif_id for action in actions if type(action) is KillRif}
        for host in self._rifs:
            if host.state == STOPPING or (
                isinstance(event, events.TeardownAsked) and host.rif_id not in event.rif_ids
            ):
                continue
            is_ended = host.killed or not host.running or host.rif_id in killed
            if host.link not in asked if host.link is not None else not is_ended:
                raise Broken(f"{host.rif_id} is to go, and is neither asked to nor ended", host.rif_id)

    def _check_awaited(self, event: events.RifLost, actions: Sequence[RtsAction]) -> None:
        """With a state a RIF of which nothing is asked is awaited, with all that it has."""
        host = self._rifs.at(event.link)
        if host is None or not host.is_up or not host.proven or not self._limits.grace_s:
            return
        if host.leaving or host.rif_id in self._rifs.asks.values():
            return
        if any(getattr(action, "state", "") == "lost" for action in actions):
            raise Broken(f"{host.rif_id} cannot be heard, and is given up at once", host.rif_id)

    # What goes by what there is ----

    def _started(self, start: StartRif, event: RtsEvent, now: float) -> None:
        clock = self._clocks.setdefault(start.rif_id, _Clock())
        if clock.again_s is not None and now < clock.again_s - EARLY_S:
            early_s = clock.again_s - now
            raise Broken(f"{start.rif_id} is started again {early_s:.3g} s too early", start.rif_id)
        is_replaced = bool(start.block) and isinstance(event, events.RifEnded) and event.again
        if clock.again_s is None and start.incarnation > 1 and not is_replaced:
            raise Broken(f"{start.rif_id} is started again, and something is left of it", start.rif_id)
        clock.again_s = None

    def _rests(self, told: Rested | Resumed, event: RtsEvent, now: float) -> None:
        host = self._rifs.of(told.resource_ids[0]) if told.resource_ids else None
        if host is None:
            return
        clock, delays_s = self._clocks[host.rif_id], self._limits.quarantine_delays_s
        was_resting, clock.is_resting = clock.is_resting, isinstance(told, Rested)
        if clock.is_resting and (was_resting or not isinstance(event, events.RifUnfit)):
            clock.is_avoided = clock.is_avoided or not was_resting  # else: what was added rests, too
            return
        if clock.is_resting:
            if clock.fit_s is None or now - clock.fit_s >= self._limits.stable_after_s:
                clock.rests = 0
            clock.rest_s = now + delays_s[min(clock.rests, len(delays_s) - 1)]
            clock.rests += 1
            return
        if clock.is_avoided:  # others know when that is over
            clock.is_avoided, clock.rest_s = False, None
            return
        if clock.rest_s is not None and now < clock.rest_s - EARLY_S:
            early_s = clock.rest_s - now
            raise Broken(f"{host.rif_id} is used again {early_s:.3g} s too early", host.rif_id)
        clock.rest_s, clock.fit_s = None, now

    def _follow(self, host: Host, now: float) -> None:
        """Note what has become of a RIF."""
        clock = self._clocks.setdefault(host.rif_id, _Clock())
        before, clock.state = clock.state, host.state
        ends_with_block = host.is_of_block and host.state == RifState.LOST
        if host.state in ("lost", "failed") and host.running and not (host.killed or ends_with_block):
            raise Broken(f"{host.rif_id} is given up, and what is left of it is not ended", host.rif_id)
        if host.state == "failed" and host.proven:
            raise Broken(f"{host.rif_id} was up, and is given up for good", host.rif_id)
        if host.is_up and not host.there - host.leaving:  # nothing of it can rest or be used
            clock.is_resting = host.state == "quarantined"
            clock.rest_s = clock.rest_s if clock.is_resting else None
        if host.is_up and clock.is_resting != (host.state == "quarantined"):
            used = "is not used" if clock.is_resting else "is used"
            raise Broken(f"{host.rif_id} is {host.state}, and {used}", host.rif_id)
        if host.is_of_block and host.state == before == "starting" and host.ordered and clock.due_s is None:
            clock.due_s = now + self._limits.bootstrap_timeout_s
        if host.state == before:
            if host.state == RifState.LOST and not host.running and clock.again_s is None:
                self._settled(host, clock, now)
            return
        if host.is_up and before not in ("up", "quarantined"):
            clock.up_s = now
        if host.state in ("lost", STOPPING, "failed"):
            clock.is_resting, clock.is_avoided, clock.rest_s = False, False, None
        clock.due_s = {
            "starting": None if host.is_of_block else now + self._limits.bootstrap_timeout_s,
            "away": now + self._limits.grace_s,
            STOPPING: now + self._limits.stop_grace_s if host.link is not None else None,
        }.get(host.state)
        if host.state == RifState.LOST:
            up_s = clock.up_s if before != "starting" else None
            if up_s is not None and now - up_s >= self._limits.stable_after_s:
                clock.tries = 0
            if not host.running:
                self._settled(host, clock, now)

    def _settled(self, host: Host, clock: _Clock, now: float) -> None:
        """Nothing is left of a lost RIF: it is started again after a pause."""
        delays_s = self._limits.retry_delays_s
        end_s = self._limits.adrift_end_s if host.adrift and not host.fresh else 0.0
        end_s = self._limits.last_end_s if host.doubled else end_s
        clock.again_s = now + max(delays_s[min(clock.tries, len(delays_s) - 1)], end_s)
        clock.tries += 1

    def _things(self) -> Iterator[tuple[float, str]]:
        for host in self._rifs:
            clock = self._clocks[host.rif_id]
            if clock.again_s is not None:
                yield clock.again_s, f"{host.rif_id} is to be started again"
            if clock.rest_s is not None and host.is_up:
                yield clock.rest_s, f"{host.rif_id} is to be used again"
            if clock.due_s is not None and (host.state != STOPPING or (host.running and not host.killed)):
                yield clock.due_s, f"{host.rif_id} was {host.state} for long enough"
