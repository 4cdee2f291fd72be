"""Files of tasks that URIs name: what comes and goes, what is refused, and what nobody gets to see.

Requirements: ASP-1.
"""

from __future__ import annotations

import base64
import http.server
import importlib.util
import os
import threading
import zipfile
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil
import pytest
import trio

from gspc_trio import Data, JobFailed, JobSettings, Net, Program, StageLimits, optional, pool, task
from gspc_trio.components.embed import open_rts
from gspc_trio.components.embedded_job import open_job
from gspc_trio.components.job.journal_bytes import About
from gspc_trio.components.job.shell.journal import create_journal
from gspc_trio.workflow.arcs import WorkflowError

pytestmark = [pytest.mark.process, pytest.mark.usefixtures("folders")]
pytest.importorskip("fsspec")
pytest.importorskip("aiohttp")

HANG_S = 60.0
LOGIN = f"Basic {base64.b64encode(b'user:sekret').decode()}"
BODY = b"hello " * 50_000


class Server(http.server.ThreadingHTTPServer):
    """A server with good and bad days.

    Attributes:
        asked: path -> how often it was asked for.
        stored: path -> what was put there.
        waits: set when one is not answered.
        over: set when those may go.
    """

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.asked: dict[str, int] = {}
        self.stored: dict[str, bytes] = {}
        self.waits, self.over = threading.Event(), threading.Event()
        self.uri = f"http://user:sekret@127.0.0.1:{self.server_address[1]}"

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Say nothing of clients that have gone."""


class Handler(http.server.BaseHTTPRequestHandler):
    """Answers by the first word of the path."""

    server: Server

    def do_GET(self) -> None:
        path = self.path.partition("?")[0]
        count = self.server.asked[path] = self.server.asked.get(path, 0) + 1
        if self.headers["Authorization"] != LOGIN:
            self.send_error(401)
        elif path.startswith("/hangs"):
            self.server.waits.set()
            self.server.over.wait()
        elif path.startswith("/status"):
            self.send_error(int(path[7:10]))
        elif path.startswith("/busy") and count == 1:
            self.send_error(503)
        else:
            self.send_response(200)
            self.send_header("Content-Length", str(len(BODY)))
            self.end_headers()
            self.wfile.write(BODY[:1000] if path.startswith("/cut") and count == 1 else BODY)

    def do_PUT(self) -> None:
        self.server.stored[self.path] = self.rfile.read(int(self.headers["Content-Length"]))
        self.send_response(201)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, format: str, *args: Any) -> None:
        """Print nothing."""


@pytest.fixture
def server() -> Iterator[Server]:
    with Server() as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield server
        server.over.set()
        server.shutdown()
        thread.join()


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    path = tmp_path / "job"
    (path / "in" / "deep").mkdir(parents=True)
    (path / "in" / "a b").write_text("ab")
    (path / "in" / "deep" / "c").write_text("c")
    with zipfile.ZipFile(path / "all.zip", "w") as archive:
        archive.writestr("one.txt", "1")
        archive.writestr("deep/two.txt", "22")
    (path / "link").symlink_to("/etc")
    (path / "inner").symlink_to("in")
    return path


async def run(
    net: Net, directory: Path, values: dict[str, list[Any]], *, allow: Any = (), **settings: Any
) -> dict[str, list[Any]]:
    with trio.fail_after(HANG_S):
        async with open_rts(cores=2, allow_files=allow) as rts:
            told = JobSettings(directory=str(directory), **settings)
            async with open_job(net, rts=rts, values=values, settings=told) as job:
                return dict((await job.wait()).outputs)


LIST = Program(["sh", "-c", "cd in && find . -type f -printf '%P=%s ' | tr ' ' '\\n' | sort > ../list"])


def listing_net(uri: str = "{uri}") -> Net:
    """Tells of each URI which files it stands for, and their sizes."""
    net = Net("listing")
    net.transition(
        "list",
        LIST,
        {"uri": net.input("uris")},
        {"list": net.output("lists")},
        stage_in={"in/": [uri]},
        stage_out={"list": Data("list")},
    )
    return net


async def test_uris_are_files_of_tasks(
    directory: Path, server: Server, folders: Path, tmp_path: Path
) -> None:
    """One system for all of them: also what fails once and then passes, and what goes out."""
    (tmp_path / "shared").mkdir()
    (tmp_path / "shared" / "s").write_text("sss")
    home, size = directory.as_uri(), len(BODY)
    expected = {
        f"{server.uri}/x.txt?token=sekret": f"x.txt={size}",
        f"{server.uri}/busy?token=sekret": f"busy={size}",
        f"{server.uri}/cut?token=sekret": f"cut={size}",
        f"simplecache::{server.uri}/y?token=sekret": f"y={size}",
        f"{home}/in/a%20b": "a b=2",
        f"{home}/inner/a%20b": "a b=2",
        f"{home}/in/": "a b=2 deep/c=1",
        f"{home}/in/*": "a b=2",
        f"zip://deep/two.txt::{home}/all.zip": "two.txt=2",
        f"zip://*.txt::{home}/all.zip": "one.txt=1",
        f"zip::{home}/all.zip": "deep/two.txt=2 one.txt=1",
        f"{tmp_path.as_uri()}/shared/s": "s=3",
    }
    net = listing_net()
    net.transition(
        "store",
        Program(["sh", "-c", "test ! -e no && mkdir r && echo 1 > 'r/a 1' && echo 2 > r/b && cp r/b b"]),
        {"name": net.input("names")},
        net.output("stored"),
        stage_in={
            "no": optional(f"{server.uri}/status404?token=sekret"),
            "none": optional(f"{home}/none"),
        },
        stage_out={"r/": f"{home}/made/new/", "b": f"{server.uri}/up/{{name}}?token=sekret"},
    )
    outputs = await run(
        net, directory, {"uris": list(expected), "names": ["n"]}, allow=[str(tmp_path / "shared")]
    )
    found = [" ".join(sorted(text.decode().split("\n"))).strip() for text in outputs["lists"]]
    assert sorted(found) == sorted(expected.values())
    made = directory / "made" / "new"
    assert {path.name: path.read_text() for path in made.iterdir()} == {"a 1": "1\n", "b": "2\n"}
    assert server.stored == {"/up/n?token=sekret": b"2\n"}
    assert (server.asked["/busy"], server.asked["/cut"]) == (2, 2)
    assert os.listdir(folders) == []


def without_driver() -> tuple[str, str]:
    """Return a scheme and the package that it needs and that is not here."""
    known = {"s3": "s3fs", "gs": "gcsfs", "abfs": "adlfs", "oss": "ossfs"}
    return next(each for each in known.items() if importlib.util.find_spec(each[1]) is None)


async def test_what_cannot_be_had_says_why_and_nothing_else(
    directory: Path, server: Server, folders: Path, tmp_path: Path
) -> None:
    """No password or query is in errors, records or the journal, whatever has gone wrong."""
    scheme, package = without_driver()
    home, outside = directory.as_uri(), "file:// may name files below"
    problems = {
        f"{home}/../folders": outside,
        "file:///etc/passwd": outside,
        f"{home}/link/passwd": outside,
        "zip://x::file:///etc/passwd": outside,
        "simplecache::file:///etc/passwd": outside,
        "file:///etc/*": outside,
        f"{home}/none": "there is no such file",
        f"zip://none::{home}/all.zip": "there is no such file",
        f"{scheme}://bucket/x": f"{scheme}:// needs the package {package} on host",
        "none://user:sekret@bucket/x": "fsspec knows no driver for none://",
        "reference://x": "reference:// is not for data of tasks",
    }
    net = Net("problems")
    net.transition(
        "get", LIST, {"uri": net.input("uris")}, net.output("x"), stage_in={"in/{index}": ["{uri}"]}
    )
    for name in ("status404", "status403", "large"):
        source = f"{server.uri}/{name}{{_}}?token=sekret"
        net.transition(name, LIST, {"_": net.input(name)}, net.output(f"{name}-out"), stage_in={"f": source})
    for number, target in enumerate((f"{home}/link/x", "file:///etc/gspc-trio-test")):
        net.transition(
            f"put{number}",
            Program(["sh", "-c", "echo 1 > x"]),
            {"_": net.input(f"in{number}")},
            net.output(f"out{number}"),
            stage_out={"x": target},
        )
    values = {
        "uris": list(problems),
        "status404": [1],
        "status403": [1],
        "large": [1],
        "in0": [1],
        "in1": [1],
    }
    told = JobSettings(
        directory=str(directory), keep_going=True, stage=StageLimits(file_bytes_max=len(BODY) - 1)
    )
    journal, records = tmp_path / "journal", tmp_path / "records"
    with create_journal(journal, About("1", "flow.py", "f00", (), {})) as kept:
        async with open_rts(cores=2) as rts:
            opened = open_job(net, rts=rts, values=values, settings=told, records_path=records, journal=kept)
            with pytest.raises(JobFailed) as caught:
                async with opened as job:
                    await job.wait()
    said = str(caught.value) + records.read_text()
    for problem in problems.values():
        assert problem in said
    assert said.count(outside) >= 2 * 8
    assert "/status404***" not in said
    assert "127.0.0.1" in said
    assert f"{len(BODY)} bytes in a file are more than it may have ({len(BODY) - 1})" in said
    assert server.asked == {"/status4041": 1, "/status4031": 1, "/large1": 1}
    assert "sekret" not in said.replace("none://user:sekret@bucket/x", "")
    assert "gspc-trio-test" not in os.listdir("/etc")
    content = b"".join(path.read_bytes() for path in journal.iterdir())
    assert b"token=sekret" not in content  # the tokens of the job are in it as they are
    assert os.listdir(folders) == []


def connected_to(port: int) -> list[psutil.Process]:
    """Return the processes below this one that are connected to a port."""
    found = []
    for process in psutil.Process().children(recursive=True):
        with suppress(psutil.NoSuchProcess):
            if any(one.raddr and one.raddr.port == port for one in process.net_connections()):
                found.append(process)
    return found


async def test_a_transfer_that_hangs_ends_with_its_job(
    directory: Path, server: Server, folders: Path
) -> None:
    port = server.server_address[1]
    settings = JobSettings(directory=str(directory))
    with trio.fail_after(HANG_S):
        async with open_rts(cores=1) as rts:
            with trio.CancelScope() as scope:
                net = listing_net(f"{server.uri}/hangs/{{uri}}?token=sekret")
                async with open_job(net, rts=rts, values={"uris": ["x"]}, settings=settings):
                    await trio.to_thread.run_sync(server.waits.wait)
                    (hangs,) = connected_to(port)
                    scope.cancel()
            net = listing_net(f"{server.uri}/{{uri}}")
            async with open_job(net, rts=rts, values={"uris": ["x"]}, settings=settings) as job:
                assert (await job.wait()).outputs["lists"] == [f"x={len(BODY)}\n".encode()]
            assert not hangs.is_running()
    assert os.listdir(folders) == []


@pytest.mark.parametrize(
    ("settings", "why"),
    [
        ({"stage_in": {"x": "s3://u:sekret@b/*.csv"}}, "stands for several files"),
        ({"stage_in": {"x": "s3://u:sekret@b/d/"}}, "is a directory"),
        ({"stage_in": {"x": "s3://u:sekret@b/{nobody}"}}, "is no input"),
        ({"stage_in": {"x": "reference://u:sekret@x"}}, "is not for data of tasks"),
        ({"stage_in": {"s3://u:sekret@x": "x"}}, "leads out of its directory"),
        ({"stage_out": {"x": "zip://x::s3://u:sekret@b/x"}}, "in which nothing is stored"),
        ({"stage_out": {"x/": "s3://u:sekret@b/x"}}, "stands for several files"),
    ],
)
def test_what_makes_no_sense_is_said_before_anything_runs(settings: Any, why: str) -> None:
    net = Net("wrong")
    with pytest.raises(WorkflowError, match=why) as caught:
        net.transition("get", LIST, [net.input("x")], net.output("out"), **settings)
    assert "sekret" not in str(caught.value)


def copy_file(name: str) -> None:
    Path("copy").write_bytes(Path(name).read_bytes())


async def test_tasks_of_a_pool_have_uris_too(directory: Path) -> None:
    home = directory.as_uri()
    tasks = [
        task(f"{home}/copy", f"{home}/again/copy", copy_file, id="second"),
        task(f"{home}/in/deep/c", f"{home}/copy", copy_file, id="first"),
    ]
    await run(pool(tasks), directory, {})
    assert (directory / "again" / "copy").read_text() == "c"
