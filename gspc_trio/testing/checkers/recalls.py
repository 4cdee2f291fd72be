"""Checker of recalls and reservations, made for requests that wait or that others could starve."""

from __future__ import annotations

from collections.abc import Sequence

from gspc_trio.components.rm.events import Added, Claimed, Removed, Rested, RmAction, RmEvent
from gspc_trio.components.rm.machine import Aside
from gspc_trio.components.rm.messages import Grant, Recall, Release
from gspc_trio.components.rm.state import Limits
from gspc_trio.core.ids import GrantId, ResourceId
from gspc_trio.core.machine import Tick
from gspc_trio.testing.checkers.base import Broken, Family
from gspc_trio.testing.checkers.grants import Grants
from gspc_trio.testing.checkers.waiting import Key, Waiting

LIMITS = Limits()

LOOK_S = 5 * LIMITS.recall_after_s
"""Within so many seconds the resource manager has looked at those who wait more than once."""

ROUNDING_S = 1e-6

NOT_FOR_OTHERS = frozenset({Rested, Removed, Claimed, Added})
"""Events that have grants recalled for another reason than that somebody waits."""


class Recalls:
    """What one resource manager has given back, and puts aside: invariants 6 and 10.

    Grants are recalled for those who are entitled to them, and not before they have been held for a while.
    Who is entitled to what others hold gets it. What is put aside for somebody is given to nobody else who
    would keep it for longer, is recalled, and is put aside only as long as that one waits.

    Args:
        family: of the resources.
        grants: who holds what; it has seen each event before.
        waiting: who waits.
    """

    def __init__(self, family: Family, grants: Grants, waiting: Waiting) -> None:
        self._family = family
        self._grants = grants
        self._waiting = waiting
        self._recalled: set[GrantId] = set()
        self._entitled_since: dict[tuple[Key, GrantId], float] = {}
        self._starves_since: float | None = None
        self._kept_since: float | None = None
        self._was_simple = True
        self._aside: Aside | None = None

    def saw(self, event: RmEvent, now: float, actions: Sequence[RmAction], aside: Aside | None) -> None:
        """The resource manager took an event.

        Args:
            event: which.
            now: when.
            actions: what it said.
            aside: what is put aside from then on.

        Raises:
            Broken: what is recalled, put aside or given should not be, or is not and should be.
        """
        self._recalled.intersection_update(self._grants.live)
        if type(event) is Claimed:  # who is back may not have heard it
            self._recalled.difference_update(grant.grant_id for grant in event.grants)
        self._check_aside(actions, aside)
        simple = all(map(self._waiting.takes_any, self._waiting.since))
        new = [grant_id for action in actions if type(action) is Recall for grant_id in action.grant_ids]
        if new and type(event) not in NOT_FOR_OTHERS:
            self._check_recalls(new, now, simple and self._was_simple)
        self._recalled.update(new)
        self._was_simple = simple
        if type(event) is Tick or type(event) is Release:
            self._look_at_entitled(now, aside)
            self._look_at_starving(now, aside)
        self._aside = aside

    # For whom -----------------------------------------------------------------------------------------------

    def _check_recalls(self, new: list[GrantId], now: float, simple: bool) -> None:
        for grant_id in new:
            live, held_s = self._grants.live[grant_id], now - self._waiting.held_since(grant_id)
            if held_s < LIMITS.recall_after_s - ROUNDING_S:
                raise Broken(f"grant {grant_id} is recalled after {held_s:.3f} s", *live.left)
            key = self._waiting.demand_of(grant_id)
            if not simple or key is None:
                continue  # it may be recalled for what is put aside
            if not any(self._may_have(other, key, new) for other in self._waiting.since if other != key):
                raise Broken(f"grant {grant_id} is recalled, and nobody is entitled to it", *live.left)

    def _may_have(self, other: Key, key: Key, new: list[GrantId]) -> bool:
        """Whether who waits may be entitled to what another demand has got, at most.

        What is recalled will change hands: it may be on its way away from the one, and to the other.
        """
        waiting = self._waiting
        moving = [*(self._recalled & self._grants.live.keys()), *new]
        if key not in waiting.since:
            return True
        same = other[0] == key[0]
        above, below = (
            (waiting.priority(other), waiting.priority(key))
            if same
            else (waiting.priority_of_job(other[0]), waiting.priority_of_job(key[0]))
        )
        if above != below:
            return above > below

        def is_of(grant_id: GrantId, whose: Key) -> bool:
            if same:
                return waiting.demand_of(grant_id) == whose
            return self._grants.live[grant_id].job == whose[0]

        def moved(whose: Key, ours: bool) -> int:
            return sum(waiting.units_of_grant(one) for one in moving if is_of(one, whose) is ours)

        mine = waiting.units(other[0], other[1] if same else None) - moved(other, True)
        theirs = waiting.units(key[0], key[1] if same else None) + moved(key, False)
        weights = (1.0, 1.0) if same else (waiting.weight(other[0]), waiting.weight(key[0]))
        return mine <= 0 or (mine + 1) / weights[0] <= theirs / weights[1]

    def _look_at_entitled(self, now: float, aside: Aside | None) -> None:
        """Who is entitled to what others hold has it recalled soon."""
        owed = {}
        waiting, live = self._waiting, self._grants.live
        if aside is None and not any(grant_id in live for grant_id in self._recalled):
            for other in filter(waiting.takes_any, waiting.since):
                for grant_id in live:
                    key = waiting.demand_of(grant_id)
                    if key is None or key == other or not waiting.takes_any(key) or live[grant_id].revoked:
                        continue
                    first, second = other[1].requirements[0], key[1].requirements[0]
                    if first.resource_class == second.resource_class and self._may_have(other, key, []):
                        owed[other, grant_id] = self._entitled_since.get((other, grant_id), now)
        self._entitled_since = owed
        for (other, grant_id), since_s in owed.items():
            if now > since_s + LOOK_S:
                raise Broken(
                    f"{other[0]} waits for {other[1]}, and grant {grant_id} is not recalled",
                    *live[grant_id].left,
                )

    # What is put aside --------------------------------------------------------------------------------------

    def _check_aside(self, actions: Sequence[RmAction], aside: Aside | None) -> None:
        """Nobody else is given what stays put aside, unless he says that he needs it for a short time."""
        before, self._kept_since = self._aside, None if aside is None else self._kept_since
        if aside is not None and (aside.job, aside.shape) not in self._waiting.since:
            raise Broken(f"something is put aside for {aside.job}, which does not wait", *aside.resource_ids)
        for name in () if aside is None else aside.resource_ids:
            if self._grants.is_leaving(name):
                raise Broken(f"{name} is put aside, and is to leave", name)
        if aside is None or before != aside:
            self._kept_since = None
            return
        for action in actions:
            if type(action) is Grant and action.shape.estimate_s is None:
                for name in action.resources:
                    if self._is_aside(name, aside):
                        raise Broken(
                            f"{name} is put aside for {aside.job}, and is given to {action.job}", name
                        )

    def _is_aside(self, name: ResourceId, aside: Aside) -> bool:
        return any(near in aside.resource_ids for near in self._family.near(name))

    def _look_at_starving(self, now: float, aside: Aside | None) -> None:
        """Something is put aside for who has waited for long, and who has it is to give it back."""
        if aside is None:
            due = any(
                now > since[0] + LIMITS.reserve_after_s and self._can_be_put_aside(key)
                for key, since in self._waiting.since.items()
            )
            self._kept_since = None
            if not due:
                self._starves_since = None
            elif self._starves_since is None:
                self._starves_since = now
            elif now > self._starves_since + LOOK_S:
                raise Broken(f"others starve, and nothing is put aside for {LOOK_S} s")
            return
        self._starves_since = None
        near = {one for name in aside.resource_ids for one in self._family.near(name)}
        kept = [
            live
            for live in self._grants.live.values()
            if not live.revoked and live.grant_id not in self._recalled and not near.isdisjoint(live.left)
        ]
        if not kept:
            self._kept_since = None
        elif self._kept_since is None:
            self._kept_since = now
        elif now > self._kept_since + LOOK_S:
            raise Broken(
                f"what is put aside for {aside.job} is held by grant {kept[0].grant_id}, not recalled",
                *kept[0].left,
            )

    def _can_be_put_aside(self, key: Key) -> bool:
        """Whether others could starve who waits, and there is enough for him beside what he has."""
        shape = key[1]
        first = shape.requirements[0]
        if shape.memory_bytes or shape.memories or shape.same_host or first.preferences:
            return False
        if any(need != first for need in shape.requirements) or self._waiting.takes_any(key):
            return False
        own = {
            name
            for grant_id, live in self._grants.live.items()
            if self._waiting.demand_of(grant_id) in (key, None)
            for name in live.left
        }
        there = [
            name
            for name in self._grants.there
            if self._family.class_of(name) == first.resource_class
            and self._family.suits(name, first.features)
        ]
        usable = [name for name in there if self._is_usable(name, own)]
        return len(usable) >= len(shape.requirements)

    def _is_usable(self, name: ResourceId, own: set[ResourceId]) -> bool:
        """Whether a resource may be put aside: it is not the own one, nor to go, and all of it is there."""
        near = self._family.near(name)
        return (
            own.isdisjoint(near)
            and not self._grants.is_closed(name)
            and all(one in self._grants.there for one in near)
        )
