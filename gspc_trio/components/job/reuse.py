"""A changed workflow takes the results of its earlier version that still suit: those of the same tasks.

The new net is fired anew. A task that is like one whose result is there gets that result, and is not run.
Results are taken in in the order in which they were before, so that what depends on their order is as it was.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from heapq import heappop, heappush
from typing import TypeAlias

from attrs import define, field
from msgspec import Struct

from gspc_trio.components.job.journal import JournalRecord, Outcomes, Reusable, Values
from gspc_trio.components.job.task_key import NO_KEY, Key, Noted, TaskKeys, with_files
from gspc_trio.core.ids import TaskId
from gspc_trio.core.machine import IllegalEvent
from gspc_trio.workflow.engine import WorkflowEngine
from gspc_trio.workflow.structure import followers

Content: TypeAlias = Callable[[str], bytes | None]
"""Returns the digest of what a file on the host of the job has; None if it cannot be read."""

LOOKED_AT_MAX = 200_000
"""So many tasks without a result are looked at ahead; a net may have tasks for ever."""


class Result(Struct, frozen=True):
    """A result of the earlier version.

    Attributes:
        number: when it came, counted from 0.
        key: of its task.
        values: for each output of its code, the encoded values.
    """

    number: int
    key: Key
    values: Values


class Results:
    """Results of earlier versions of a workflow, by what their tasks were.

    Attributes:
        unknown: results of which nobody knows what their task was; they are not here.
    """

    def __init__(self) -> None:
        self._found: dict[tuple[str, bytes], deque[Result]] = {}
        self._number = 0
        self.unknown: int = 0

    def __bool__(self) -> bool:
        return bool(self._found)

    def add(self, key: Key, values: Values) -> None:
        """Add a result; it came after those that are here."""
        if not key[0]:
            self.unknown += 1
            return
        self._found.setdefault((key[0], key[1]), deque()).append(Result(self._number, key, values))
        self._number += 1

    def take(self, name: str, digest: bytes, is_there: Callable[[str, bytes], bool]) -> Result | None:
        """Return the oldest result of a task that was the same, once; None if there is none.

        Args:
            name, digest: of the task.
            is_there: whether a file that such a task has stored is there as it was.
        """
        found = self._found.get((name, digest), ())
        while found:
            result = found.popleft()
            if not found:
                del self._found[name, digest]
            if all(is_there(path, content) for path, content in result.key[2]):
                return result
        return None

    def keep_those_of(self, names: Container[str]) -> None:
        """Drop the results of other transitions."""
        for name, digest in [key for key in self._found if key[0] not in names]:
            del self._found[name, digest]

    def record(self) -> Reusable:
        """Return what is here as a record, oldest first."""
        results = sorted((one for found in self._found.values() for one in found), key=lambda one: one.number)
        return Reusable(tuple(one.values for one in results), tuple(one.key for one in results), taken=False)

    def counts(self) -> Counter[str]:
        """Return how many there are for each transition."""
        counts: Counter[str] = Counter()
        for (name, _), results in self._found.items():
            counts[name] += len(results)
        return counts


def results_in(files: Iterable[Sequence[JournalRecord]]) -> Results:
    """Return all results that the files of a journal have, of one version of its workflow.

    Args:
        files: their records, oldest first. A result may be in two of them. What the workflow may yet take is
            in the last one.
    """
    results, seen = Results(), set[tuple[TaskId, bytes]]()
    last: Sequence[JournalRecord] = ()
    for last in files:
        for record in last:
            if isinstance(record, Reusable) and record.taken:
                for key, values in zip(record.keys, record.rows, strict=True):
                    results.add(key, values)
            elif isinstance(record, Outcomes):
                keys = record.keys or (NO_KEY,) * len(record.rows)
                for key, (task_id, values) in zip(keys, record.rows, strict=True):
                    if (task_id, key[1]) not in seen:
                        seen.add((task_id, key[1]))
                        results.add(key, values)
    return _with_rest(results, last)


def rest_in(records: Iterable[JournalRecord]) -> Results:
    """Return the results in a file that its workflow may yet take."""
    return _with_rest(Results(), records)


def _with_rest(results: Results, records: Iterable[JournalRecord]) -> Results:
    used: Counter[tuple[str, bytes]] = Counter()
    records = list(records)
    for record in records:
        if isinstance(record, Outcomes):
            used.update((name, digest) for name, digest, _ in record.keys)
    for record in records:
        if isinstance(record, Reusable) and not record.taken:
            for key, values in zip(record.keys, record.rows, strict=True):
                if used[key[:2]]:
                    used[key[:2]] -= 1
                else:
                    results.add(key, values)
    return results


class TransitionReuse(Struct, frozen=True):
    """What becomes of the results of a transition.

    Attributes:
        name: of the transition.
        kept: results that are kept.
        waiting: results that are kept should such tasks come: that depends on what others return.
        dropped: results that suit no task any more.
        ready: tasks that are known to run; more may follow from what they return.
        why: why results are not kept, or tasks are to run; "" if all are kept.
    """

    name: str
    kept: int
    waiting: int
    dropped: int
    ready: int
    why: str = ""


@define
class Reuse:
    """A new version of a workflow, with the results of the earlier one that suit.

    Attributes:
        engine: of the new version, with these results; other tasks are ready.
        taken: these results.
        rest: those that tasks may take that are still to come.
        transitions: what becomes of the results, by transition.
        identities: of the code of its transitions.
        unknown: results of which nobody knows what their task was; they are dropped.
    """

    engine: WorkflowEngine
    taken: Reusable
    rest: Results
    transitions: tuple[TransitionReuse, ...]
    identities: Mapping[str, bytes]
    unknown: int


def result_of(noted: Noted | None, results: Results, content: Content) -> Result | None:
    """Take a result of a task that was the same; None if there is none.

    Args:
        noted: what the task is.
        results: where to look.
        content: returns the digest of what a file on the host of the job has; None if it cannot be read.
    """
    if noted is None:
        return None
    digest = with_files(noted, content)
    if digest is None:
        return None
    return results.take(noted.name, digest, lambda path, there: content(path) == there)


@define
class _Replay:
    engine: WorkflowEngine
    keys: TaskKeys
    results: Results
    content: Content
    taken: list[Result] = field(factory=list)
    to_run: list[TaskId] = field(factory=list)
    _found: list[tuple[int, TaskId, Result]] = field(factory=list)

    def run(self) -> None:
        """Take in all results that suit, in their order; make ready what is left."""
        self.engine.lift_limits(True)
        self._pull()
        while self._found:
            _, task_id, result = heappop(self._found)
            try:
                self.engine.inject(task_id, result.values)
            except IllegalEvent:  # its outputs are others now
                self.to_run.append(task_id)
                continue
            self.taken.append(result)
            self._pull()
        for task_id in sorted(self.to_run):
            self.engine.restore(task_id)
        self.engine.lift_limits(False)

    def _pull(self) -> None:
        """See which tasks are ready, and which results suit them."""
        engine = self.engine
        while len(self.to_run) < LOOKED_AT_MAX:
            task_id = engine.next()
            if task_id is not None:
                result = result_of(self.keys.of(engine.extract(task_id)), self.results, self.content)
                if result is None:
                    self.to_run.append(task_id)
                else:
                    heappush(self._found, (result.number, task_id, result))
            elif not engine.has_more:
                return


def reuse(
    engine: WorkflowEngine,
    identities: Mapping[str, bytes],
    earlier: Mapping[str, bytes],
    results: Results,
    content: Content,
) -> Reuse:
    """Return a new version of a workflow with those results of its earlier version that suit.

    Args:
        engine: of the new version, at its beginning.
        identities: of the code of its transitions.
        earlier: the same of the earlier version.
        results: of the earlier version; those that suit are taken out, those that never will are dropped.
        content: returns the digest of what a file on the host of the job has; None if it cannot be read.

    Raises:
        TransitionFailed: a condition or an inline transition of the new version raised.
    """
    there = results.counts()
    replay = _Replay(engine, TaskKeys(identities), results, content)
    replay.run()
    same = {name for name, identity in identities.items() if earlier.get(name) == identity}
    ready = Counter(engine.activities[task_id].transition.description.name for task_id in replay.to_run)
    looked_at_all = len(replay.to_run) < LOOKED_AT_MAX
    results.keep_those_of(same & followers(engine.net, ready) if looked_at_all else same)
    kept = Counter(result.key[0] for result in replay.taken)
    waiting = results.counts()
    rows = []
    for name in dict.fromkeys((*identities, *sorted(there))):
        dropped = there[name] - kept[name] - waiting[name]
        why = _why(name, waiting[name], dropped, ready[name], identities, earlier)
        rows.append(TransitionReuse(name, kept[name], waiting[name], dropped, ready[name], why))
    taken = Reusable(
        tuple(one.values for one in replay.taken), tuple(one.key for one in replay.taken), taken=True
    )
    return Reuse(engine, taken, results, tuple(rows), identities, results.unknown)


def _why(
    name: str,
    waiting: int,
    dropped: int,
    ready: int,
    identities: Mapping[str, bytes],
    earlier: Mapping[str, bytes],
) -> str:
    """Return why results are not kept, or tasks are to run."""
    if name not in identities:
        return "it is no longer in the workflow"
    if not identities[name]:
        return "its code uses something that cannot be compared"
    if name not in earlier:
        return "it is new" if earlier else "the journal does not say what its code was"
    if identities[name] != earlier[name]:
        return "its code has changed"
    if ready and (waiting or dropped):
        return "its arguments or files have changed"
    if waiting:
        return "kept if the tasks before return the same"
    if dropped:
        return "nothing asks for them any more"
    return "not finished" if ready else ""
