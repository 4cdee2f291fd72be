"""The scheduling policy of a job: its parts as one setting, and policies of installed packages by name.

A package offers one under the entry point group ``gspc_trio.policies``: a name and a callable without
arguments that returns a :class:`SchedulingPolicy`.
"""

from __future__ import annotations

from collections.abc import Iterator
from random import Random
from traceback import extract_tb
from typing import TYPE_CHECKING, TypeVar, cast

from msgspec import Struct

from gspc_trio.components.job.machine import READY_MAX
from gspc_trio.components.job.scheduler.interface import LookAheadPolicy, RetryPolicy, WorkAheadPolicy
from gspc_trio.components.job.scheduler.machine import Scheduler
from gspc_trio.core.ids import JobId
from gspc_trio.core.similar import did_you_mean
from gspc_trio.policies.lookahead import LookAhead, WorkAhead
from gspc_trio.policies.retry import Retry

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

ENTRY_POINTS = "gspc_trio.policies"
"""Group in which packages offer policies."""

PartT = TypeVar("PartT")

DEFAULT = "default"
"""Name of the usual policy."""


class PolicyError(ValueError):
    """There is no such scheduling policy, or it is none; the message is one line for people."""


class _Blamed:
    """A part of a policy whose errors say that it was the policy that failed, and where."""

    def __init__(self, part: object) -> None:
        self._part = part

    def __getattr__(self, name: str) -> object:
        value = getattr(self._part, name)
        if not callable(value):
            return value

        def called(*args: object) -> object:
            try:
                return value(*args)
            except Exception as error:
                frame = extract_tb(error.__traceback__)[-1]
                raise PolicyError(
                    f"{type(self._part).__name__}.{name} of the scheduling policy raised "
                    f"{type(error).__name__}: {error} ({frame.filename}, line {frame.lineno})"
                ) from error

        setattr(self, name, called)
        return called


def _blamed(part: PartT) -> PartT:
    return part if type(part) in (Retry, WorkAhead, LookAhead) else cast("PartT", _Blamed(part))


class SchedulingPolicy(Struct, frozen=True):
    """How a job schedules its tasks. Each part can be replaced by an object with the same methods.

    Attributes:
        retry: whether and when a task is tried again.
        work_ahead: how many tasks are sent to one worker in advance.
        look_ahead: which tasks share a queue, and how many resources are asked for.
        ready_max: so many tasks are prepared in advance; the rest stays as tokens in the workflow.
    """

    retry: RetryPolicy = Retry()
    work_ahead: WorkAheadPolicy = WorkAhead()
    look_ahead: LookAheadPolicy = LookAhead()
    ready_max: int = READY_MAX

    def scheduler(
        self,
        job: JobId,
        *,
        random: Random | None = None,
        failed_max: int | None = None,
        recording: bool = True,
    ) -> Scheduler:
        """Return a scheduler for a job that follows this policy; the arguments are those of ``Scheduler``."""
        return Scheduler(
            job,
            retry=_blamed(self.retry),
            work_ahead=_blamed(self.work_ahead),
            look_ahead=_blamed(self.look_ahead),
            random=random,
            failed_max=failed_max,
            recording=recording,
        )


USUAL = SchedulingPolicy()
"""Back-off, about 2 ms of work ahead, a queue for each shape."""


def find_policy(policy: SchedulingPolicy | str) -> SchedulingPolicy:
    """Return a policy that can be used: this one, or the one of this name.

    Raises:
        PolicyError: no package offers it, it cannot be loaded, or it is no policy.
    """
    if policy == DEFAULT:
        return USUAL
    if not isinstance(policy, str):
        return checked_policy(policy, "the policy")
    from importlib.metadata import entry_points

    offered = {entry.name: entry for entry in entry_points(group=ENTRY_POINTS)}
    entry = offered.get(policy)
    if entry is None:
        there = [DEFAULT, *sorted(offered)]
        raise PolicyError(
            f"there is no policy {policy!r}{did_you_mean(policy, there)}; there are: {', '.join(there)}"
        )
    return checked_policy(_loaded(entry), f"the policy {policy!r} of {entry.value}")


def _loaded(entry: EntryPoint) -> object:
    try:
        return entry.load()()
    except Exception as error:
        kind = type(error).__name__
        raise PolicyError(
            f"the policy {entry.name!r} of {entry.value} cannot be used: {kind}: {error}"
        ) from error


def checked_policy(policy: object, what: str) -> SchedulingPolicy:
    """Return a policy all of whose parts have the methods that a scheduler asks.

    Raises:
        PolicyError: it is none, a part lacks a method, or ``ready_max`` is no positive whole number.
    """
    if not isinstance(policy, SchedulingPolicy):
        raise PolicyError(f"{what} is no SchedulingPolicy but {policy!r}")
    for name, part, kind in (
        ("retry", policy.retry, RetryPolicy),
        ("work_ahead", policy.work_ahead, WorkAheadPolicy),
        ("look_ahead", policy.look_ahead, LookAheadPolicy),
    ):
        missing = [method for method in _methods(kind) if not hasattr(part, method)]
        if missing:
            raise PolicyError(f"{what}: its {name} is {part!r}, which has no {missing[0]}")
    if not isinstance(policy.ready_max, int) or policy.ready_max < 1:
        raise PolicyError(f"{what}: ready_max is {policy.ready_max!r}; it is a number of tasks, 1 or more")
    return policy


def _methods(kind: type) -> Iterator[str]:
    return (name for name in vars(kind) if not name.startswith("_"))
