"""Whose turn it is: to whom what is free is given, and who is refused."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from gspc_trio.components.rm.events import Added, Coming, RmAction, RmEvent, Settled
from gspc_trio.components.rm.machine import Aside
from gspc_trio.components.rm.messages import Grant, Refuse, Release
from gspc_trio.components.rm.state import Limits
from gspc_trio.core.ids import ResourceId
from gspc_trio.core.machine import Tick
from gspc_trio.core.task import Requirement
from gspc_trio.testing.checkers.base import Broken, Family
from gspc_trio.testing.checkers.grants import Grants
from gspc_trio.testing.checkers.waiting import Key, Waiting

LIMITS = Limits()

ROUNDING_S = 1e-6


class Turns:
    """What one resource manager gives to those who wait, and whom it refuses: invariants 6 and 10.

    What is free and would do for somebody who waits is given at once; to who prefers something else, when he
    has waited for that for long enough. The job of the highest priority with least for its weight comes
    first, and of its requests the oldest.

    Args:
        family: of the resources.
        grants: who holds what; it has seen each event before.
        waiting: who waits; it is told what is given.
    """

    def __init__(self, family: Family, grants: Grants, waiting: Waiting) -> None:
        self._family = family
        self._grants = grants
        self._waiting = waiting
        self._coming: dict[str, Coming] = {}
        self._added_s: dict[ResourceId, float] = {}
        self._declined_since: dict[Key, float] = {}
        self._was_simple = True
        self._was_kept: frozenset[ResourceId] = frozenset()

    def saw(self, event: RmEvent, now: float, actions: Sequence[RmAction], aside: Aside | None) -> None:
        """The resource manager took an event.

        Args:
            event: which.
            now: when.
            actions: what it said.
            aside: what is put aside from then on.

        Raises:
            Broken: something is given to the wrong one, or not given.
        """
        waiting = self._waiting
        if type(event) is Coming:
            self._coming[event.name] = event
        elif type(event) is Settled:
            self._coming.pop(event.name, None)
        elif type(event) is Added:
            self._added_s.update(dict.fromkeys((one.resource_id for one in event.resources), now))
        for action in actions:
            if type(action) is Refuse:
                self._check_refusal(action)
        # Nothing is put aside while all who wait, or did before this event, take any one resource.
        simple = self._was_simple and all(map(waiting.takes_any, waiting.since))
        for action in actions:
            if type(action) is Grant:
                if waiting.since:
                    self._check_turn(action, now, simple)
                waiting.given(action, now)
        waiting.took_back(now)
        self._was_simple = all(map(waiting.takes_any, waiting.since))
        # What was put aside until this event is given to others with the next one, a tick.
        is_kept = self._kept(aside)
        kept, self._was_kept = is_kept | self._was_kept, is_kept
        for action in actions:
            if type(action) is Grant:
                self._check_preference(action, kept)
        if not waiting.since:
            self._declined_since.clear()
            return
        self._look_at_idle(now, kept, type(event) is Tick or type(event) is Release)
        self._look_at_hopeless()

    def _check_turn(self, grant: Grant, now: float, simple: bool) -> None:
        """Nobody who waits for the same comes first; nobody is given others than he prefers too soon."""
        waiting, key = self._waiting, (grant.job, grant.shape)
        since = waiting.since.get(key)
        since_s = since[0] if since else now
        first = grant.shape.requirements[0]
        if waiting.is_single(grant.shape) and first.preferences and not first.hard:
            patience_s = LIMITS.patience_s if first.patience_s is None else first.patience_s
            # Who came when nothing of it was there takes what there is.
            wanted = any(
                self._family.is_below(name, first.preferences) and self._added_s.get(name, now) <= since_s
                for name in self._of_class(first)
            )
            ill = not self._family.is_below(grant.resources[0], first.preferences)
            if wanted and ill and now < since_s + patience_s - ROUNDING_S:
                raise Broken(f"{grant.job} waits no {patience_s} s for what it prefers", *grant.resources)
        if not simple or not waiting.takes_any(key):
            return
        mine = waiting.turn(key, since_s)
        for other, since in waiting.since.items():
            same = other[1].requirements[0].resource_class == first.resource_class
            if other != key and same and waiting.turn(other, since[0]) < mine:
                raise Broken(
                    f"{grant.job} is given {grant.resources[0]}, and it was the turn of {other[0]}: "
                    f"{waiting.turn(other, since[0])} comes before {mine}",
                    *grant.resources,
                )

    def _check_preference(self, grant: Grant, kept: frozenset[ResourceId]) -> None:
        """Nobody is given others than he prefers while some of that is free."""
        first = grant.shape.requirements[0]
        if not self._waiting.is_single(grant.shape) or not first.preferences:
            return
        if self._family.is_below(grant.resources[0], first.preferences):
            return
        for name in self._open(first, kept):
            if self._family.is_below(name, first.preferences):
                raise Broken(f"{grant.resources[0]} is granted, and {name}, preferred, is free", name)

    def _look_at_idle(self, now: float, kept: frozenset[ResourceId], is_due: bool) -> None:
        """Nobody waits who can be given something now; that must be so after such an event."""
        declining = set()
        for key, since in self._waiting.since.items():
            need = self._one_need(key)
            if need is None:
                continue
            free = self._open(need, kept)
            if not need.preferences and not need.hard:
                count = len(key[1].requirements)
                if len(free) >= count and is_due:
                    raise Broken(f"{key[0]} waits for {key[1]}, and there is {free[0]}", free[0])
                continue
            liked = [name for name in free if self._family.is_below(name, need.preferences)]
            if liked and is_due:
                raise Broken(f"{key[0]} waits for {key[1]}, and there is {liked[0]}", liked[0])
            if free and not need.hard:
                declining.add(key)
                # Each of its requests has patience of its own: one that came later declines since then.
                since_s = max(since[0], self._declined_since.setdefault(key, now))
                patience_s = LIMITS.patience_s if need.patience_s is None else need.patience_s
                if is_due and now > since_s + patience_s + ROUNDING_S:
                    raise Broken(f"{key[0]} waits for {key[1]} too long, and there is {free[0]}", free[0])
        for key in self._declined_since.keys() - declining:
            del self._declined_since[key]

    def _one_need(self, key: Key) -> Requirement | None:
        """Return what is wanted, once or several times, if it is of a class that contains no others."""
        shape = key[1]
        first = shape.requirements[0]
        if shape.memory_bytes or shape.memories or shape.same_host:
            return None
        if any(need != first for need in shape.requirements) or (
            len(shape.requirements) > 1 and (first.preferences or first.hard)
        ):
            return None
        return first if self._family.is_leaf_class(first.resource_class) else None

    def _of_class(self, need: Requirement) -> Iterable[ResourceId]:
        return (
            name
            for name in self._grants.there
            if self._family.class_of(name) == need.resource_class and self._family.suits(name, need.features)
        )

    def _open(self, need: Requirement, kept: frozenset[ResourceId]) -> list[ResourceId]:
        """Return what could be given now of what is needed, wherever it is."""
        names = [name for name in self._of_class(need) if self._grants.is_open(name)]
        return [name for name in names if name not in kept]

    def _kept(self, aside: Aside | None) -> frozenset[ResourceId]:
        """Return what is put aside, with what is related to it."""
        if aside is None:
            return frozenset()
        return frozenset(near for name in aside.resource_ids for near in self._family.near(name))

    # Who is refused -----------------------------------------------------------------------------------------

    def _check_refusal(self, refuse: Refuse) -> None:
        """Nobody is refused what is there, or is on its way."""
        if refuse.kind == "interrupted":
            return
        if refuse.shape.wait:
            raise Broken(f"{refuse.job} was to wait for {refuse.shape}, and is refused")
        need = self._only_need(refuse.shape.requirements)
        has_memory = refuse.shape.memory_bytes or refuse.shape.memories
        if need is not None and not has_memory and self._is_hopeful(need):
            raise Broken(f"{refuse.job} is refused {need.resource_class}, which there is or will be")

    def _look_at_hopeless(self) -> None:
        """Nobody waits for what there is not, and what does not come."""
        for job, shape in self._waiting.since:
            need = self._only_need(shape.requirements)
            if not shape.wait and need is not None and not self._is_hopeful(need):
                raise Broken(f"{job} waits for {shape}, which there is not, and is not refused")

    def _only_need(self, requirements: tuple[Requirement, ...]) -> Requirement | None:
        first = requirements[0]
        return first if len(requirements) == 1 and (first.hard or not first.preferences) else None

    def _is_hopeful(self, need: Requirement) -> bool:
        """Whether something that would do is there or may come."""
        for name in self._of_class(need):
            if not need.hard or self._family.is_below(name, need.preferences):
                return True
        return any(self._may_bring(coming, need) for coming in self._coming.values())

    def _may_bring(self, coming: Coming, need: Requirement) -> bool:
        if coming.resources is None:
            return True
        if need.hard and not any(name.partition(".")[0] == coming.name for name in need.preferences):
            return False
        features = {each for resource in coming.resources for each in resource.features}
        return features.issuperset(need.features) and any(
            resource.resource_class == need.resource_class for resource in coming.resources
        )
