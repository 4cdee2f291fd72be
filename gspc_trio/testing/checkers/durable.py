"""Checker of journals: they hold all results, whatever becomes of job servers (invariants 2 and 13)."""

from __future__ import annotations

from collections.abc import Callable
from hashlib import blake2b
from random import Random

from gspc_trio.components.job.journal import JournalRecord, Outcomes, Replay, Snapshot, Values
from gspc_trio.components.job.journal_bytes import MAGIC, About, decode_record
from gspc_trio.core.ids import TaskId
from gspc_trio.core.task import TaskState
from gspc_trio.protocol.values import dumps, join, loads
from gspc_trio.records.journal_frames import Frames
from gspc_trio.testing.checkers.base import Broken
from gspc_trio.workflow.engine import WorkflowEngine
from gspc_trio.workflow.net import Net

CUTS = 3
"""Places at which a journal is cut each time that it is looked at."""

LOOKS = 0.1
"""After so many of the writes the whole journal is looked at."""

STATES_TASKS_MAX = 100
"""The states of a job with more tasks than that are not noted one by one: it would take too long."""


class Durable:
    """The journal of one job, over all of its job servers.

    Args:
        name: of the job.
        net: its workflow.
        random: draws where the journal is cut.
        read: returns what of the journal is durable.
    """

    def __init__(self, name: str, net: Net, random: Random, read: Callable[[], bytes]) -> None:
        self._name = name
        self._net = net
        self._random = random
        self._random_look = Random(f"looks at the journal of {name}")
        self._read = read
        self._seen = b""
        self._on_disk: set[TaskId] = set()
        self._states: set[bytes] = set()
        self._is_large = False
        self._reported: dict[TaskId, set[Values]] = {}
        self._taken_in: dict[TaskId, Values] = {}
        self.note(WorkflowEngine(net, {}, dumps=dumps, loads=loads, join=join))

    def note(self, engine: WorkflowEngine) -> None:
        """The engine is in a state that a journal may lead to."""
        self._is_large = self._is_large or engine.last_task_id > STATES_TASKS_MAX
        if not self._is_large:
            self._states.add(_fingerprint(engine))

    def reported(self, task_id: TaskId, values: Values) -> None:
        """An attempt has finished."""
        self._reported.setdefault(task_id, set()).add(values)

    def extracted(self, task_id: TaskId) -> None:
        """A task is handed out."""
        if task_id in self._taken_in:
            raise Broken(f"task {task_id} is handed out, and its result is known", self._words(task_id))

    def injected(self, task_id: TaskId, values: Values) -> None:
        """The engine has taken a result in: it is never to be lost, and so it is on disk by now."""
        data = self._read()
        if data is not self._seen:
            self._seen, self._on_disk = data, self._finished_in(data)
            if self._random_look.random() < LOOKS:
                self._whole(data)
        if task_id not in self._on_disk:
            raise Broken(f"task {task_id} was taken in, and is not durable", self._words(task_id))
        if task_id in self._taken_in:
            raise Broken(f"task {task_id} was injected under an earlier job server", self._words(task_id))
        self._taken_in[task_id] = values

    def _finished_in(self, data: bytes) -> set[TaskId]:
        """Return the tasks whose results a file has."""
        tasks: set[TaskId] = set()
        for record in map(decode_record, Frames(data, MAGIC)):
            if isinstance(record, Outcomes):
                tasks.update(task_id for task_id, _ in record.rows)
            elif isinstance(record, Snapshot):
                live = {row[0] for row in record.state["activities"]}
                tasks.update(set(range(1, record.state["last_task_id"] + 1)) - live)
        return tasks

    def glance(self) -> None:
        """Look at what is durable now: its job server goes on, or is over.

        Raises:
            Broken: a result is not there that was taken in; or a part of the file makes no sense.
        """
        data = self._read()
        if data:
            self._whole(data)

    def _whole(self, data: bytes) -> WorkflowEngine:
        """Return the engine that all of a file leads to; it has all results that were taken in."""
        engine = self._replay(data, whole=True)
        if engine is None:
            raise Broken(f"the journal of {self._name} has no beginning")
        for task_id in self._taken_in:
            if task_id in engine.activities or task_id > engine.last_task_id:
                raise Broken(f"the result of task {task_id} was taken in, and is lost", self._words(task_id))
        return engine

    def look(self, data: bytes) -> None:
        """A job server is about to go on with this file: also what is left of it must make sense.

        Raises:
            Broken: a result is not there that was taken in, or one is that never was reported; or a part of
                the file leads to a state that never was.
        """
        engine = self._whole(data)
        for task_id in range(1, engine.last_task_id + 1):
            if task_id not in engine.activities and task_id not in self._reported:
                raise Broken(f"task {task_id} is finished, and never was", self._words(task_id))
            if engine.state(task_id) is TaskState.FINISHED:
                self._taken_in.setdefault(task_id, ())
        self.note(engine)
        for _ in range(CUTS):
            self._replay(data[: self._random.randint(0, len(data))], whole=False)

    def _replay(self, data: bytes, *, whole: bool) -> WorkflowEngine | None:
        """Return the engine that a file leads to, None if it has no beginning."""
        records: list[JournalRecord] = []
        for record in map(decode_record, Frames(data, MAGIC)):
            if not isinstance(record, About):
                records.append(record)
        if not records:
            return None
        again = Replay(self._load)
        for record in records:
            again.apply(record)
        if not self._is_large and _fingerprint(again.engine) not in self._states:
            raise Broken(f"the journal of {self._name}, cut at {len(data)}, gives a state that never was")
        return again.finish() if whole else again.engine

    def _load(self, state: dict[str, object]) -> WorkflowEngine:
        return WorkflowEngine.load(self._net, state, dumps=dumps, loads=loads, join=join)

    def _words(self, task_id: TaskId) -> str:
        return f"task {task_id} of {self._name}"


def _fingerprint(engine: WorkflowEngine) -> bytes:
    """Return what tells a state from others; how far tasks under way are is not part of it."""
    state = engine.dump()
    under_way = sorted((row[0], row[1], row[3]) for row in state["activities"])
    places = sorted(state["tokens"]["places"].items())
    return blake2b(repr((places, under_way, engine.last_task_id)).encode(), digest_size=16).digest()
