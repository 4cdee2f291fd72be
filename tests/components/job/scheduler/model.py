"""A resource manager and a host as simple as can be, for the scheduler to talk to."""

from __future__ import annotations

from collections import Counter

from gspc_trio.components.rif.messages import Hold
from gspc_trio.components.rm.messages import Demand, Grant, Release
from gspc_trio.components.worker.messages import Cancel, Submit, TakeBack
from gspc_trio.core.ids import GrantId
from gspc_trio.core.task import (
    CORE,
    Outcome,
    Reason,
    Requirement,
    Shape,
    TaskError,
    TaskOptions,
    TaskVariant,
    TaskVariants,
)
from tests.components.job.scheduler.support import GANG, JOB

NODE = Shape((Requirement("node"),))
RESOURCES = {**{f"r1.core{n}": "core" for n in range(4)}, "r1.node": "node"}
SHAPES = (CORE, CORE, GANG, NODE)
OPTIONS = (
    TaskOptions(attempts=2),
    TaskOptions(attempts=2, loss_attempts=2),
    TaskOptions(may_rerun=False),
    TaskOptions(stage_in=True),
)
GPU = Shape((Requirement("gpu"),))
"""A class of which there is nothing."""

VARIANTS = (
    None,
    None,
    TaskVariants((TaskVariant("node", 2, NODE, 0.5), TaskVariant("core", 1, CORE, leading=(b"first",)))),
    TaskVariants(
        (TaskVariant("gpu", 3, GPU), TaskVariant("two", 4, GANG), TaskVariant("node", 2, NODE)), in_order=True
    ),
)
CLASS_OF_CODE = {2: "node", 3: "gpu"}
"""That of the resource on which the code of a variant runs; the others run on cores."""

Key = tuple[int, int]


class Manager:
    """Gives what is free to who asks; recalls and lapses when the test says so."""

    def __init__(self) -> None:
        self.free = dict(RESOURCES)
        self.held: dict[GrantId, Grant] = {}
        self.lapsed: set[GrantId] = set()
        self.unmet: Counter[Shape] = Counter()
        self.given: dict[Shape, list[GrantId]] = {}
        self.last = 0

    def take(self, message: Demand | Release) -> None:
        if isinstance(message, Demand):
            assert message.seen <= (1, self.last)
            underway = sum(grant_id > message.seen for grant_id in self.given.get(message.shape, ()))
            self.unmet[message.shape] = max(0, message.credit - underway)
            return
        if message.grant_id in self.lapsed:
            return
        grant = self.held.pop(message.grant_id)
        self.free.update({name: RESOURCES[name] for name in grant.resources})

    def give(self, shape: Shape) -> Grant | None:
        names: list[str] = []
        for wish in shape.requirements:
            found = [n for n, c in self.free.items() if c == wish.resource_class and n not in names]
            if wish.hard:
                found = [name for name in found if name in wish.preferences]
            if not found:
                return None
            names.append(found[0])
        for name in names:
            del self.free[name]
        self.unmet[shape] -= 1
        self.last += 1
        grant = Grant(JOB, shape, (1, self.last), tuple(names))
        self.held[grant.grant_id] = grant
        self.given.setdefault(shape, []).append(grant.grant_id)
        return grant

    def lapse(self, grant_id: GrantId) -> Grant:
        grant = self.held.pop(grant_id)
        self.lapsed.add(grant_id)
        self.free.update({name: RESOURCES[name] for name in grant.resources})
        return grant


class Host:
    """Workers that run what they are sent in order; a fence keeps old grants out."""

    def __init__(self) -> None:
        self.queues: dict[str, list[Key]] = {name: [] for name in RESOURCES}
        self.fence: dict[str, GrantId] = dict.fromkeys(RESOURCES, (0, 0))
        self.began: Counter[int] = Counter()
        self.begun: set[Key] = set()

    def take(self, message: Submit | Cancel | TakeBack | Hold) -> list[Outcome]:
        if isinstance(message, Hold):
            return []
        if isinstance(message, Submit):
            name = message.resources[0]
            keys = [(s.task_id, s.attempt) for s in message.submissions]
            if message.grant_id < self.fence[name]:
                why = TaskError("refused", "the fence is higher")
                return [Outcome(*key, Reason.RETURNED, error=why) for key in keys]
            self.fence[name] = message.grant_id
            self.queues[name] += keys
            self._begin(name)
            return []
        queue = self.queues[message.resource_id]
        begun = 0 if isinstance(message, Cancel) else 1
        reason = Reason.CANCELLED if isinstance(message, Cancel) else Reason.RETURNED
        keys = [key for key in queue[begun:] if key in message.attempts]
        for key in keys:
            queue.remove(key)
        self._begin(message.resource_id)
        return [Outcome(*key, reason) for key in keys]

    def _begin(self, name: str) -> None:
        queue = self.queues[name]
        if queue and queue[0] not in self.begun:
            self.begun.add(queue[0])
            self.began[queue[0][0]] += 1

    def end_head(self, name: str, reason: Reason, fate: bool) -> list[Outcome]:
        queue = self.queues[name]
        kinds = {Reason.LOST: "lost", Reason.RETURNED: "awaited"}
        error = TaskError(kinds.get(reason, "ValueError"), "it went wrong")
        outcomes = [
            Outcome(
                *queue.pop(0), reason, error=None if reason is Reason.FINISHED else error, duration_s=1e-4
            )
        ]
        if fate and queue:
            outcomes.append(
                Outcome(*queue.pop(0), Reason.RETURNED, error=TaskError("fate", "another failed"))
            )
        self._begin(name)
        return outcomes

    def kill(self, names: tuple[str, ...]) -> None:
        for name in names:
            self.queues[name].clear()
