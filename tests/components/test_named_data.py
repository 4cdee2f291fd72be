"""Published data that tasks take by its name, in workflows, workflow files and executors (APP-4)."""

from __future__ import annotations

import os
import subprocess
from concurrent.futures import wait
from pathlib import Path

import pytest
import trio

from gspc_trio import (
    Data,
    Executor,
    JobFailed,
    Named,
    Net,
    NoNamedData,
    Program,
    farm,
    open_iml,
    open_job,
    open_rts,
)
from gspc_trio.iml.errors import UnknownName
from gspc_trio.iml.layout import Layout, striped
from gspc_trio.iml.quota import Quota
from gspc_trio.iml.shell.server_process import open_server_process
from gspc_trio.protocol.values import BadValue, is_reference
from gspc_trio.workflow.arcs import WorkflowError
from tests.commands import run_command
from tests.components.tasks.named import count, pear_after, where
from tests.components.tasks.published import miss, predict, publish_steps, take, train
from tests.iml.shell.servers import HANG_S, Servers, open_servers

pytestmark = pytest.mark.process

MIB = 1 << 20
TEXT = b"pear or apple " * 100_000

FILE = """
from pathlib import Path
from gspc_trio import Named, Net

def count(word, text):
    Path(word + ".ran").touch()
    is_mapped = "memfd:gspc-iml" in Path("/proc/self/maps").read_text()
    return [word, bytes(text).count(word.encode()), text.readonly, is_mapped]

def workflow(name: str = "corpus"):
    net = Net("words")
    words = net.input("words", ["pear", "or"])
    net.transition("count", count, {"word": words, "text": Named(name)}, net.output("counts"))
    return net
"""


def run_file(folder: Path, servers: Servers, *settings: str) -> subprocess.CompletedProcess[str]:
    arguments = ("run", "words.py", "--cores", "1", *settings, "--iml", str(servers.file))
    return run_command("jobserver", *arguments, cwd=folder, env=os.environ, timeout_s=HANG_S)


def test_a_workflow_file_maps_what_a_running_layer_has_published(tmp_path: Path) -> None:
    (tmp_path / "words.py").write_text(FILE)
    (tmp_path / "layer").mkdir()

    async def publish() -> None:
        async with open_iml(connection_file=servers.file) as iml:
            await iml.alloc(len(TEXT), TEXT, name="corpus")

    with open_servers(tmp_path / "layer") as servers:
        servers.start("a")
        trio.run(publish)
        unknown = run_file(tmp_path, servers, "--set", "name=corpse")
        assert unknown.returncode == 1
        assert unknown.stderr == "gspc-jobserver: no data is published under the name 'corpse'\n"
        assert not list(tmp_path.glob("*.ran"))
        done = run_file(tmp_path, servers)
        assert done.returncode == 0, done.stderr
        assert "counts: ['pear', 100000, True, True]\n" in done.stdout
        assert "counts: ['or', 100000, True, True]\n" in done.stdout


async def test_it_is_given_as_memory_and_as_file_wherever_it_lies() -> None:
    net = Net("words")
    counts, sizes = net.output("counts"), net.output("sizes")
    net.transition("count", count, {"word": net.input("words"), "text": Named("corpus")}, counts)
    net.transition(
        "size",
        Program(["sh", "-c", "wc -c < corpus.txt > size"]),
        {"_again": net.input("again")},
        {"size": sizes},
        stage_in={"corpus.txt": Named("corpus")},
        stage_out={"size": Data("size")},
    )
    net.transition("token", count, {"text": net.input("texts"), "word": net.input("others")}, counts)
    values = {"words": ["pear"], "again": [None], "texts": [Named("stripes")], "others": ["apple"]}
    with trio.fail_after(HANG_S):
        async with open_rts(cores=1, host="alpha", data_bytes=64 * MIB) as rts:
            assert rts.data is not None
            server = open_server_process("beta", Quota(64 * MIB), layer=rts.data)
            async with server, open_iml(layer=rts.data) as iml:
                await iml.alloc(len(TEXT), TEXT, layout=Layout(("beta",)), name="corpus")
                await iml.alloc(len(TEXT), TEXT, layout=striped(4096, ("alpha", "beta")), name="stripes")
                async with open_job(net, rts=rts, values=values) as job:
                    outputs = (await job.wait()).outputs
                assert outputs == {"counts": [100_000, 100_000], "sizes": [b"%d\n" % len(TEXT)]}
                left = {entry.name for entry in (await iml.status()).data}
                assert left == {"corpus", "stripes"}


async def test_tasks_go_where_the_data_lies(tmp_path: Path) -> None:
    net = Net("places")
    net.transition("where", where, [net.input("items"), Named("corpus")], net.output("places"))
    (tmp_path / "run").mkdir(mode=0o700)
    opened = open_rts(cores=1, host="alpha", data_bytes=64 * MIB, publish=tmp_path / "run" / "rts.json")
    with trio.fail_after(HANG_S):
        async with opened as rts:
            assert rts.data is not None
            server = open_server_process("beta", Quota(64 * MIB), layer=rts.data)
            async with server, open_iml(layer=rts.data) as iml:
                assert not (await rts.bootstrap(["beta"], "local", cores=1)).failed
                await iml.alloc(len(TEXT), TEXT, layout=Layout(("beta",)), name="corpus")
                for _ in range(3):
                    async with open_job(net, rts=rts, values={"items": [0]}) as job:
                        assert (await job.wait()).outputs == {"places": [("beta", len(TEXT))]}


async def test_a_job_takes_no_data_that_was_published_under_the_name_after_it_began(tmp_path: Path) -> None:
    net = Net("words")
    word = net.place("word")
    net.transition("wait", pear_after, net.input("go"), word)
    net.transition("count", count, {"word": word, "text": Named("corpus")}, net.output("counts"))
    go = tmp_path / "go"
    with trio.fail_after(HANG_S):
        async with open_rts(cores=1, data_bytes=8 * MIB) as rts, open_iml(layer=rts.data) as iml:
            for text in (TEXT, TEXT[:-1]):
                await iml.publish(await iml.alloc(len(text), text), "corpus", replace=True)

            async def run_and_publish() -> None:
                async with open_job(net, rts=rts, values={"go": [str(go)]}) as job:
                    await job.publish("corpus", b"other")
                    go.touch()

            with pytest.raises(JobFailed, match="was published as 'corpus', and is gone: other data was"):
                await run_and_publish()
            async with open_job(net, rts=rts, values={"go": [str(go)]}) as job:
                assert (await job.wait()).outputs == {"counts": [0]}


async def test_without_a_layer_or_the_name_nothing_runs() -> None:
    net = Net("words")
    net.transition("count", count, {"word": net.input("words"), "text": Named("corpus")}, net.output("n"))
    with trio.fail_after(HANG_S):
        async with open_rts(cores=1) as rts:
            with pytest.raises(WorkflowError, match="takes published data, 'corpus'"):
                async with open_job(net, rts=rts, values={"words": ["a"]}):
                    raise AssertionError("it has begun")
        async with open_rts(cores=1, data_bytes=MIB) as rts:
            with pytest.raises(UnknownName, match="'corpus'"):
                async with open_job(net, rts=rts, values={"words": ["a"]}):
                    raise AssertionError("it has begun")
            assert [entry.name for entry in await rts.jobs() if "memory" not in entry.name] == []


def test_an_executor_takes_it_from_a_running_layer(tmp_path: Path) -> None:
    async def publish() -> None:
        async with open_iml(connection_file=servers.file) as iml:
            await iml.alloc(len(TEXT), TEXT, name="corpus")

    with open_servers(tmp_path) as servers:
        servers.start("a")
        trio.run(publish)
        with Executor(cores=1, iml=servers.file) as executor:
            assert executor.submit(count, "pear", Named("corpus")).result(HANG_S) == 100_000
            assert list(executor.map(count, ["or", "x"], [Named("corpus")] * 2)) == [100_000, 0]
            with pytest.raises(UnknownName, match="'corpse'"):
                executor.submit(count, "pear", Named("corpse")).result(HANG_S)
            large = executor.submit(bytes, MIB)
            assert executor.submit(len, large).result(HANG_S) == MIB
    with Executor(cores=1) as executor, pytest.raises(BadValue, match="published data"):
        executor.submit(count, "pear", Named("corpus")).result(HANG_S)


def test_a_journal_and_published_data_exclude_each_other(tmp_path: Path) -> None:
    (tmp_path / "words.py").write_text(FILE)
    arguments = ("run", "words.py", "--journal", "kept")
    done = run_command("jobserver", *arguments, cwd=tmp_path, env=os.environ, timeout_s=HANG_S)
    assert done.returncode == 1
    assert "Named(name='corpus') is published data" in done.stderr
    assert "internal error" not in done.stderr
    assert not list(tmp_path.glob("*.ran"))


@pytest.mark.parametrize("threads", [False, True])
def test_tasks_and_the_application_publish_for_each_other(threads: bool) -> None:
    with Executor(1, data_bytes=8 * MIB, threads=threads) as executor:
        executor.publish("settings", {"rate": 0.5})
        assert executor.submit(train, 1000).result() == 1000
        assert executor.submit(predict, 4).result() == (2.0, b"raw")
        assert executor.submit(take, Named("model")).result() == 499.5
        assert executor.read_published("model")[2] == 1.0
        assert bytes(executor.read_published("raw")) == b"raw" * 1000
        with pytest.raises(UnknownName, match="no data is published under the name 'nothing'"):
            executor.submit(miss, "nothing").result()
        with pytest.raises(UnknownName):
            executor.read_published("nothing")


def test_a_name_is_read_while_a_task_publishes_it_again() -> None:
    with Executor(1, data_bytes=8 * MIB) as executor:
        executor.publish("step", 0)
        count_up = executor.submit(publish_steps, 200)
        found = [0]
        while not count_up.done():
            found.append(executor.read_published("step"))
        assert found == sorted(found)
        assert executor.read_published("step") == count_up.result() == 200


async def test_a_job_publishes_and_reads_while_it_runs() -> None:
    with trio.fail_after(HANG_S):
        async with open_rts(cores=1, data_bytes=8 * MIB) as rts:
            async with open_job(farm(str), rts=rts, values={"items": [1]}) as job:
                await job.publish("settings", {"rate": 2.0})
            async with open_job(farm(train), rts=rts, values={"items": [10]}) as job:
                await job.wait()
                assert await job.read_published("model") == [2.0 * step for step in range(10)]


def test_without_a_layer_it_is_said_how_to_have_one() -> None:
    with Executor(1) as executor:
        for call in (executor.submit(miss, "model").result, lambda: executor.publish("model", 1)):
            with pytest.raises(NoNamedData, match=r"there is none here: .*Executor\(data_bytes=...\)"):
                call()


def test_the_size_from_which_on_values_go_into_the_layer_is_a_setting() -> None:
    with Executor(1, data_bytes=8 * MIB, large_bytes_min=1000) as executor:
        small, large = executor.submit(bytes, 900), executor.submit(bytes, 1100)
        wait([small, large])
        assert [is_reference(future.encoded()) for future in (small, large)] == [False, True]
        assert (small.result(), large.result()) == (bytes(900), bytes(1100))
    with pytest.raises(ValueError, match="large_bytes_min must be >= 1, not 0"):
        Executor(1, data_bytes=8 * MIB, large_bytes_min=0)
