"""Pools of tasks with data and dependencies (ASP-1, ASPIDE 4.1.1): each task is a transition of its own."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TypeAlias, Unpack

from attrs import define, evolve, field
from msgspec import Struct

from gspc_trio.core.code import Program, SourceFile, Variants
from gspc_trio.core.similar import did_you_mean
from gspc_trio.core.staging import Named
from gspc_trio.core.task import Requirement
from gspc_trio.core.uri import BadUri, file_name, is_uri, mask_text, parts_of_uri
from gspc_trio.workflow.arcs import Place, Source, Sources, Unpassed, WorkflowError
from gspc_trio.workflow.calls import Run
from gspc_trio.workflow.formats.in_tasks.python import NextToken, PoolTask, SourceCall
from gspc_trio.workflow.net import Net
from gspc_trio.workflow.settings import TaskSettings, whole_number
from gspc_trio.workflow.structure import find_cycle

THREADS_MAX = 1_000_000

FILE, MEMORY = "file", "iml"
"""Schemes of the URIs of data: a file on the host of the job, published data of the memory layer."""


class DataLayout(Struct, frozen=True):
    """Where data of a task comes from or goes to, and how it lies.

    Attributes:
        source: URI: a path or ``file:PATH``, a file on the host of the job, below its working directory;
            ``iml:NAME``, published data of the memory layer; or one with a scheme of fsspec, as ``s3://``.
            "": the value itself, for the tasks that wait.
        location: names of hosts where the task should run, those that have the data, the best first.
        policy: of published output: ``single``, ``replicated:N`` for a copy on each of N hosts, or
            ``striped:N`` for a stretch of it on each of N hosts.
    """

    source: str = ""
    location: tuple[str, ...] = ()
    policy: str = "single"

    @property
    def scheme(self) -> str:
        """``file``, ``iml``, "" for the value itself, or a scheme that nobody knows."""
        if not self.source:
            return ""
        if is_uri(self.source):
            return FILE
        scheme, colon, _ = self.source.partition(":")
        return scheme if colon and scheme.isalnum() else FILE

    @property
    def name(self) -> str:
        """Path or URI of the file, or name of the published data."""
        if is_uri(self.source):
            return self.source
        return self.source.removeprefix(f"{self.scheme}:")

    @property
    def copies(self) -> int:
        """On how many hosts all of a published output lies.

        Raises:
            WorkflowError: there is no such policy.
        """
        return self._hosts("replicated")

    @property
    def stripes(self) -> int:
        """Over how many hosts a published output is spread.

        Raises:
            WorkflowError: there is no such policy.
        """
        return self._hosts("striped")

    def _hosts(self, wanted: str) -> int:
        kind, colon, number = self.policy.partition(":")
        if kind == "single" and not colon:
            return 1
        is_number = number.isdecimal() and number.isascii() and len(number) < 10
        if kind in ("replicated", "striped") and is_number and 1 <= int(number) <= THREADS_MAX:
            return int(number) if kind == wanted else 1
        raise WorkflowError(f"the policy {self.policy!r} is none; there are: single, replicated:N, striped:N")


GivenData: TypeAlias = "str | DataLayout"


class PoolTaskDescription(Struct, frozen=True):
    """A task of a pool; made by :func:`task`.

    Attributes:
        task_id: unique in its pool.
        code: what it runs.
        inputs: data that it gets first.
        output: where its result goes.
        arguments: values that it gets last.
        threads: so many cores of one host.
        dependencies: ids of the tasks whose outputs it gets after its own inputs.
        settings: retries, time-outs and so on.
    """

    task_id: str
    code: Run
    inputs: tuple[DataLayout, ...] = ()
    output: DataLayout = DataLayout()
    arguments: tuple[object, ...] = ()
    threads: int = 1
    dependencies: tuple[str, ...] = ()
    settings: TaskSettings = {}


def task(
    input: GivenData | Sequence[GivenData],
    output: GivenData,
    code: Run,
    arguments: Iterable[object] = (),
    threads: int = 1,
    dependencies: Iterable[str | PoolTaskDescription] = (),
    *,
    id: str,
    **settings: Unpack[TaskSettings],
) -> PoolTaskDescription:
    """Return a task for :func:`pool` (ASPIDE listing 4.1).

    Its code is called with its own input, then the output of each of its dependencies, then the arguments.
    Of a file it gets the name: it finds its input files in its working directory, and leaves its output file
    there. What it returns is its output else.

    Args:
        input: URIs or :class:`DataLayout` of its data; "" or an empty list for none.
        output: URI or layout of its result; "" for a value that only tasks which wait for it get.
        code: a function, a SourceFile, or a Program (``{ID}`` stands for the output of dependency ID).
        arguments: values that the code gets last.
        threads: so many cores of one host; ``OMP_NUM_THREADS`` says so to the code.
        dependencies: tasks, or their ids, that have to end before.
        id: unique in its pool.
        settings: retries, time-outs and so on.

    Raises:
        WorkflowError: something makes no sense.
    """
    try:
        return _checked(id, input, output, code, arguments, threads, dependencies, settings)
    except WorkflowError as error:
        raise WorkflowError(f"task {id!r}: {mask_text(str(error))}") from None


def _checked(
    task_id: str,
    input: GivenData | Sequence[GivenData],
    output: GivenData,
    code: Run,
    arguments: Iterable[object],
    threads: int,
    dependencies: Iterable[str | PoolTaskDescription],
    settings: TaskSettings,
) -> PoolTaskDescription:
    listed = [input] if isinstance(input, str | DataLayout) else list(input)
    inputs = tuple(layout for layout in map(_layout, listed) if layout.source)
    ids = tuple(one if isinstance(one, str) else one.task_id for one in dependencies)
    made = PoolTaskDescription(
        task_id,
        code,
        inputs,
        _layout(output),
        tuple(arguments),
        whole_number("threads", threads, 1),
        tuple(dict.fromkeys(ids)),
        settings,
    )
    _check(made)
    return made


def _layout(given: GivenData) -> DataLayout:
    return DataLayout(given) if isinstance(given, str) else given


def _check(made: PoolTaskDescription) -> None:
    if not made.task_id:
        raise WorkflowError("its id is empty")
    if made.threads > THREADS_MAX:
        raise WorkflowError(f"{made.threads} threads are more than {THREADS_MAX}")
    for layout in (*made.inputs, made.output):
        if layout.scheme not in ("", FILE, MEMORY) or (layout.scheme and not layout.name):
            known = "a path, file:PATH, iml:NAME or SCHEME://..."
            raise WorkflowError(f"{layout.source!r} is no data that it could have: {known} is")
        _ = layout.copies  # refuses what is no policy
        if is_uri(layout.source):
            try:
                parts_of_uri(layout.source)
            except BadUri as error:
                raise WorkflowError(str(error)) from None
    if made.output.copies * made.output.stripes > 1 and made.output.scheme != MEMORY:
        raise WorkflowError(f"the policy {made.output.policy} is for output in the memory layer, iml:NAME")
    if isinstance(made.code, Variants):
        raise WorkflowError("its code is one function, SourceFile or Program, not Variants")
    if made.output.scheme == MEMORY and isinstance(made.code, Program):
        raise WorkflowError("a program leaves files: only what a function returns can be published")
    if "requires" in made.settings or "same_host" in made.settings:
        raise WorkflowError("it needs as many cores as it has threads: leave requires and same_host out")


def pool(tasks: Iterable[PoolTaskDescription], name: str = "pool") -> Net:
    """Return a net that runs tasks, each as soon as those that it depends on have ended (ASPIDE 4.1.2).

    A task that reads what another one of the pool writes depends on that one, also if it does not say so.
    Each task for which no other waits has an output port of its id.

    Args:
        tasks: made by :func:`task`.
        name: of the net.

    Raises:
        WorkflowError: an id is there twice or not at all, or tasks wait for each other in a circle.
    """
    known: dict[str, PoolTaskDescription] = {}
    for one in tasks:
        if one.task_id in known:
            raise WorkflowError(f"two tasks have the id {one.task_id!r}")
        known[one.task_id] = one
    makers = {one.output.source: one.task_id for one in known.values() if one.output.source}
    parents = {task_id: _parents(one, known, makers) for task_id, one in known.items()}
    if cycle := find_cycle(parents):
        raise WorkflowError("tasks wait for each other in a circle: " + " waits for ".join(map(repr, cycle)))
    making = _Pool(Net(name), known, parents)
    for one in known.values():
        try:
            making.add(one)
        except WorkflowError as error:
            raise WorkflowError(f"task {one.task_id!r}: {mask_text(str(error))}") from None
    return making.net


def _parents(
    one: PoolTaskDescription, known: Mapping[str, PoolTaskDescription], makers: Mapping[str, str]
) -> tuple[str, ...]:
    """Return the dependencies that a task states, then the makers of what it reads."""
    for parent in one.dependencies:
        if parent not in known:
            raise WorkflowError(
                f"task {one.task_id!r}: there is no task {parent!r}{did_you_mean(parent, known)}"
            )
    read = [makers[layout.source] for layout in one.inputs if layout.source in makers]
    return tuple(dict.fromkeys((*one.dependencies, *read)))


@define
class _Given:
    """What a task gets: tokens from places and files; constants between them.

    Attributes:
        sources: where its tokens come from, in order; control tokens are not passed.
        arguments: what its code gets, in order: NextToken for the next one that is passed, or a value.
        files: name in its directory -> path on the host of the job.
        words: names of the tasks whose tokens are passed.
    """

    sources: list[Source] = field(factory=list)
    arguments: list[object] = field(factory=list)
    files: dict[str, str | Named] = field(factory=dict)
    words: dict[str, Source] = field(factory=dict)

    def take(self, source: Source, word: str = "") -> None:
        """Add a token that is passed."""
        self.sources.append(source)
        self.arguments.append(NextToken())
        if word:
            self.words[word] = source

    def fetch(self, path: str) -> None:
        """Add a file, whose name is passed."""
        name = file_name(path)
        if self.files.setdefault(name, path) != path:
            raise WorkflowError(f"two of its files have the name {name!r}: {self.files[name]!r} and {path!r}")
        self.arguments.append(name)


@define
class _Pool:
    """Makes the net of a pool.

    Attributes:
        net: the net.
    """

    net: Net
    _tasks: Mapping[str, PoolTaskDescription]
    _parents: Mapping[str, Sequence[str]]
    _children: dict[str, list[str]] = field(factory=dict)

    def __attrs_post_init__(self) -> None:
        for task_id, waits in self._parents.items():
            for parent in waits:
                self._children.setdefault(parent, []).append(task_id)

    def add(self, one: PoolTaskDescription) -> None:
        """Add a task.

        Raises:
            WorkflowError: it makes no sense.
        """
        given = self._given(one)
        children = self._children.get(one.task_id, [])
        freed = [self._between(one.task_id, child) for child in children]
        outputs: list[Place] = freed or [self.net.output(one.task_id)]
        settings: TaskSettings = {**one.settings, "requires": _cores(one)}
        if one.threads > 1:
            settings["same_host"] = True
        if given.files:
            settings["stage_in"] = given.files
        if one.output.scheme == FILE:
            path = one.output.name
            settings["stage_out"] = {file_name(path): path}
        run, inputs = self._code(one, given)
        self.net.transition(one.task_id, run, inputs, outputs, **settings)

    def _given(self, one: PoolTaskDescription) -> _Given:
        given = _Given()
        waits = list(self._parents[one.task_id])
        makers = {self._tasks[parent].output.source: parent for parent in waits}
        for layout in one.inputs:
            if layout.scheme == FILE:
                given.fetch(layout.name)
            elif layout.source in makers:
                maker = makers[layout.source]
                waits.remove(maker)
                given.take(self._between(maker, one.task_id), maker)
            else:
                given.take(Named(layout.name))
        own = {layout.source for layout in one.inputs}
        for parent in waits:
            output, place = self._tasks[parent].output, self._between(parent, one.task_id)
            if output.scheme != FILE:
                given.take(place, parent)
                continue
            given.sources.append(Unpassed(place))
            if output.source not in own:
                given.fetch(output.name)
        if not any(not isinstance(source, Named) for source in given.sources):
            given.sources.append(Unpassed(self.net.place(f"-> {one.task_id}", [None])))
        return given

    def _between(self, parent: str, child: str) -> Place:
        name = f"{parent} -> {child}"
        return self.net.places.get(name) or self.net.place(name)

    def _code(self, one: PoolTaskDescription, given: _Given) -> tuple[Run, Sources]:
        """Return what the transition of a task runs, and its inputs."""
        if isinstance(one.code, Program):
            environment = {"OMP_NUM_THREADS": str(one.threads), **one.code.environment}
            words = (*one.code.arguments, *map(str, one.arguments))
            passed: dict[str, Source] = {
                name: source for name, source in given.words.items() if name in one.code.names
            }
            others = [source for source in given.sources if source not in passed.values()]
            inputs = passed | {f"_{index}": source for index, source in enumerate(others)}
            return evolve(one.code, arguments=words, environment=environment), inputs
        code, output = one.code, one.output
        assert not isinstance(code, Variants), "no task of a pool has variants"
        function = SourceCall(code.path, code.function) if isinstance(code, SourceFile) else code
        values = (*given.arguments, *one.arguments)
        publishes = output.name if output.scheme == MEMORY else ""
        made = PoolTask(function, values, one.threads, publishes, output.copies, output.stripes)
        return made, given.sources


def _cores(one: PoolTaskDescription) -> list[Requirement]:
    hosts = [host for layout in (*one.inputs, one.output) for host in layout.location]
    nodes = tuple(dict.fromkeys(f"{host}.node" for host in hosts))
    return [Requirement("core", nodes)] * one.threads
