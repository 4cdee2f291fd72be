"""The scheduling policy of a job: its parts as one setting, and policies of installed packages by name.

A package offers one under the entry point group ``gspc_trio.policies``: a name and a callable without
arguments that returns a :class:`SchedulingPolicy`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from math import isfinite
from numbers import Real
from random import Random
from traceback import extract_tb
from typing import TYPE_CHECKING, TypeAlias, TypeVar, cast

from msgspec import Struct
from msgspec.structs import replace

from gspc_trio.components.job.locations.state import LocationPolicy
from gspc_trio.components.job.machine import READY_MAX
from gspc_trio.components.job.scheduler.interface import (
    AssignPolicy,
    Dependents,
    LookAheadPolicy,
    RetryPolicy,
    RunTimes,
    VariantPolicy,
    WorkAheadPolicy,
)
from gspc_trio.components.job.scheduler.machine import Scheduler
from gspc_trio.core.code import CodeEntry, Program
from gspc_trio.core.ids import JobId
from gspc_trio.core.similar import did_you_mean
from gspc_trio.core.task import Shape
from gspc_trio.policies.locations import LeastEnd
from gspc_trio.policies.lookahead import LookAhead, WorkAhead
from gspc_trio.policies.performance_model import PerformanceModel
from gspc_trio.policies.queues import Queues, bad_assignment
from gspc_trio.policies.retry import Retry
from gspc_trio.policies.variants import LeastTime

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

    from gspc_trio.components.job.scheduler.plans import Plans

ENTRY_POINTS = "gspc_trio.policies"
"""Group in which packages offer policies."""

PartT = TypeVar("PartT")

DEFAULT = "default"
"""Name of the usual policy."""


Holds: TypeAlias = Callable[[object], bool]


def _is_number(value: object) -> bool:
    return isinstance(value, Real) and not isinstance(value, bool) and float(value) >= 0


def _is_finite(value: object) -> bool:
    return isinstance(value, Real) and _is_number(value) and isfinite(value)


def _is_delay(value: object) -> bool:
    return value is None or _is_finite(value)


def _is_count(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and float(value) >= 0


def _are_counts(value: object) -> bool:
    return isinstance(value, list) and all(map(_is_count, value))


def _is_depth(value: object) -> bool:
    if not (isinstance(value, tuple) and len(value) == 2 and all(map(_is_count, value))):
        return False
    return bool(1 <= value[0] <= value[1])


NUMBER: tuple[Holds, str] = (_is_number, "a number, 0 or more")
FINITE: tuple[Holds, str] = (_is_finite, "a finite number, 0 or more")
DELAY: tuple[Holds, str] = (_is_delay, "a finite number, 0 or more, or None")
ANSWER: tuple[Holds, str] = (lambda value: value in (True, False), "True or False")

VALID: Mapping[str, tuple[Holds, str]] = {
    "elsewhere_s": FINITE,
    "after_failure": DELAY,
    "after_loss": DELAY,
    "after_return": DELAY,
    "after_wait": FINITE,
    "after_refusal": DELAY,
    "alone_after": ANSWER,
    "ahead_s": NUMBER,
    "patrol_s": NUMBER,
    "settle_s": NUMBER,
    "depth": (_is_depth, "a tuple of two whole numbers (at_least, at_most), 1 <= at_least <= at_most"),
    "beside_long": (lambda value: _is_count(value) and value != 0, "a whole number, 1 or more"),
    "takes_long": ANSWER,
    "learn": FINITE,
    "worth_taking_back": ANSWER,
    "shape_of": (lambda value: isinstance(value, Shape), "a Shape"),
    "credit": (_is_count, "a whole number, 0 or more"),
    "worth_telling": ANSWER,
    "task_s": FINITE,
    "left_s": FINITE,
    "steals": ANSWER,
    "choose": (lambda value: value is None or _is_count(value), "the index of a variant, or None"),
    "moves": ANSWER,
    "divide": (_are_counts, "a list of whole numbers, 0 or more"),
    "leaves": ANSWER,
}
"""Name of a method or an attribute -> whether a value of it can be used, and which can.

Another one would keep a job waiting for ever, or fail it where nobody sees the policy any more.
"""


class PolicyError(ValueError):
    """There is no such scheduling policy, or it is none; the message is one line for people."""


class _Blamed:
    """A part of a policy whose errors and unusable values name the method that they come from."""

    def __init__(self, part: object) -> None:
        self._part = part

    def __getattr__(self, name: str) -> object:
        value = getattr(self._part, name)
        if not callable(value):
            return self._usable(name, value)

        def called(*args: object) -> object:
            try:
                answer = value(*args)
            except Exception as error:
                frame = extract_tb(error.__traceback__)[-1]
                raise PolicyError(
                    f"{self._names(name)} raised "
                    f"{type(error).__name__}: {error} ({frame.filename}, line {frame.lineno})"
                ) from error
            if name == "choose":
                self._check_choice(answer, cast("Sequence[object]", args[0]))
            return self._usable(name, answer)

        setattr(self, name, called)
        return called

    def _usable(self, name: str, value: object) -> object:
        holds, valid = VALID[name]
        if not holds(value):
            raise PolicyError(f"{self._names(name)} is {value!r:.100}; it must be {valid}")
        return value

    def _check_choice(self, answer: object, costs: Sequence[object]) -> None:
        there = [number for number, cost in enumerate(costs) if cost is not None]
        if answer is not None and answer not in there:
            raise PolicyError(
                f"{self._names('choose')} is {answer!r:.100}; it must be one of {there}, or None"
            )

    def _names(self, name: str) -> str:
        return f"{type(self._part).__name__}.{name} of the scheduling policy"


_USUAL_PARTS = (Retry, WorkAhead, LookAhead, LeastTime, LeastEnd, Queues)


def blamed(part: PartT) -> PartT:
    """Return a part that raises PolicyError for what it raises or what it returns that cannot be used.

    The usual parts, which are asked for each task, are returned as they are.
    """
    return part if type(part) in _USUAL_PARTS else cast("PartT", _Blamed(part))


class SchedulingPolicy(Struct, frozen=True):
    """How a job schedules its tasks. Each part can be replaced by an object with the same methods.

    Attributes:
        retry: whether and when a task is tried again.
        work_ahead: how many tasks are sent to one worker in advance.
        look_ahead: which tasks share a queue, and how many resources are asked for.
        ready_max: so many tasks are prepared in advance; the rest stays as tokens in the workflow.
        variants: which variant of a task runs.
        locations: which of several run-time systems is asked for what.
        assign: in which resource's queue a task waits; None: it goes where a resource comes free.
    """

    retry: RetryPolicy = Retry()
    work_ahead: WorkAheadPolicy = WorkAhead()
    look_ahead: LookAheadPolicy = LookAhead()
    ready_max: int = READY_MAX
    variants: VariantPolicy = LeastTime()
    locations: LocationPolicy = LeastEnd()
    assign: AssignPolicy | None = None

    def scheduler(
        self,
        job: JobId,
        *,
        random: Random | None = None,
        failed_max: int | None = None,
        recording: bool = True,
        tracing: bool = False,
        model: RunTimes | None = None,
        plans: Plans | None = None,
        dependents: Dependents | None = None,
    ) -> Scheduler:
        """Return a scheduler for a job that follows this policy; the arguments are those of ``Scheduler``,
        ``model`` an empty one by default.
        """
        return Scheduler(
            job,
            retry=blamed(self.retry),
            work_ahead=blamed(self.work_ahead),
            look_ahead=blamed(self.look_ahead),
            variants=blamed(self.variants),
            model=PerformanceModel() if model is None else model,
            random=random,
            failed_max=failed_max,
            recording=recording,
            tracing=tracing,
            assign_policy=None if self.assign is None else blamed(self.assign),
            plans=plans,
            dependents=dependents,
        )


USUAL = SchedulingPolicy()
"""Back-off, about 2 ms of work ahead, a queue for each shape."""

USUAL_OF_PROGRAMS = SchedulingPolicy(work_ahead=WorkAhead(ahead_s=0.02))
"""That of tasks that are programs. To take in a result costs a tenth of the shortest program: several results
come together, if a worker has that many tasks.
"""


def usual_policy(entries: Iterable[CodeEntry]) -> SchedulingPolicy:
    """Return the policy of a job that states none.

    Args:
        entries: the codes of its tasks.
    """
    runs = [entry.run for entry in entries]
    are_programs = bool(runs) and all(isinstance(run, Program) for run in runs)
    return USUAL_OF_PROGRAMS if are_programs else USUAL


def find_policy(policy: SchedulingPolicy | str, assign: str = "") -> SchedulingPolicy:
    """Return a policy that can be used: this one, or the one of this name.

    Args:
        policy: the policy, or its name.
        assign: ``queues``: tasks wait in queues of resources if the policy does not say how; "": as it says.

    Raises:
        PolicyError: no package offers it, it cannot be loaded, or it is no policy; there is no such way to
            assign tasks.
    """
    if wrong := bad_assignment(assign):
        raise PolicyError(wrong)
    found = _find(policy)
    return replace(found, assign=Queues()) if assign and found.assign is None else found


def _find(policy: SchedulingPolicy | str) -> SchedulingPolicy:
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
    """Return a policy all of whose parts are objects with the methods that a scheduler asks.

    Raises:
        PolicyError: it is none, a part is a class or lacks a method, or ``ready_max`` is no positive whole
            number.
    """
    if not isinstance(policy, SchedulingPolicy):
        raise PolicyError(f"{what} is no SchedulingPolicy but {policy!r}")
    for name, part, kind in (
        ("retry", policy.retry, RetryPolicy),
        ("work_ahead", policy.work_ahead, WorkAheadPolicy),
        ("look_ahead", policy.look_ahead, LookAheadPolicy),
        ("variants", policy.variants, VariantPolicy),
        ("locations", policy.locations, LocationPolicy),
        ("assign", policy.assign, AssignPolicy),
    ):
        if part is None and name == "assign":
            continue
        if isinstance(part, type):
            raise PolicyError(
                f"{what}: its {name} is a class, which is no policy yet: write {part.__name__}()"
            )
        missing = [method for method in _methods(kind) if not hasattr(part, method)]
        if missing:
            raise PolicyError(f"{what}: its {name} is {part!r}, which has no {missing[0]}")
    if not isinstance(policy.ready_max, int) or policy.ready_max < 1:
        raise PolicyError(f"{what}: ready_max is {policy.ready_max!r}; it is a number of tasks, 1 or more")
    return policy


def _methods(kind: type) -> Iterator[str]:
    return (name for name in vars(kind) if not name.startswith("_"))
