"""Spans arrive at a collector that speaks OTLP, as its own library decodes them."""

from __future__ import annotations

import os
import re
import signal
import socket
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.support import Process, World, completed, wait_until

pytest.importorskip("opentelemetry.exporter.otlp.proto.http", reason="it is not installed: make bridges")
pytestmark = pytest.mark.process

ABOVE = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"


class Collector:
    """Takes what exporters send, until it is closed."""

    def __init__(self) -> None:
        from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

        self.spans: list[Any] = []
        self.services: set[str] = set()
        collector = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                assert self.path == "/v1/traces"
                body = self.rfile.read(int(self.headers["content-length"]))
                for of_resource in ExportTraceServiceRequest.FromString(body).resource_spans:
                    told = attributes(of_resource.resource)
                    collector.services.add(str(told["service.name"]))
                    for of_scope in of_resource.scope_spans:
                        collector.spans += of_scope.spans
                self.send_response(200)
                self.send_header("content-length", "0")
                self.end_headers()

            def log_message(self, *_: object) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.endpoint = f"http://127.0.0.1:{self.server.server_port}"

    def named(self, name: str) -> list[Any]:
        """Return the spans of a name, in the order in which they ended."""
        return sorted(
            (span for span in self.spans if span.name == name), key=lambda it: it.end_time_unix_nano
        )


def attributes(span: Any) -> dict[str, object]:
    return {it.key: getattr(it.value, it.value.WhichOneof("value")) for it in span.attributes}


@contextmanager
def collecting() -> Iterator[Collector]:
    collector = Collector()
    thread = threading.Thread(target=collector.server.serve_forever)
    thread.start()
    try:
        yield collector
    finally:
        collector.server.shutdown()
        thread.join()
        collector.server.server_close()


def run(world: World, text: str, endpoint: str, **variables: str) -> tuple[str, str]:
    path = world.folder / "program.py"
    path.write_text(text)
    given = {"OTEL_EXPORTER_OTLP_ENDPOINT": endpoint, "NO_PROXY": "*", **variables}
    done = world.run_program(sys.executable, str(path), anew=True, env=given)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout, done.stderr


EXECUTOR = """
import os, signal, subprocess, tempfile
from pathlib import Path
from gspc_trio import Executor, current_traceparent

def trace():
    echoed = subprocess.run(["sh", "-c", "echo $TRACEPARENT"], capture_output=True, text=True).stdout
    assert os.environ["TRACEPARENT"] == current_traceparent() == echoed.strip()
    return current_traceparent()

def change():
    os.environ["TRACEPARENT"] = "mine"

def fail_once(folder):
    path = Path(folder, "failed")
    if not path.exists():
        path.touch()
        raise ValueError("for once")

def die_once(folder):
    path = Path(folder, "died")
    if not path.exists():
        path.touch()
        os.kill(os.getpid(), signal.SIGKILL)

def fail():
    raise KeyError("always")

if __name__ == "__main__":
    with Executor(cores=1) as executor, tempfile.TemporaryDirectory() as folder:
        print(executor.submit(trace).result())
        executor.submit(change).result()
        print(executor.submit(trace).result())
        executor.with_options(attempts=2).submit(fail_once, folder).result()
        executor.submit(die_once, folder).result()
        print(executor.submit(fail).exception())
"""


def test_attempts_are_spans_below_their_job_and_tasks_know_theirs(world: World) -> None:
    with collecting() as collector:
        printed, complained = run(world, EXECUTOR, collector.endpoint, TRACEPARENT=ABOVE)
    first, second, _ = printed.splitlines()
    assert complained == ""
    assert collector.services == {"gspc-trio"}
    (job,) = (span for span in collector.spans if span.name.startswith("executor"))
    assert {span.trace_id.hex() for span in collector.spans} == {ABOVE.split("-")[1]}
    assert job.parent_span_id.hex() == ABOVE.split("-")[2]
    told = [f"00-{span.trace_id.hex()}-{span.span_id.hex()}-01" for span in collector.named("trace")]
    assert told == [first, second]
    ended = {
        name: [attributes(span)["gspc.outcome"] for span in collector.named(name)]
        for name in ("trace", "fail_once", "die_once", "fail")
    }
    assert ended == {
        "trace": ["finished"] * 2,
        "fail_once": ["failed", "finished"],
        "die_once": ["lost", "finished"],
        "fail": ["failed"],
    }
    attempts = [span for span in collector.spans if span.parent_span_id == job.span_id]
    assert len(attempts) == 8
    for name in ("fail_once", "die_once"):
        before, after = collector.named(name)
        assert [link.span_id for link in after.links] == [before.span_id]
        assert (before.status.code, after.status.code) == (2, 0)
    assert collector.named("fail_once")[0].events[0].name == "exception"
    told_error = {it.key: it.value.string_value for it in collector.named("fail")[0].events[0].attributes}
    assert told_error["exception.type"] == "KeyError"
    assert "in fail" in told_error["exception.stacktrace"]
    phases = collector.named("compute")
    assert {span.parent_span_id for span in phases} == {span.span_id for span in attempts}
    assert attributes(attempts[0])["host.name"] == socket.gethostname()


WORKFLOW = """
from gspc_trio import Net, Program, Workflow, farm

def twice(x):
    return 2 * x

def workflow(program: bool = False):
    return Workflow(farm(Program(["sh", "-c", "echo $TRACEPARENT"]) if program else twice), {"items": [1, 2]})
"""


@pytest.mark.parametrize("how", [(), ("--threads",)])
def test_programs_of_a_net_know_their_spans(world: World, how: tuple[str, ...]) -> None:
    (world.folder / "net.py").write_text(WORKFLOW)
    with collecting() as collector:
        given = {"OTEL_EXPORTER_OTLP_ENDPOINT": collector.endpoint, "NO_PROXY": "*"}
        jobserver = str(Path(sys.executable).with_name("gspc-jobserver"))
        command = ("run", "net.py", "--otel", "--json", "--cores", "1", "--set", "program=true", *how)
        done = world.run_program(jobserver, *command, anew=True, env=given)
    assert done.returncode == 0, done.stderr
    (job,) = (span for span in collector.spans if span.name == "net")
    attempts = [span for span in collector.spans if span.parent_span_id == job.span_id]
    assert len(attempts) == 2
    for span in attempts:
        assert f"00-{span.trace_id.hex()}-{span.span_id.hex()}-01" in done.stdout


ASKED = """
import sys
from gspc_trio import Executor

def loaded():
    return [name for name in sys.modules if name.startswith("opentelemetry.sdk")]

if __name__ == "__main__":
    with Executor(cores=1, otel=eval(sys.argv[1])) as executor:
        print(executor.submit(loaded).result(), bool(loaded()))
"""


@pytest.mark.parametrize(
    ("given", "endpoint", "sent"), [("None", False, []), ("False", True, []), ("True", True, ["loaded"])]
)
def test_an_executor_sends_spans_when_it_is_asked_to_and_never_loads_opentelemetry(
    world: World, given: str, endpoint: bool, sent: list[str]
) -> None:
    path = world.folder / "program.py"
    path.write_text(ASKED)
    with collecting() as collector:
        variables = {"OTEL_EXPORTER_OTLP_ENDPOINT": collector.endpoint} if endpoint else {}
        environment = {**variables, "NO_PROXY": "*"}
        done = world.run_program(sys.executable, str(path), given, anew=True, env=environment)
    assert (done.stdout.strip(), done.stderr) == ("[] False", "")
    assert [span.name for span in collector.spans if span.name == "loaded"] == sent


FAST = """
from gspc_trio import Executor, current_traceparent

def trace(number):
    return current_traceparent()

if __name__ == "__main__":
    with Executor(cores=1) as executor:
        found = list(executor.map(trace, range(20_000)))
        assert executor._loop._table.graph.counts()["finished"] < 10_000, "there were no ranges"
    print(*found)
"""


def test_what_is_faster_than_spans_can_be_sent_is_counted(world: World) -> None:
    with collecting() as collector:
        printed, complained = run(world, FAST, collector.endpoint)
    known = printed.split()
    assert len(set(known)) == len(known) == 20_000
    for span in collector.named("trace"):
        assert f"00-{span.trace_id.hex()}-{span.span_id.hex()}-01" in known
    (line,) = complained.splitlines()
    said = re.search(r"(\d+) spans were dropped: \d+ found too many others waiting", line)
    assert said  # on a busy machine some may miss the end, too
    assert len(collector.spans) + int(said[1]) == 40_001


NET = """
from gspc_trio import current_traceparent

def trace(number):
    if number == 2_900:
        raise ValueError("no")
    return current_traceparent()
"""

FARM = """
import trio
from gspc_trio import JobFailed, farm, open_job, open_rts
from net import trace

async def main():
    values = {"items": range(3_000)}
    async with open_rts(cores=1) as rts:
        try:
            async with open_job(farm(trace), rts=rts, values=values) as job:
                await job.wait()
        except* JobFailed as group:
            print(*group.exceptions[0].result.outputs["results"])
            print(type(job.machine).__name__)

if __name__ == "__main__":
    trio.run(main)
"""


def test_items_of_a_farm_travel_in_ranges_and_have_a_span_each(world: World) -> None:
    (world.folder / "net.py").write_text(NET)
    with collecting() as collector:
        printed, _ = run(world, FARM, collector.endpoint)
    *known, machine = printed.split()
    assert machine == "RangedJobMachine"
    assert len(set(known)) == len(known) > 1_000
    items = [span for span in collector.named("trace") if "gspc.task.id" in attributes(span)]  # not the job
    told = [(attributes(span)["gspc.outcome"], span) for span in items]
    failed = [span for outcome, span in told if outcome == "failed"]  # a busy machine may not send it in time
    assert [span.events[0].name for span in failed] in (["exception"], [])
    for span in (span for outcome, span in told if outcome == "finished"):
        assert f"00-{span.trace_id.hex()}-{span.span_id.hex()}-01" in known
    in_ranges = [span for span in collector.spans if span.name.startswith("trace x")]
    assert all(span.status.code for span in in_ranges), "a range that finishes has no span of its own"


@pytest.mark.parametrize("silent", [False, True], ids=["down", "silent"])
def test_an_endpoint_that_is_down_or_silent_costs_nothing_but_the_spans(world: World, silent: bool) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        endpoint = f"http://127.0.0.1:{server.getsockname()[1]}"
        if not silent:
            server.close()
        _, complained = run(world, EXECUTOR, endpoint)
    assert len(complained.splitlines()) == 1
    assert "17 spans were dropped: 17 could not be sent" + " in time" * silent in complained
    assert silent or "Connection refused" in complained


def test_a_trace_that_is_not_recorded_is_passed_on(world: World) -> None:
    with collecting() as collector:
        printed, _ = run(world, EXECUTOR, collector.endpoint, TRACEPARENT=ABOVE[:-1] + "0")
    assert collector.spans == []
    assert all(line.endswith("-00") for line in printed.splitlines()[:2])


IDLE = """
from pathlib import Path
from gspc_trio import Executor

if __name__ == "__main__":
    with Executor(cores=1) as executor:
        executor.submit(abs, -1).result()
        Path("gate").read_text()
"""


def start_idle(world: World, collector: Collector) -> tuple[Process, int]:
    """Start a program that waits; return it, and the process that has sent its first span."""
    (world.folder / "program.py").write_text(IDLE)
    os.mkfifo(world.folder / "gate")
    given = {"OTEL_EXPORTER_OTLP_ENDPOINT": collector.endpoint, "NO_PROXY": "*"}
    program = world.start_program(sys.executable, "program.py", anew=True, env=given)
    wait_until(lambda: collector.named("abs"), "a span")
    (sender,) = world.pids("span_process")
    return program, sender


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGINT])
def test_the_process_that_sends_spans_ends_with_its_job(world: World, how: signal.Signals) -> None:
    with collecting() as collector:
        program, _ = start_idle(world, collector)
        program.send_signal(how)
        completed(program)
        world.wait_nothing_left()


def test_a_job_says_at_its_end_that_the_process_was_killed_that_sends_its_spans(world: World) -> None:
    with collecting() as collector:
        program, sender = start_idle(world, collector)
        os.kill(sender, signal.SIGKILL)
        (world.folder / "gate").write_text("")
        done = completed(program)
    assert done.returncode == 0
    # That of the job, and those of which it could not say any more that they were sent.
    said = r"(\d) spans were dropped: \1 could not be sent: the process that sends them has ended"
    assert re.search(said, done.stderr)


ODD = """
import sys
from pathlib import Path
from gspc_trio import Executor

def odd(number):
    return number

if __name__ == "__main__":
    sys.path += [Path("no text"), "not \\udcff utf-8"]
    odd.__name__ = odd.__qualname__ = "odd \\udcff"
    with Executor(cores=1) as executor:
        print(executor.submit(abs, -1).result())
        if len(sys.argv) == 2:
            print(executor.submit(odd, 2).result())
"""


@pytest.mark.parametrize("named", [False, True], ids=["search path", "name"])
def test_what_cannot_be_sent_as_it_is_does_not_break_the_job(world: World, named: bool) -> None:
    path = world.folder / "program.py"
    path.write_text(ODD)
    with collecting() as collector:
        given = {"OTEL_EXPORTER_OTLP_ENDPOINT": collector.endpoint, "NO_PROXY": "*"}
        done = world.run_program(sys.executable, str(path), *["odd"] * named, anew=True, env=given)
    assert (done.returncode, done.stdout.split()) == (0, ["1", "2"][: 1 + named]), done.stderr
    assert ("'utf-8' codec can't encode" in done.stderr) == named
    assert named or collector.named("abs")


CANCELLED_AT_ITS_END = """
import trio
from gspc_trio.components.job.shell.span_export import SpanSender
from gspc_trio.components.job.spans import Span
from gspc_trio.components.job.tracing import SpanQueue

async def main():
    queue = SpanQueue()
    queue.put([Span("a", 1, 0, 1.0, 2.0, {})])
    sender = SpanSender(queue, "1" * 32)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(sender.run)
        with trio.CancelScope() as scope:
            scope.cancel()  # as by Ctrl-C, once more
            await sender.end(1_000.0)

if __name__ == "__main__":
    trio.run(main)
"""


def test_nobody_waits_for_a_silent_endpoint_when_the_end_is_interrupted(world: World) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        endpoint = f"http://127.0.0.1:{server.getsockname()[1]}"
        run(world, CANCELLED_AT_ITS_END, endpoint, OTEL_EXPORTER_OTLP_TIMEOUT="1000")
