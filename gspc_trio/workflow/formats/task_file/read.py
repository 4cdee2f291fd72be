"""Reader of task files: TOML -> a pool of tasks, or all that is wrong with it."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping
from typing import cast

from gspc_trio.core.code import Program
from gspc_trio.core.similar import did_you_mean
from gspc_trio.core.uri import mask_text
from gspc_trio.workflow.arcs import WorkflowError
from gspc_trio.workflow.calls import Run
from gspc_trio.workflow.definition import SettingError
from gspc_trio.workflow.formats.format import ForeignWorkflow, FormatError, Problem, Problems, Source, brief
from gspc_trio.workflow.net import Net
from gspc_trio.workflow.patterns.pool import DataLayout, PoolTaskDescription, pool, task
from gspc_trio.workflow.settings import TaskSettings

SETTINGS = ("attempts", "loss_attempts", "timeout_s", "may_rerun", "memory_bytes", "estimate_s", "cache")
"""What a task may say besides, see ``TaskSettings``."""

KEYS = ("id", "code", "program", "input", "output", "arguments", "threads", "dependencies", *SETTINGS)

PARTS_MAX = 20
"""A key may have so many parts, as in ``a.b.c``: the time in which TOML is read grows with their square."""

WORD_CHARACTERS_MAX = 1_000
"""So long a name or number outside of quotes may be."""

KEYS_PER_TASK_MAX = 100
"""So many keys and tables there may be for each task."""

_QUOTED = re.compile(
    r'''"""(?:[^\\"]++|\\.|"(?!""))*+(?:""")?|"(?:[^\\"\n]++|\\.)*+"?|'''
    r"""'''.*?(?:'''|\Z)|'[^'\n]*+'?|\#[^\n]*+""",
    re.DOTALL,
)
_PARTS = re.compile(rf"(?<![\w.-])(?:[\w-]++[ \t]*+\.[ \t]*+){{{PARTS_MAX}}}")
_WORD = re.compile(rf"(?<![\w+-])[\w+-]{{{WORD_CHARACTERS_MAX + 1}}}")
_KEY = re.compile(r"^[ \t]*+(?:\[{1,2}+[\w .\t-]++\]{1,2}+[ \t]*+$|[\w-][\w .\t-]*+=)", re.MULTILINE)

_PLACE = re.compile(r"at line (\d+), column (\d+)")
_HEADER = re.compile(r"^[ \t]*+\[\[[ \t]*task[ \t]*\]\]", re.MULTILINE)


class TaskFileWorkflow(ForeignWorkflow):
    """A pool of tasks that was read from a file."""

    def parse_value(self, port: str, text: str, /) -> object:
        """Refuse: tasks have all that they need."""
        raise SettingError(f"{port}={text}: a task file takes no values: its tasks have arguments")

    def show_value(self, _port: str, value: object, /) -> str:
        """Return a result as people read it."""
        return repr(value)

    def plain_value(self, _port: str, value: object, /) -> object:
        """Return a result as JSON has it."""
        return value


def read_tasks(source: Source) -> TaskFileWorkflow:
    """Read a task file.

    Raises:
        FormatError: it is no TOML, or its tasks make no sense; with all that is wrong.
    """
    text = source.text()
    check_size(source, text)
    try:
        told = tomllib.loads(text)
    except RecursionError as error:
        raise FormatError([source.problem("this is no TOML: lists or tables are nested too deep")]) from error
    except ValueError as error:
        place = _PLACE.search(str(error))
        line, column = (int(place[1]), int(place[2])) if place else (0, 0)
        message = _PLACE.sub("", str(error)).replace(" ()", "").strip()
        raise FormatError([source.problem(f"this is no TOML: {message}", line, column)]) from error
    reader = _Reader(source, text)
    net = reader.read(told)
    if net is None or reader.problems:
        raise FormatError(reader.problems)
    return TaskFileWorkflow(net)


def check_size(source: Source, text: str) -> None:
    """See that a text is none with which a reader of TOML is busy for minutes.

    Raises:
        FormatError: it is one.
    """
    plain = _QUOTED.sub("_", text)
    if _PARTS.search(plain):
        raise FormatError([source.problem(f"there is a key of more than {PARTS_MAX} parts")])
    if _WORD.search(plain):
        message = f"there is a name or a number of more than {WORD_CHARACTERS_MAX:,} characters"
        raise FormatError([source.problem(message)])
    tasks = len(_HEADER.findall(plain))
    keys = sum(1 for _ in _KEY.finditer(plain))
    if keys > KEYS_PER_TASK_MAX * (tasks + 1):
        message = f"there are {keys:,} keys and tables; the {tasks:,} tasks have at most {len(KEYS)} each"
        raise FormatError([source.problem(message)])


class _Reader:
    """Reads what TOML says.

    Attributes:
        problems: what is wrong.
    """

    def __init__(self, source: Source, text: str) -> None:
        self.problems = Problems()
        self._source = source
        self._all = text
        self._starts = [found.end() for found in _HEADER.finditer(text)]
        self._ids: set[str] = set()
        self._seen = (0, 1)  # an offset, and its line
        self._functions: dict[str, Mapping[str, Run] | None] = {}

    def read(self, told: Mapping[str, object]) -> Net | None:
        """Return the net of the tasks; it counts only if there are no problems."""
        for key in told:
            if key not in ("name", "task"):
                message = f"there is no {key!r}; there are: name, task{did_you_mean(key, ('name', 'task'))}"
                self.problems.append(self._source.problem(message))
        listed = told.get("task", [])
        if not isinstance(listed, list) or not listed:
            self.problems.append(self._no_tasks(listed))
            return None
        tasks = {number: found for number, one in enumerate(listed) if (found := self._task(number, one))}
        for number, one in tasks.items():
            for parent in one.dependencies:
                if parent not in self._ids:
                    meant = did_you_mean(parent, self._ids)
                    self._wrong(number, "dependencies", f"there is no task {parent!r}{meant}")
        if len(tasks) < len(listed) or len(self._ids) < len(listed):
            return None
        name = told.get("name", "tasks")
        try:
            return pool(tasks.values(), name if isinstance(name, str) else "tasks")
        except WorkflowError as error:
            if not self.problems:  # else it is one of these, or comes of them
                named = [number for number, one in tasks.items() if repr(one.task_id) in str(error)]
                self._wrong(named[0] if named else 0, "id", str(error))
            return None

    def _no_tasks(self, listed: object) -> Problem:
        if listed == []:
            return self._source.problem("there are no tasks: begin each one with [[task]]")
        found = re.compile(r"^[ \t]*\[?[ \t]*[\"']?task\b", re.MULTILINE).search(self._all)
        line = self._all.count("\n", 0, found.end()) + 1 if found else 0
        what = "one table: begin it" if isinstance(listed, dict) else f"{brief(listed)}: begin each task"
        return self._source.problem(f"task is {what} with [[task]], in double brackets, and keys below", line)

    def _task(self, number: int, told: object) -> PoolTaskDescription | None:
        if not isinstance(told, dict):
            self._wrong(number, "", "a task is written [[task]], with keys below")
            return None
        for key in told:
            if key not in KEYS:
                known = ", ".join(KEYS)
                self._wrong(number, key, f"there is no {key!r}; there are: {known}{did_you_mean(key, KEYS)}")
        task_id = self._text(number, told, "id")
        if task_id in self._ids:
            self._wrong(number, "id", f"two tasks have the id {task_id!r}")
        self._ids.add(task_id)
        code = self._code(number, told)
        inputs = [self._data(number, "input", one) for one in _listed(told.get("input", []))]
        output = self._data(number, "output", told.get("output", ""))
        arguments = told.get("arguments", [])
        if not isinstance(arguments, list):
            self._wrong(number, "arguments", f"arguments is a list, not {brief(arguments)}")
            arguments = []
        dependencies = told.get("dependencies", [])
        if not isinstance(dependencies, list) or not all(isinstance(one, str) for one in dependencies):
            self._wrong(number, "dependencies", f"dependencies is a list of ids, not {brief(dependencies)}")
            dependencies = []
        settings = cast("TaskSettings", {key: told[key] for key in SETTINGS if key in told})
        try:
            return task(
                inputs,
                output,
                code or abs,  # any function: what else is wrong is told, too
                arguments,
                told.get("threads", 1),
                dependencies,
                id=task_id,
                **settings,
            )
        except (WorkflowError, ValueError, TypeError) as error:
            if task_id:  # else that is told
                self._wrong(number, "", str(error))
            return None

    def _code(self, number: int, told: Mapping[str, object]) -> Run | None:
        """Return what a task runs."""
        if ("code" in told) == ("program" in told):
            self._wrong(number, "id", 'a task has either code = "FILE.py:NAME" or program = ["PROGRAM", ...]')
            return None
        if "program" in told:
            words = told["program"]
            if not isinstance(words, str | list):
                self._wrong(number, "program", f"program is a list of words, not {brief(words)}")
                return None
            try:
                return Program(words)
            except (TypeError, ValueError) as error:
                self._wrong(number, "program", str(error))
                return None
        file, colon, name = self._text(number, told, "code").rpartition(":")
        if not colon or not file.endswith(".py") or not name:
            self._wrong(number, "code", f"code is written FILE.py:NAME, not {brief(told['code'])}")
            return None
        functions = self._functions_of(number, file)
        if functions is not None and name not in functions:
            known = ", ".join(functions) or "none"
            meant = did_you_mean(name, functions)
            self._wrong(number, "code", f"{file} has no function {name!r}; it has: {known}{meant}")
        return None if functions is None else functions.get(name)

    def _functions_of(self, number: int, file: str) -> Mapping[str, Run] | None:
        if file not in self._functions:
            try:
                self._functions[file] = self._source.functions(file)
            except ValueError as error:
                self._wrong(number, "code", str(error))
                self._functions[file] = None
        return self._functions[file]

    def _data(self, number: int, key: str, told: object) -> DataLayout:
        """Return data of a task: a URI, or a table of source, location and policy."""
        table = {"source": told} if isinstance(told, str) else told
        if not isinstance(table, dict) or not set(table) <= {"source", "location", "policy"}:
            self._wrong(
                number, key, f"{key} is a URI, or has source, location and policy; it is {brief(told)}"
            )
            return DataLayout()
        source, policy = self._text(number, table, "source"), table.get("policy", "single")
        location = table.get("location", [])
        if not isinstance(location, list) or not all(isinstance(host, str) for host in location):
            self._wrong(number, key, f"location is a list of hosts, not {brief(location)}")
            location = []
        return DataLayout(source, tuple(location), policy if isinstance(policy, str) else brief(policy))

    def _text(self, number: int, told: Mapping[str, object], key: str) -> str:
        value = told.get(key)
        if isinstance(value, str):
            return value
        self._wrong(
            number, key, f"{key} is missing" if value is None else f"{key} is a text, not {brief(value)}"
        )
        return ""

    def _wrong(self, number: int, key: str, message: str) -> None:
        """Note what is wrong with a task, at its key if that can be found, else where the task begins."""
        line = column = 0
        if number < len(self._starts):
            start = self._starts[number]
            end = self._starts[number + 1] if number + 1 < len(self._starts) else len(self._all)
            found = re.compile(rf"^[ \t]*(?={re.escape(key)}\b)", re.MULTILINE).search(self._all, start, end)
            offset = found.end() if key and found else self._all.rindex("[[", 0, start)
            line, column = self._line(offset), offset - self._all.rfind("\n", 0, offset)
        self.problems.append(self._source.problem(mask_text(message), line, column))

    def _line(self, offset: int) -> int:
        """Return the line of an offset; problems are told mostly from the top to the bottom."""
        before, line = self._seen if self._seen[0] <= offset else (0, 1)
        self._seen = offset, line + self._all.count("\n", before, offset)
        return self._seen[1]


def _listed(told: object) -> list[object]:
    return told if isinstance(told, list) else [told]
