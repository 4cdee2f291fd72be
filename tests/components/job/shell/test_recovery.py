"""A host that dies with its memory: what was made there is made again, up the graph (ASP-5)."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from threading import get_ident
from types import SimpleNamespace
from typing import cast

import pytest
import trio
import trio.testing

from gspc_trio import (
    Data,
    Executor,
    JobFailed,
    JobResult,
    JobSettings,
    Layout,
    Named,
    Net,
    Program,
    each,
    forward,
    open_iml,
    take,
)
from gspc_trio.components.embed import open_rts
from gspc_trio.components.embedded_job import open_job
from gspc_trio.components.job.lineage import BYTES_MAX, Lineage, Origin
from gspc_trio.components.job.shell.recovery import Recovery, ResultReader
from gspc_trio.components.rts.shell.client import RunTimeSystem
from gspc_trio.core.task import Requirement, Task
from gspc_trio.iml.errors import DataLost, NoRoom
from gspc_trio.iml.local import socket_address_of
from gspc_trio.iml.shell.client import Iml
from gspc_trio.workflow.tokens import Outputs
from tests.components.tasks.recovery import (
    double,
    lose,
    make,
    measure,
    pid_in,
    size_and_ends,
    wait_for,
)
from tests.iml.shell.servers import open_servers
from tests.processes import HANG_S, children_with, is_alive, kill
from tests.support import until

pytestmark = pytest.mark.process

MIB = 1 << 20


def memory_server_of_beta(rts: RunTimeSystem) -> int:
    """Return the process that has the socket of that server."""
    assert rts.data is not None
    address = "@" + socket_address_of(rts.data.token, rts.data.address, "beta")
    servers = children_with("iml_process")
    [found] = [one for one in servers if address in (socket.laddr for socket in one.net_connections("unix"))]
    return found.pid


def recovering(trace: str, gate: str) -> Net:
    there = Requirement("core", ("r2.node",))
    here = Requirement("core", ("r1.node",))
    net = Net("recovery")
    for name in ("make", "double"):
        net.input(f"{name}_trace", [trace])
    net.input("gate", [gate])
    net.place("made")
    net.place("doubled")
    net.place("go")
    net.output("length")
    net.transition("make", make, inputs=["make_trace"], outputs=["made"], requires=there)
    net.transition("double", double, inputs=["double_trace", "made"], outputs=["doubled"], requires=there)
    net.transition("wait", wait_for, inputs=["gate"], outputs=["go"], requires=here)
    net.transition("measure", measure, inputs=["doubled", "go"], outputs=["length"])
    return net


@asynccontextmanager
async def two_hosts(folder: Path, strategy: str = "embedded") -> AsyncIterator[RunTimeSystem]:
    """A run-time system with a memory layer on this host, alpha, and on another one, beta.

    What loses data then are memory servers that are killed, and nothing else: a RIF that is ``embedded``
    is never lost because a loaded machine was silent for seconds.
    """
    (folder / "run").mkdir(mode=0o700)
    opened = open_rts(cores=1, host="alpha", data_bytes=64 * MIB, publish=folder / "run" / "rts.json")
    async with opened as rts:
        report = await rts.bootstrap(["beta"], strategy, cores=1)
        assert not report.failed, report.failed
        yield rts


@pytest.mark.parametrize("strategy", ["local", "embedded"])
async def test_lost_data_is_made_again_up_the_graph(tmp_path: Path, strategy: str) -> None:
    """Killed are a whole host, or, where its RIF is part of this process, its memory server alone."""
    trace, gate = tmp_path / "trace", tmp_path / "gate"
    with trio.fail_after(HANG_S):
        async with two_hosts(tmp_path, strategy) as rts:
            async with open_job(recovering(str(trace), str(gate)), rts=rts) as job:
                await until(lambda: job.status().tasks.get("finished", 0) == 2)
                server = memory_server_of_beta(rts)
                for rif in children_with("rif_process"):
                    kill(rif.pid)
                if strategy == "embedded":
                    kill(server)
                await until(lambda: not is_alive(server))  # which ends with its RIF
                gate.touch()
                result = await job.wait()
    assert result.outputs["length"] == [2 * MIB]
    assert sorted(trace.read_text().split()) == ["double", "double", "make", "make"]


SPLIT = (
    "echo split >> {trace}; for i in 1 2 3; do yes $i | head -c 100000 > part-$i; done; echo small > part-0"
)


def splitting(trace: str, gate: str) -> Net:
    """One task leaves files on beta, of which all but one are large; another one finds them on alpha."""
    there, here = Requirement("core", ("r2.node",)), Requirement("core", ("r1.node",))
    net = Net("files")
    parts, trees, go = net.place("parts"), net.place("trees"), net.place("go")
    net.transition(
        "split",
        Program(["sh", "-c", SPLIT]),
        {"trace": net.input("trace", [trace])},
        {"parts": each(parts), "tree": trees},
        stage_out={"part-*": Data("parts"), "./": Data("tree")},
        requires=there,
    )
    net.transition("wait", wait_for, [net.input("gate", [gate])], go, requires=here)
    net.transition(
        "join",
        Program(["sh", "-c", "head -qn 1 parts/* tree/*; cat parts/* | wc -c"]),
        {"_parts": take(parts, 4), "_tree": trees, "_go": go},
        {"stdout": net.output("told")},
        stage_in={"parts/{index}": Data("_parts"), "tree/": Data("_tree")},
        requires=here,
    )
    return net


async def test_files_that_are_lost_are_made_again(tmp_path: Path) -> None:
    trace, gate = tmp_path / "trace", tmp_path / "gate"
    with trio.fail_after(HANG_S):
        async with two_hosts(tmp_path) as rts:
            async with open_job(splitting(str(trace), str(gate)), rts=rts) as job:
                await until(lambda: job.status().tasks.get("finished", 0))
                kill(memory_server_of_beta(rts))
                gate.touch()
                result = await job.wait()
    assert result.outputs["told"] == ["small\n1\n2\n3\n" * 2 + "300006\n"]
    assert trace.read_text().split() == ["split", "split"]


async def lose_a_result(tmp_path: Path, **settings: int) -> JobResult:
    """Have the last task kill the memory that holds the result of another; nothing else needs that."""
    there, here = Requirement("core", ("r2.node",)), Requirement("core", ("r1.node",))
    net = Net("end")
    net.input("trace", [str(tmp_path / "trace")])
    net.input("gate", [str(tmp_path / "gate")])
    made, pid = net.place("made"), net.place("pid")
    outputs = [net.output("result"), forward(0, made)]
    net.transition("make", make, inputs=["trace"], outputs=outputs, requires=there)
    net.transition("end", pid_in, inputs=[made, "gate"], outputs=[pid], requires=here)
    net.transition("kill", kill, inputs=[pid], outputs=[net.output("killed")], requires=here)
    with trio.fail_after(HANG_S):
        async with two_hosts(tmp_path) as rts:
            async with open_job(net, rts=rts, settings=JobSettings(**settings)) as job:
                await until(lambda: job.status().tasks.get("finished", 0))
                (tmp_path / "gate").write_text(str(memory_server_of_beta(rts)))
                return await job.wait()


async def test_a_result_that_is_lost_at_the_very_end_is_made_again(tmp_path: Path) -> None:
    result = await lose_a_result(tmp_path)
    assert result.outputs["result"] == [b"x" * MIB]
    assert (tmp_path / "trace").read_text().split() == ["make", "make"]


async def test_a_result_that_cannot_be_made_again_fails_the_job_by_name(tmp_path: Path) -> None:
    with pytest.raises(JobFailed, match="a result was lost: data s"):
        await lose_a_result(tmp_path, lineage_bytes_max=0)
    assert (tmp_path / "trace").read_text().split() == ["make"]


async def test_a_task_that_may_not_run_again_is_not_excused_once_it_has_begun(tmp_path: Path) -> None:
    net = Net("once")
    net.input("trace", [str(tmp_path / "trace")])
    net.input("value", [b"x" * MIB])
    net.transition("lose", lose, inputs=["trace", "value"], outputs=[net.output("never")], may_rerun=False)
    with trio.fail_after(HANG_S), pytest.raises(JobFailed, match="that the task looked for itself was lost"):
        async with open_rts(cores=1, data_bytes=64 * MIB) as rts, open_job(net, rts=rts) as job:
            await job.wait()
    assert (tmp_path / "trace").read_text().split() == ["begun"]


def test_arguments_of_an_executor_are_put_again(tmp_path: Path) -> None:
    """The memory server dies in which they lie; what was too large to remember is named."""
    gate = tmp_path / "gate"
    (tmp_path / "layer").mkdir()
    with open_servers(tmp_path / "layer") as servers:
        servers.start("elsewhere")
        with Executor(cores=2, iml=servers.file) as executor:
            waiting = executor.submit(wait_for, str(gate))
            changed = bytearray(b"ab" + bytes(MIB) + b"cd")
            results = [executor.submit(size_and_ends, b"12" + bytes(MIB) + b"34", waiting)]
            results.append(executor.submit(size_and_ends, changed, waiting))
            changed[:2] = b"xx"
            too_large = executor.submit(size_and_ends, bytes(BYTES_MAX), waiting)
            assert not too_large.done()
            [server] = children_with("iml_process")
            kill(server.pid)
            gate.touch()
            found = [result.result(HANG_S) for result in results]
            assert found == [(MIB + 4, b"1234"), (MIB + 4, b"abcd")]
            with pytest.raises(DataLost, match=r"data s\d+\.\d+ was lost"):
                too_large.result(HANG_S)


def test_published_data_that_is_lost_fails_what_needs_it_by_name(tmp_path: Path) -> None:
    (tmp_path / "layer").mkdir()
    gate = tmp_path / "gate"

    async def publish() -> None:
        async with open_iml(connection_file=servers.file) as iml:
            await iml.alloc(MIB, layout=Layout(("b",)), name="corpus")

    with open_servers(tmp_path / "layer") as servers:
        servers.start("a")
        servers.start("b")
        trio.run(publish)
        with Executor(cores=1, iml=servers.file) as executor:
            waiting = executor.submit(wait_for, str(gate))
            result = executor.submit(size_and_ends, Named("corpus"), waiting)
            servers.kill("b")
            gate.touch()
            with pytest.raises(DataLost, match=r"data d\d+ was lost"):
                result.result(HANG_S)


async def read_early(recovery: Recovery, read: Callable[[], Outputs]) -> ResultReader:
    """Let a job that is over wait for its results."""
    looked = trio.Event()
    recovery.look = looked.set
    with trio.fail_after(HANG_S):
        async with trio.open_nursery() as nursery:
            reader = ResultReader(recovery, read, nursery)
            assert not reader.may_end(True)
            await looked.wait()
    assert reader.may_end(True)
    return reader


async def put_nothing(_data_id: str, _pieces: Sequence[memoryview]) -> None:
    """Make no initial value again."""


def recovery() -> Recovery:
    """Return that of a job whose layer goes on."""
    return Recovery(cast(Iml, SimpleNamespace(is_over=False)), 0, put_nothing)


async def test_results_wait_for_room_to_be_opened_in() -> None:
    refusals = [NoRoom("host a has no room for 9 bytes"), NoRoom("host a has no room for 9 bytes")]

    def read() -> Outputs:
        if refusals:
            raise refusals.pop()
        return {"port": [1]}

    reader = await read_early(recovery(), read)
    assert reader.outputs() == {"port": [1]}


async def test_results_that_could_not_be_opened_are_not_tried_again_while_everything_waits() -> None:
    reads = []

    def read() -> Outputs:
        reads.append(1)
        raise NoRoom("host a has no room for 9 bytes")

    lost = recovery()
    lost.forgotten["d1"] = "it could not be made again"
    reader = await read_early(lost, read)
    with pytest.raises(NoRoom, match="host a has no room"):
        reader.outputs()
    assert len(reads) == 1


async def test_what_a_stopped_job_has_is_opened_once_and_not_in_this_thread() -> None:
    reads = []

    def read() -> Outputs:
        reads.append(get_ident())
        raise DataLost("data d1 was lost")

    looked = trio.Event()
    losing = recovery()
    losing.look = looked.set
    losing.lost(("d1",))  # and nobody makes it again
    with trio.fail_after(HANG_S):
        async with trio.open_nursery() as nursery:
            reader = ResultReader(losing, read, nursery)
            assert not reader.may_end(True)
            await trio.testing.wait_all_tasks_blocked()
            assert not reads
            assert not reader.may_end(False)
            await looked.wait()
    assert reader.may_end(False)
    with pytest.raises(DataLost):
        reader.outputs()
    assert len(reads) == 1
    assert reads[0] != get_ident()


def test_results_that_nobody_opened_are_none() -> None:
    def read() -> Outputs:
        raise AssertionError

    async def ends_at_once() -> None:
        async with trio.open_nursery() as nursery:
            assert ResultReader(recovery(), read, nursery).outputs() == {}

    trio.run(ends_at_once)


class Layer:
    """Knows which data there is."""

    is_over = False

    def __init__(self, *there: str) -> None:
        self.there = set(there)

    async def data_size(self, data_id: str) -> int:
        await trio.lowlevel.checkpoint()
        if data_id not in self.there:
            raise DataLost(f"data {data_id} was lost")
        return 1

    async def free(self, data_id: str) -> None:
        await trio.lowlevel.checkpoint()
        self.there.discard(data_id)


class Needed:
    """Lives as long as data is needed."""

    def __init__(self, data_id: str, origin: Origin | None) -> None:
        self.data_id = data_id
        self.origin = origin


async def test_what_is_needed_to_make_data_again_is_not_freed_before() -> None:
    """The task that made d2 from d1 runs again; nothing refers to d1 any more, once that has been seen."""
    layer = Layer("d1")
    lost = Recovery(cast(Iml, layer), BYTES_MAX, put_nothing)
    ready = trio.Event()
    lost.look = ready.set
    lineage = Lineage()
    first = lineage.origin(Task(1, "first", 0, ()), ("d1",), {})
    second = lineage.origin(Task(2, "second", 0, (b"",)), ("d2",), {"d1": first})
    kept = Needed("d2", second)
    lost.kept["d2"] = kept
    with trio.fail_after(HANG_S):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(lost.run)
            lost.lost(("d2",))
            await ready.wait()
            assert lost.next() is not None
            task = lost.extract()
            assert task.name == "second"
            assert lost.frees_later("d1")
            layer.there.add("d2")
            lost.done(task.task_id, well=True)
            await lost.wait_idle()
            nursery.cancel_scope.cancel()
    assert layer.there == {"d2"}
    assert not lost.frees_later("d1")
