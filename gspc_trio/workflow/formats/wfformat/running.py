"""A recorded run as a net: a transition for each task, a place for each dependency."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from urllib.parse import quote

from gspc_trio.core.code import Program
from gspc_trio.core.rules import placeholders
from gspc_trio.workflow.arcs import Forward, Place, WorkflowError
from gspc_trio.workflow.definition import SettingError
from gspc_trio.workflow.formats.format import (
    ForeignWorkflow,
    FormatError,
    NewFile,
    Problems,
    ReadOptions,
    Source,
)
from gspc_trio.workflow.formats.in_tasks.python import RecordedWork, SyntheticFile
from gspc_trio.workflow.formats.wfformat.trace import Trace, TraceTask
from gspc_trio.workflow.net import Net
from gspc_trio.workflow.settings import TaskSettings
from gspc_trio.workflow.tokens import Outputs

ENDED = "ended"
"""Name of the output port: it gets a token from each task for which no other waits."""

_BRACE = "(brace)"
"""Place with what stands for { in words that are not to be filled."""

_PLAIN = "/.:#-+=@,"
"""Characters besides letters, digits and _ that stay in the name of a file."""


class TraceWorkflow(ForeignWorkflow):
    """A recorded run that can run again.

    Attributes:
        trace: what was read.
    """

    def __init__(self, trace: Trace, net: Net, files: Iterable[NewFile]) -> None:
        super().__init__(net, files=files)
        self.trace = trace

    def parse_value(self, port: str, text: str) -> object:
        """Refuse: a trace has no input ports."""
        raise SettingError(f"{port}={text}: a recorded run takes no values")

    def show_value(self, _port: str, value: object, /) -> str:
        """Return a value as people read it: it is None, for a token without one."""
        return str(value)

    def plain_value(self, _port: str, value: object, /) -> object:
        """Return a value as JSON has it."""
        return value

    def show_outputs(self, outputs: Outputs) -> Iterable[str]:
        """Return how many tasks have ended; if not all, how many of those for which no other waits."""
        ended, last = len(outputs[ENDED]), self._last_tasks
        seconds = sum(task.runtime_s for task in self.trace.tasks.values())
        if ended == last:
            count = len(self.trace.tasks)
            tasks = f"{count} task{'s' * (count != 1)} of {seconds:g} recorded seconds"
            yield f"{self.trace.name}: {tasks} have ended"
        else:
            yield f"{self.trace.name}: {ended} of {last} tasks for which no other waits have ended"

    def plain_outputs(self, outputs: Outputs) -> Mapping[str, object]:
        """Return how many tasks there are, and how many of those have ended for which no other waits."""
        last = self._last_tasks
        return {"tasks": len(self.trace.tasks), "last_tasks": last, "last_tasks_ended": len(outputs[ENDED])}

    @property
    def _last_tasks(self) -> int:
        return len(self.trace.tasks.keys() - {parent for parent, _ in self.trace.edges()})


def running_trace(trace: Trace, source: Source, options: ReadOptions) -> TraceWorkflow:
    """Return a recorded run as a workflow.

    Args:
        trace: what was read.
        source: where from.
        options: ``scale``, ``work`` and ``files`` count.

    Raises:
        FormatError: a task cannot be run so.
    """
    making = _Making(trace, source, options)
    for task in trace.tasks.values():
        try:
            making.add(task)
        except WorkflowError as error:
            making.problems.append(source.problem(str(error)))
    if making.problems:
        raise FormatError(making.problems)
    return TraceWorkflow(trace, making.net, making.new_files())


class _Making:
    """Makes the net of a trace.

    Attributes:
        net: the net.
        problems: what is wrong.
    """

    def __init__(self, trace: Trace, source: Source, options: ReadOptions) -> None:
        self.net = Net(trace.name)
        self.problems = Problems()
        self._trace = trace
        self._options = options
        self._folder = source.path.rpartition("/")[2].removesuffix(".json") + "-files"
        self._ended = self.net.output(ENDED)
        self._children: dict[str, list[str]] = {task_id: [] for task_id in trace.tasks}
        for parent, child in trace.edges():
            self._children[parent].append(child)

    def add(self, task: TraceTask) -> None:
        """Add a task.

        Raises:
            WorkflowError: it cannot be run.
        """
        name = task.task_id
        waits = [self._dependency(parent, name) for parent in task.parents]
        inputs = {f"_{index}": place for index, place in enumerate(waits or [self._beginning(name)])}
        freed = [self._dependency(name, child) for child in self._children[name]] or [self._ended]
        run = self._run(task)
        reads = {}
        if isinstance(run, Program) and "brace" in run.names:
            if _BRACE not in self.net.places:
                self.net.place(_BRACE, ["{"], may_keep=True)
            reads["brace"] = self.net.places[_BRACE]
        outputs = [Forward("_0", place) for place in freed]
        self.net.transition(name, run, inputs, outputs, reads=reads, **self._settings(task))

    def _dependency(self, parent: str, child: str) -> Place:
        name = f"{parent} -> {child}"
        return self.net.places.get(name) or self.net.place(name)

    def _beginning(self, task_id: str) -> Place:
        return self.net.place(f"-> {task_id}", [None])

    def _run(self, task: TraceTask) -> RecordedWork | Program:
        if self._options.work == "command":
            if not task.command:
                raise WorkflowError(
                    f"the program of task {task.task_id!r} is not recorded: leave --work command out"
                )
            return Program([_unfilled(word) for word in task.command])
        threads = task.cores if self._options.work == "cpu" else 0
        files = () if self._options.files is None else tuple(map(self._file, task.outputs))
        return RecordedWork(task.runtime_s * self._options.scale, threads, files)

    def _file(self, file_id: str) -> SyntheticFile:
        return SyntheticFile(_safe(file_id), self._size_bytes(file_id))

    def _size_bytes(self, file_id: str) -> int:
        assert self._options.files is not None
        return round(self._trace.files.get(file_id, 0) * self._options.files)

    def _settings(self, task: TraceTask) -> TaskSettings:
        settings: TaskSettings = {}
        if task.cores > 1:
            settings |= {"requires": ["core"] * task.cores, "same_host": True}
        if self._options.files is not None:
            fetch = {_safe(name): f"{self._folder}/{_safe(name)}" for name in task.inputs}
            store = {_safe(name): f"{self._folder}/{_safe(name)}" for name in task.outputs}
            settings |= {"stage_in": fetch, "stage_out": store}
        return settings

    def new_files(self) -> list[NewFile]:
        """Return the files that no task makes, and some task reads."""
        if self._options.files is None:
            return []
        made = {name for task in self._trace.tasks.values() for name in task.outputs}
        read = dict.fromkeys(name for task in self._trace.tasks.values() for name in task.inputs)
        return [
            NewFile(f"{self._folder}/{_safe(name)}", self._size_bytes(name))
            for name in read
            if name not in made
        ]


def _safe(file_id: str) -> str:
    """Return a name below a directory for a file, whatever its id."""
    words = [word for word in file_id.split("/") if word not in ("", ".", "..")]
    return "/".join(quote(word, safe=_PLAIN) for word in words) or quote(file_id, safe="").replace(".", "%2E")


def _unfilled(word: str) -> str:
    """Return a word of a command that becomes this word when it is filled."""
    return word.replace("{", "{brace}") if placeholders(word) else word
