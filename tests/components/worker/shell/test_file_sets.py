"""Sets of files of one task, between its directory and the host of its job: over a connection in memory."""

from __future__ import annotations

import os
import resource
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

import pytest

from gspc_trio.components.job.shell.files import JobFiles
from gspc_trio.components.worker.shell.file_transfer import FileTransfer
from gspc_trio.components.worker.shell.files_in import FilesIn
from gspc_trio.components.worker.shell.files_out import FilesOut
from gspc_trio.components.worker.shell.staging import StagingError
from gspc_trio.compute.folders import Folder, Folders
from gspc_trio.core.code import Program
from gspc_trio.core.staging import Data, FilePatterns, StageLimits, optional, split_plan
from gspc_trio.nursery.connections.buffers import Budget
from gspc_trio.nursery.connections.rpc import Peer
from gspc_trio.protocol.values import dumps, loads
from gspc_trio.workflow.arcs import each, take
from gspc_trio.workflow.engine import WorkflowEngine
from gspc_trio.workflow.net import Net
from tests.components.job_files import connected_to

LIMITS = StageLimits(files_max=4, file_bytes_max=1000)


class Task:
    """A task that is about to be staged: what it says of files is carried out by its RIF and its job.

    Args:
        peer: the connection to its job.
        folder: its directory.
        arguments: of the task, with the plan of its files.
        first: the first of its outputs that come from files.
    """

    def __init__(self, peer: Peer, folder: Folder, arguments: tuple[bytes, ...], first: int) -> None:
        plan, self.values, _ = split_plan(arguments)
        assert plan is not None
        self.plan = plan
        self.folder = folder
        self.first = first
        self.path = Path(folder.path)
        self.transfer = FileTransfer(lambda: peer, Budget(1 << 20))
        self.given: frozenset[str] = frozenset()

    async def stage_in(self) -> list[str]:
        """Put its files into its directory; return what is there: name=content."""
        self.given = await FilesIn(self.plan, self.values, LIMITS, self.transfer, None).put(self.folder)
        files = [path for path in self.path.rglob("*") if path.is_file()]
        return sorted(f"{path.relative_to(self.path)}={path.read_text()}" for path in files)

    async def stage_out(self) -> list[Any]:
        """Take its files; return the values for each output."""
        files = FilesOut(self.plan, self.folder, self.given, LIMITS, self.transfer, None)
        values = await files.values(self.first, [])
        await files.send()
        return [[loads(token) for token in tokens] for tokens in values]

    def make(self, *names: str) -> None:
        """Make files as the task would; each contains its name."""
        for name in names:
            (self.path / name).parent.mkdir(parents=True, exist_ok=True)
            (self.path / name).write_text(name)


@asynccontextmanager
async def staging(
    directory: Path, stage_in: Mapping[str, Any] = {}, stage_out: Mapping[str, Any] = {}, **values: Any
) -> AsyncIterator[Task]:
    """Have a task of one transition; of each input ``_batch`` it takes two tokens."""
    net = Net("sets")
    inputs: dict[str, Any] = {name: net.input(name) for name in values}
    if "_batch" in inputs:
        inputs["_batch"] = take("_batch", 2)
    outputs = {"made": net.output("made"), "all": each(net.output("all"))}
    settings: Any = {"stage_in": stage_in, "stage_out": stage_out}
    transition = net.transition("task", Program(["true"]), inputs, outputs, **settings)
    engine = WorkflowEngine(net, values, dumps=dumps, loads=loads)
    task_id = engine.next()
    assert task_id is not None
    files = JobFiles(str(directory), LIMITS, FilePatterns.of([transition.stage]), Budget(1 << 20))
    folders = Folders(str(directory.parent))
    async with connected_to(files) as peer:
        arguments = engine.extract(task_id).arguments
        yield Task(peer, folders.make(), arguments, len(transition.code_outputs))
    folders.close()


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    """What a job has for its files."""
    path = tmp_path / "job"
    for name in ("corpus/a.txt", "corpus/b.txt", "other/a.txt", "tree/x/1", "tree/.y", "many/1", "odd/[a]*"):
        (path / name).parent.mkdir(parents=True, exist_ok=True)
        (path / name).write_text(name)
    for number in range(5):
        (path / "many" / str(number)).touch()
    (path / "linked").mkdir()
    (path / "linked" / "b.txt").symlink_to("/etc/passwd")
    return path


@pytest.mark.parametrize(
    ("stated", "there"),
    [
        ({"in/": "{name}/*.txt"}, "in/a.txt=corpus/a.txt in/b.txt=corpus/b.txt"),
        ({"./": "{name}/*.txt"}, "a.txt=corpus/a.txt b.txt=corpus/b.txt"),
        (
            {"{index:02}/x-{index}": ["other/a.txt", "corpus/*"]},
            "00/x-0=other/a.txt 01/x-1=corpus/a.txt 02/x-2=corpus/b.txt",
        ),
        ({"in/": "tree/"}, "in/.y=tree/.y in/x/1=tree/x/1"),
        ({"in/": ["tree/x/", "corpus/a.txt"]}, "in/1=tree/x/1 in/a.txt=corpus/a.txt"),
        ({"in/": "corpus/{_batch}.txt"}, "in/a.txt=corpus/a.txt in/b.txt=corpus/b.txt"),
        ({"part-{index}": Data("_batch")}, "part-0=a part-1=b"),
        ({"in/{index}": Data("_list")}, "in/0=1 in/1=2"),
        ({"in/": Data("_mapping")}, "in/m=3 in/sub/n=4"),
        ({"in/": "odd/{_odd}"}, "in/[a]*=odd/[a]*"),
        ({"in/": "{_two}"}, "in/1=tree/x/1 in/a.txt=corpus/a.txt"),
        (
            {"in/": optional("corpus/*.csv"), "x": optional("no/x"), "y": optional("corpus/a.txt")},
            "y=corpus/a.txt",
        ),
        ({"in/": optional(["no/", "corpus/*.csv"])}, ""),
    ],
)
async def test_what_a_task_finds(directory: Path, stated: dict[str, Any], there: str) -> None:
    values: dict[str, Any] = {
        "name": ["corpus"],
        "_batch": ["a", "b"],
        "_list": [[b"1", "2"]],
        "_mapping": [{"m": b"3", "sub": {"n": "4"}}],
        "_odd": ["[a]*"],
        "_two": [["tree/x/1", "corpus/a.txt"]],
    }
    async with staging(directory, stated, **values) as task:
        assert await task.stage_in() == there.split()


async def test_a_directory_is_there_even_if_it_is_empty(directory: Path) -> None:
    async with staging(
        directory, {"in/": optional("no/"), "deep/in/": optional("*.csv")}, name=["x"]
    ) as task:
        await task.stage_in()
        assert (task.path / "in").is_dir()
        assert (task.path / "deep" / "in").is_dir()


@pytest.mark.parametrize(
    ("stated", "problem"),
    [
        (
            {"in/": "corpus/*.csv"},
            r"no file of the job matches corpus/\*\.csv: in corpus/ there is a\.txt, b\.txt",
        ),
        ({"in/": "corpus/{item}/"}, "no file of the job matches corpus/x/: there is no directory corpus/x"),
        (
            {"in/": "corpus/*", "in/b.txt": "other/a.txt"},
            "other/a.txt and corpus/b.txt would both be in/b.txt",
        ),
        ({"in/": "**/a.txt"}, "corpus/a.txt and other/a.txt would both be in/a.txt"),
        ({"in/": "many/"}, r"many/ stands for more files than a task may have \(4, "),
        ({"a/": "many/[01]", "b/": "many/[234]"}, "it has 5 files to fetch; at most 4 may be"),
        ({"in/": "linked/*"}, "linked/b.txt is a link or a device: only plain files are staged"),
        ({"in/": "{_up}/*"}, "leads out"),
        ({"in/": Data("item")}, r"value 0 for in/ has no name: number the files, as in in/part-\{index\}"),
        ({"in/": Data("_up_too")}, "leads out"),
        ({"{index}": Data("_number")}, "that is to become files: it is neither bytes nor text, nor a list"),
        ({"{index}": Data("_objects")}, "that is to become files: it is neither bytes nor text, nor a list"),
        ({"{index}": Data("_many")}, "that is to become files: it stands for more than 4 files"),
        ({"a": Data("_many")}, "its file a: .* but a list: several files have {index} in their name"),
        ({"a": Data("_up_too")}, "its file a: .* but a mapping: that is a directory, whose name ends with /"),
        ({"{index}": Data("_large")}, "1001 bytes in a file are more than it may have"),
        (
            {"a": "corpus/a.txt", "a/": "corpus/*"},
            "corpus/a.txt would be a, which is the directory of corpus/a.txt",
        ),
    ],
)
async def test_what_cannot_be_fetched_is_said_in_one_line(
    directory: Path, stated: dict[str, Any], problem: str
) -> None:
    values: dict[str, Any] = {
        "item": ["x"],
        "_up": [".."],
        "_up_too": [{"../x": b""}],
        "_number": [[1]],
        "_objects": [[{1, 2}]],
        "_many": [[b""] * 5],
        "_large": [[b"x" * 1001]],
    }
    async with staging(directory, stated, **values) as task:
        with pytest.raises(StagingError, match=problem) as caught:
            await task.stage_in()
    assert "\n" not in str(caught.value)


def files_below(directory: Path) -> set[str]:
    return {str(path.relative_to(directory)) for path in directory.rglob("*") if path.is_file()}


@pytest.mark.parametrize(
    ("stated", "values", "stored"),
    [
        ({"*.log": "out/{name}/"}, [], "out/n/b.log"),
        ({"**/*.log": "out/{name}-{index:02}.log"}, [], "out/n-00.log out/n-01.log"),
        ({"x/": "out/"}, [], "out/.c out/a.log out/y/d"),
        ({"x/": "./"}, [], ".c a.log y/d"),
        ({"x/": Data("made")}, [[{".c": b"x/.c", "a.log": b"x/a.log", "y/d": b"x/y/d"}]], ""),
        ({"*/*.log": Data("made"), "*.csv": optional("csv/")}, [[[b"x/a.log"]]], ""),
        ({"**/*.log": Data("all"), "b.log": "logs/"}, [[b"b.log", b"x/a.log"]], "logs/b.log"),
        ({"*.csv": optional(Data("all")), "c": optional(Data("made"))}, [[None], []], ""),
        ({"c": optional("out/c"), "b.log": optional("out/"), "no/c": optional("no/")}, [], "out/b.log"),
        ({"*": "out/"}, [], "out/b.log"),
        ({"in/": "out/"}, [], "out/a.txt out/b.txt"),
    ],
)
async def test_what_a_task_leaves(
    directory: Path, stated: dict[str, Any], values: list[Any], stored: str
) -> None:
    stage_in = {"in/": "corpus/*", "given": "corpus/a.txt"}
    before = files_below(directory)
    async with staging(directory, stage_in, stated, name=["n"]) as task:
        await task.stage_in()
        task.make("b.log", "x/a.log", "x/.c", "x/y/d")
        found = await task.stage_out()
    assert found == values
    new = files_below(directory) - before
    assert new == set(stored.split())


@pytest.mark.parametrize(
    ("stated", "problem"),
    [
        ({"*.csv": "out/"}, r"no file that matches \*\.csv: in the directory there is b\.txt, more, x, y"),
        ({"z/*.csv": "out/"}, r"no file that matches z/\*\.csv: there is no directory z"),
        ({"z/": "out/"}, "no file that matches z/: there is no directory z"),
        ({"**/*.log": "out/"}, "x/a.log and y/a.log would both be out/a.log"),
        ({"x/": "out/", "y/a.log": "out/a.log"}, "y/a.log and x/a.log would both be out/a.log"),
        ({"[xy]/*": "out/{index}", "*/z": "two/", "b.txt": "b"}, "it has 5 files to store; at most 4 may be"),
        ({"*/[!l]*": "out/"}, r"\*/\[!l\]\* stands for more files than a task may have \(4, "),
        ({"more/l*": "out/"}, "more/link is a link or a device: only plain files are staged"),
        ({"more/": "out/"}, "more/link is a link or a device"),
        ({"more/hard*": "out/"}, "more/hard has several names"),
        ({"more/hard": optional("out/b")}, "more/hard has several names"),
        ({"more/link": optional("out/b")}, "more/link is a link or a device"),
    ],
)
async def test_what_cannot_be_stored_is_said_in_one_line(
    directory: Path, stated: dict[str, str], problem: str
) -> None:
    async with staging(directory, {}, stated, name=["n"]) as task:
        task.make("x/a.log", "x/1", "y/a.log", "b.txt", "more/z", "more/hard")
        (task.path / "more" / "link").symlink_to("/etc/passwd")
        os.link(task.path / "more" / "hard", task.path / "y" / ".other")
        with pytest.raises(StagingError, match=problem) as caught:
            await task.stage_out()
    assert "\n" not in str(caught.value)
    assert not (directory / "out").exists()


@contextmanager
def files_end_at(size_bytes: int) -> Iterator[None]:
    """Let no file get larger, as on a disk that is full: the system refuses it."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size_bytes, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


async def test_a_full_disk_names_the_file(directory: Path) -> None:
    stage_in = {"in/": "corpus/*", "part-{index}": Data("_list")}
    async with staging(directory, stage_in, {"out/*": "out/"}, _list=[[b"x" * 800]]) as task:
        with files_end_at(400), pytest.raises(StagingError, match="its file part-0: File too large"):
            await task.stage_in()
        task.make("out/b")
        (task.path / "out" / "a").write_bytes(b"x" * 800)
        problem = "on the host of the job: out/a: File too large"
        with files_end_at(400), pytest.raises(StagingError, match=problem):
            await task.stage_out()
    assert not (directory / "out" / "a").exists()
