"""Reader of WfFormat: JSON -> :class:`Trace`, or all that is wrong with it."""

from __future__ import annotations

import json
import math
import re
import sys
from collections.abc import Collection, Mapping, Set
from contextlib import suppress
from typing import TypeAlias

from msgspec.structs import replace

from gspc_trio.core.similar import did_you_mean
from gspc_trio.workflow.formats.format import PROBLEMS_MAX, FormatError, Problem, Source, brief
from gspc_trio.workflow.formats.wfformat.trace import VERSIONS, RecordedMachine, Trace, TraceTask
from gspc_trio.workflow.structure import find_cycle

JsonPath: TypeAlias = tuple[str | int, ...]
"""Keys and indices that lead from the top to a value."""

_TOKEN = re.compile(r'\s*(?:("(?:[^"\\]|\\.)*")|([{}\[\],:])|([^\s{}\[\],:"]+))', re.DOTALL)

CORES_MAX = 1_000_000
"""Most cores that a task may want."""

_TASKS: JsonPath = ("workflow", "specification", "tasks")
_FILES: JsonPath = ("workflow", "specification", "files")
_EXECUTION: JsonPath = ("workflow", "execution")


def read_trace(source: Source) -> Trace:
    """Read a recorded run.

    Parents and children are united: a dependency counts that one side alone has stated.

    Raises:
        FormatError: it is no JSON, of another version, or makes no sense; with all that is wrong.
    """
    text = source.text()
    try:
        told: object = json.loads(text, parse_constant=_no_constant)
    except json.JSONDecodeError as error:
        problem = source.problem(f"this is no JSON: {error.msg}", error.lineno, error.colno)
        raise FormatError([problem]) from error
    except RecursionError as error:
        raise FormatError([source.problem("this is no WfFormat: too many lists in lists")]) from error
    except ValueError as error:
        raise FormatError([_odd_number(source, text, error)]) from error
    reader = _Reader(told)
    trace = Trace("", {}, {})
    with suppress(_Enough):
        trace = reader.read()
    if reader.problems:
        raise FormatError(_placed(source, text, reader.problems))
    return trace


def _no_constant(word: str) -> float:
    raise ValueError(f"{word} is no number of JSON")


def _odd_number(source: Source, text: str, error: ValueError) -> Problem:
    """Return the problem of a number that JSON or Python does not have."""
    digits = sys.get_int_max_str_digits()
    long = re.compile(rf"(?<!\d)\d{{{digits + 1}}}").search(text) if digits else None
    if long is None or "digits" not in str(error):
        return source.problem(f"this is no JSON: {error}")
    offset = long.start()
    line, column = text.count("\n", 0, offset) + 1, offset - text.rfind("\n", 0, offset)
    return source.problem(f"a number of more than {digits:,} digits", line, column)


def _placed(source: Source, text: str, problems: Mapping[JsonPath, list[str]]) -> list[Problem]:
    """Return the problems with the lines and columns where they are."""
    wanted = {where[:length] for where in problems for length in range(len(where) + 1)}
    offsets = find_offsets(text, wanted)
    found: list[tuple[int, str]] = []
    for where, messages in problems.items():
        while where not in offsets:
            where = where[:-1]  # it is missing: say in what
        found += [(offsets[where], message) for message in messages]
    placed = []
    line, before = 1, 0
    for offset, message in sorted(found):
        line, before = line + text.count("\n", before, offset), offset
        placed.append(source.problem(message, line, offset - text.rfind("\n", 0, offset)))
    return placed


def find_offsets(text: str, wanted: Set[JsonPath]) -> dict[JsonPath, int]:
    """Return where the values at these paths begin, in characters; of a path that is not there nothing.

    Args:
        text: JSON that has been read without an error.
        wanted: paths.
    """
    found: dict[JsonPath, int] = {}
    path: list[str | int] = []
    is_object: list[bool] = []
    awaits_key = False
    for token in _TOKEN.finditer(text):
        string, mark, _ = token.groups()
        if mark == ":":
            continue
        if mark == ",":
            awaits_key = is_object[-1]
            if not awaits_key:
                path[-1] = int(path[-1]) + 1
        elif mark is not None and mark in "}]":
            is_object.pop()
            path.pop()
        elif awaits_key and string is not None:
            path[-1], awaits_key = json.loads(string), False
        else:
            if tuple(path) in wanted:
                found.setdefault(tuple(path), token.start(token.lastindex or 0))
                if len(found) == len(wanted):
                    break
            if mark is not None:
                awaits_key = mark == "{"
                is_object.append(awaits_key)
                path.append("" if awaits_key else 0)
    return found


class _Enough(Exception):
    """There are so many problems that no more are looked for."""


class _Reader:
    """Reads what JSON says, and notes what is wrong with it.

    Args:
        told: the JSON.

    Attributes:
        problems: path -> what is wrong there.
    """

    def __init__(self, told: object) -> None:
        self._told = told
        self.problems: dict[JsonPath, list[str]] = {}
        self._noted = 0

    def read(self) -> Trace:
        """Return the run; it counts only if there are no problems."""
        top = self._object((), self._told)
        version = top.get("schemaVersion")
        if self.problems or version not in VERSIONS:
            if not self.problems:
                read, tool = " and ".join(VERSIONS), "the migration tool of WfFormat"
                older = f"this is WfFormat {brief(version)}; {read} are read: bring it there with {tool}"
                message = f"there is no schemaVersion; {read} are read" if version is None else older
                self._note(("schemaVersion",), message)
            return Trace("", {}, {})
        workflow = self._object(("workflow",), top.get("workflow"))
        specification = self._object(_TASKS[:-1], workflow.get("specification", None if workflow else {}))
        execution = self._object(_EXECUTION, workflow.get("execution", {}))
        tasks = self._tasks(specification.get("tasks", None if specification else []))
        files = self._files(specification.get("files", []))
        return Trace(
            self._text(("name",), top.get("name", "")) or "workflow",
            self._with_runs(tasks, execution.get("tasks", [])),
            files,
            self._machines(execution.get("machines", [])),
            self._number((*_EXECUTION, "makespanInSeconds"), execution.get("makespanInSeconds", 0)),
            self._text((*_EXECUTION, "executedAt"), execution.get("executedAt", "")),
        )

    # The parts

    def _tasks(self, told: object) -> dict[str, TraceTask]:
        tasks: dict[str, TraceTask] = {}
        where_is: dict[str, JsonPath] = {}
        children: list[tuple[JsonPath, str, str]] = []
        listed = self._list(_TASKS, told)
        if not listed and not self.problems:
            self._note(_TASKS, "there are no tasks")
        for number, one in enumerate(listed):
            where = (*_TASKS, number)
            task = self._object(where, one)
            task_id = self._id(where, task, tasks, "tasks") if isinstance(one, dict) else ""
            if not task_id:
                continue
            where_is[task_id] = where
            tasks[task_id] = TraceTask(
                task_id,
                self._text((*where, "name"), task.get("name", "")) or task_id,
                self._texts((*where, "parents"), task.get("parents", [])),
                self._texts((*where, "inputFiles"), task.get("inputFiles", [])),
                self._texts((*where, "outputFiles"), task.get("outputFiles", [])),
            )
            for index, child in enumerate(self._texts((*where, "children"), task.get("children", []))):
                children.append(((*where, "children", index), task_id, child))
        return self._united(tasks, where_is, children)

    def _united(
        self,
        tasks: Mapping[str, TraceTask],
        where_is: Mapping[str, JsonPath],
        children: Collection[tuple[JsonPath, str, str]],
    ) -> dict[str, TraceTask]:
        """Return tasks with all their parents, those that only the parents have named included."""
        parents: dict[str, dict[str, None]] = {task_id: {} for task_id in tasks}
        for task_id, task in tasks.items():
            for index, parent in enumerate(task.parents):
                if self._known((*where_is[task_id], "parents", index), parent, tasks):
                    parents[task_id][parent] = None
        for where, parent, child in children:
            if self._known(where, child, tasks):
                parents[child][parent] = None
        united = {task_id: replace(task, parents=tuple(parents[task_id])) for task_id, task in tasks.items()}
        if cycle := find_cycle({task_id: task.parents for task_id, task in united.items()}):
            words = " waits for ".join(map(repr, cycle))
            self._note(where_is[cycle[0]], f"tasks wait for each other in a circle: {words}")
        return united

    def _with_runs(self, tasks: Mapping[str, TraceTask], told: object) -> dict[str, TraceTask]:
        """Return tasks with what is recorded of their runs."""
        run: dict[str, TraceTask] = {}
        for number, one in enumerate(self._list((*_EXECUTION, "tasks"), told)):
            where = (*_EXECUTION, "tasks", number)
            record = self._object(where, one)
            task_id = self._id(where, record, run, "recorded tasks")
            if not task_id or not self._known((*where, "id"), task_id, tasks):
                continue
            command = self._object((*where, "command"), record.get("command", {}))
            program = self._text((*where, "command", "program"), command.get("program", ""))
            arguments = self._texts((*where, "command", "arguments"), command.get("arguments", []))
            cores = self._number((*where, "coreCount"), record.get("coreCount", 1))
            if cores > CORES_MAX:
                self._note((*where, "coreCount"), f"{cores:g} cores are more than {CORES_MAX}")
            run[task_id] = replace(
                tasks[task_id],
                runtime_s=self._number((*where, "runtimeInSeconds"), record.get("runtimeInSeconds", 0)),
                cores=max(1, math.ceil(cores)),
                command=(program, *arguments) if program else (),
                machines=self._texts((*where, "machines"), record.get("machines", [])),
                executed_at=self._text((*where, "executedAt"), record.get("executedAt", "")),
            )
        return {task_id: run.get(task_id, task) for task_id, task in tasks.items()}

    def _files(self, told: object) -> dict[str, int]:
        files: dict[str, int] = {}
        for number, one in enumerate(self._list(_FILES, told)):
            where = (*_FILES, number)
            file = self._object(where, one)
            file_id = self._id(where, file, files, "files")
            if file_id:
                files[file_id] = int(self._number((*where, "sizeInBytes"), file.get("sizeInBytes", 0)))
        return files

    def _machines(self, told: object) -> tuple[RecordedMachine, ...]:
        machines = []
        for number, one in enumerate(self._list((*_EXECUTION, "machines"), told)):
            where = (*_EXECUTION, "machines", number)
            machine = self._object(where, one)
            name = self._text((*where, "nodeName"), machine.get("nodeName"))
            cpu = self._object((*where, "cpu"), machine.get("cpu", {}))
            cores = self._number((*where, "cpu", "coreCount"), cpu.get("coreCount", 0))
            machines.append(RecordedMachine(name, int(cores)))
        return tuple(machines)

    # Values

    def _note(self, where: JsonPath, message: str) -> None:
        self.problems.setdefault(where, []).append(message)
        self._noted += 1
        if self._noted >= PROBLEMS_MAX:
            raise _Enough

    def _id(self, where: JsonPath, told: Mapping[str, object], there: Collection[str], kind: str) -> str:
        """Return an id that is new, "" if it is not."""
        name = self._text((*where, "id"), told.get("id"))
        if name in there:
            self._note((*where, "id"), f"two {kind} have the id {brief(name)}")
            return ""
        if told.get("id") == "":
            self._note((*where, "id"), "the id is empty")
        return name

    def _known(self, where: JsonPath, task_id: str, tasks: Mapping[str, TraceTask]) -> bool:
        if task_id not in tasks:
            self._note(where, f"there is no task {brief(task_id)}{did_you_mean(task_id, tasks)}")
        return task_id in tasks

    def _object(self, where: JsonPath, told: object) -> Mapping[str, object]:
        if isinstance(told, dict):
            return told
        self._wrong(where, told, "an object")
        return {}

    def _list(self, where: JsonPath, told: object) -> list[object]:
        if isinstance(told, list):
            return told
        self._wrong(where, told, "a list")
        return []

    def _text(self, where: JsonPath, told: object) -> str:
        if isinstance(told, str):
            return told
        self._wrong(where, told, "a text")
        return ""

    def _texts(self, where: JsonPath, told: object) -> tuple[str, ...]:
        listed = self._list(where, told)
        texts = [self._text((*where, index), one) for index, one in enumerate(listed)]
        return tuple(texts)

    def _number(self, where: JsonPath, told: object) -> float:
        """Return a number that is not negative."""
        if isinstance(told, int | float) and not isinstance(told, bool) and 0 <= told < 2**63:
            return told
        self._wrong(where, told, "a number from 0 to 2^63")
        return 0

    def _wrong(self, where: JsonPath, told: object, wanted: str) -> None:
        name = ".".join(str(word) for word in where if isinstance(word, str)) or "the file"
        if told is None:
            self._note(where, f"{name} is missing: {wanted} is wanted")
        else:
            self._note(where, f"{name} is {brief(told)}; {wanted} is wanted")
