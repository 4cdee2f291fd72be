"""A job as a scope in the user's own trio main, with real compute processes (APP-2, APP-5)."""

from __future__ import annotations

import asyncio
import json
import math
import socket
import sys
import threading
import time
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import psutil
import pytest
import trio
from trio.testing import MockClock

from gspc_trio import JobFailed, JobSettings, Net, farm, map_reduce, open_iml, open_job, open_rts
from gspc_trio.components.job.messages import GetFunctions
from gspc_trio.components.job.shell.handle import Job
from gspc_trio.components.job.shell.workflow_file import WorkflowFileError, load_workflow_file
from gspc_trio.components.provision.blocks import BlockMoved, BlockOver
from gspc_trio.components.provision.strategy import RifOrder
from gspc_trio.compute.code import BadCode
from gspc_trio.core.task import TaskState
from gspc_trio.nursery.connections.memory import memory_pair
from gspc_trio.nursery.connections.rpc import RemoteError
from gspc_trio.nursery.scopes.loop import NotInTrio, real_time
from gspc_trio.protocol.values import BadValue
from gspc_trio.records.facts import TaskChanged
from gspc_trio.records.lines import read_records
from gspc_trio.records.messages import RecordBatch
from gspc_trio.records.progress import Progress
from gspc_trio.records.shell.stream import Watcher
from gspc_trio.workflow.arcs import WorkflowError
from tests.components.own_job import double_in_a_job
from tests.components.tasks.output import speak
from tests.components.tasks.plain import add_up, double, fall, fall_or_end, nap
from tests.support import until

HANG_S = 60.0


class HopelessBlocks:
    """A batch system that can never run what it is asked for."""

    come_up_s = math.inf

    async def run(self, order: RifOrder) -> str:
        assert order.enrolments is not None
        order.enrolments.tell(
            BlockMoved(order.block, "queued", "17", "too long", "it waits", is_hopeless=True)
        )
        try:
            await trio.sleep_forever()
        finally:
            order.enrolments.tell(BlockOver(order.block, "ended", "cancelled", was_cancelled=True))
        raise AssertionError("it slept")


def children() -> list[int]:
    return [process.pid for process in psutil.Process().children(recursive=True)]


@pytest.mark.parametrize(
    "wrong", [{"name": 3}, {"priority": 1.5}, {"weight": "much"}, {"cache": "results"}, {"modules": 3}]
)
def test_settings_of_a_wrong_type_are_named(wrong: dict[str, Any]) -> None:
    ((name, value),) = wrong.items()
    with pytest.raises(TypeError, match=f"^{name} of a job is .*, not {value!r}$"):
        JobSettings(**wrong)


def test_a_name_that_no_message_can_have_is_refused() -> None:
    with pytest.raises(ValueError, match=r"^name of a job is a text that UTF-8 can write, not 'a\\udcff'$"):
        JobSettings(name="a\udcff")


async def test_no_names_of_hosts_mean_this_host() -> None:
    with trio.fail_after(HANG_S):
        async with open_rts(cores=1, hosts=()) as rts:
            assert [rif.host for rif in (await rts.status()).rifs] == [socket.gethostname()]


async def test_a_task_may_wait_for_a_job_of_its_own_on_the_only_core(tmp_path: Path) -> None:
    file = tmp_path / "run" / "rts.json"
    with trio.fail_after(HANG_S):
        async with (
            open_rts(cores=1, publish=file) as rts,
            open_job(
                farm(partial(double_in_a_job, file=str(file))), rts=rts, values={"items": [[1, 2, 3]]}
            ) as job,
        ):
            assert (await job.wait()).outputs == {"results": [[2, 4, 6]]}


async def test_a_job_gives_its_outputs_and_leaves_no_process() -> None:
    before = children()
    with trio.fail_after(HANG_S):
        async with (
            open_rts(cores=2) as rts,
            open_job(map_reduce(double, add_up), rts=rts, values={"items": range(100)}) as job,
        ):
            result = await job.wait()
    assert result.state == "finished"
    assert result.outputs == {"result": [9900]}
    assert result.tasks["failed"] == 0
    assert children() == before


async def test_tasks_fail_when_the_only_site_has_paused_for_nobody_can_resume_it() -> None:
    sites = {"hpc": {"provider": "fake", "cores_per_node": 1}}
    with trio.fail_after(HANG_S):
        async with open_rts(sites=sites, listen="127.0.0.1", strategies={"fake": HopelessBlocks()}) as rts:
            with pytest.raises(JobFailed, match=r"refused: site hpc is paused: .*: too long; nobody can"):
                async with open_job(farm(double), rts=rts, values={"items": [1, 2]}) as job:
                    await job.wait()


async def test_a_job_that_reaches_an_embedded_system_from_outside_runs_there(tmp_path: Path) -> None:
    publish = tmp_path / "run" / "rts.json"
    with trio.fail_after(HANG_S):
        async with (
            open_rts(cores=1, publish=publish),
            open_rts(connection_file=publish) as rts,  # shares nothing in memory: as in another process
            open_job(map_reduce(double, add_up), rts=rts, values={"items": range(10)}) as job,
        ):
            assert (await job.wait()).outputs == {"result": [90]}


async def test_tasks_run_what_their_function_was_when_the_job_was_opened() -> None:
    shift = [1]
    with trio.fail_after(HANG_S):
        async with open_rts(cores=2) as rts:
            net = farm(lambda value: value + shift[0])
            async with open_job(net, rts=rts, values={"items": [1, 2, 3]}) as job:
                shift[0] = 100
            assert sorted((await job.wait()).outputs["results"]) == [2, 3, 4]
            lock = threading.Lock()
            with pytest.raises(BadCode, match="lock"):
                async with open_job(farm(lambda value: (value, lock), default=[1]), rts=rts):
                    pytest.fail("it was opened")


async def test_leaving_the_block_waits_for_the_job() -> None:
    with trio.fail_after(HANG_S):
        async with open_rts(cores=2) as rts:
            async with open_job(farm(double), rts=rts, values={"items": [1, 2, 3]}) as job:
                pass
            assert job.has_ended
            assert sorted((await job.wait()).outputs["results"]) == [2, 4, 6]


async def test_a_job_whose_scope_is_cancelled_has_ended_and_is_not_waited_for(
    caplog: pytest.LogCaptureFixture,
) -> None:
    before = children()
    with trio.fail_after(HANG_S), trio.CancelScope() as scope:
        async with (
            open_rts(cores=2) as rts,
            open_job(farm(nap), rts=rts, values={"items": [HANG_S] * 4}) as job,
        ):
            scope.cancel()
    assert job.has_ended
    assert (await job.wait_ended()).detail == "its scope was cancelled"
    assert children() == before
    assert [record.getMessage() for record in caplog.records if record.levelname == "WARNING"] == []


class Speechless(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no text")


async def test_an_application_function_that_raises_what_has_no_text_harms_no_job() -> None:
    def complain() -> None:
        raise Speechless

    settings = JobSettings().listening()
    with trio.fail_after(HANG_S):
        async with (
            open_rts(cores=1) as rts,
            open_job(farm(double), rts=rts, values={"items": [1]}, settings=settings) as job,
        ):
            job.serve("complain", complain)
            with pytest.raises(RemoteError) as caught:
                await rts.call(job.job_id, "complain")
            result = await job.wait()
    where = f"{__file__}:{complain.__code__.co_firstlineno + 1}, in complain"
    assert (caught.value.kind, str(caught.value)) == ("Speechless", f"Speechless ({where})")
    assert result.state == "finished"


async def test_an_application_function_that_exits_does_not_end_the_job() -> None:
    settings = JobSettings().listening()
    with trio.fail_after(HANG_S):
        async with (
            open_rts(cores=1) as rts,
            open_job(farm(nap), rts=rts, values={"items": [0.3]}, settings=settings) as job,
        ):
            job.serve("leave", sys.exit)
            with pytest.raises(RemoteError, match="enough") as caught:
                await rts.call(job.job_id, "leave", "enough")
            result = await job.wait()
    assert (caught.value.kind, result.state) == ("SystemExit", "finished")


async def test_a_failure_raises_with_its_story_and_what_was_done() -> None:
    settings = JobSettings(keep_going=True)
    with trio.fail_after(HANG_S):
        async with open_rts(cores=2) as rts:
            with pytest.raises(JobFailed, match="2 is not welcome") as caught:
                async with open_job(farm(fall), rts=rts, values={"items": [1, 2, 3]}, settings=settings):
                    pass
            again = open_job(farm(double), rts=rts, values={"items": [4]})
            async with again as job:
                assert (await job.wait()).outputs == {"results": [8]}
    result = caught.value.result
    assert sorted(result.outputs["results"]) == [1, 3]
    assert result.tasks["failed"] == 1
    (failure,) = result.failures
    assert failure.outcome.error is not None
    assert failure.outcome.error.kind == "ValueError"


async def test_an_error_in_the_block_stops_the_job_and_comes_out_as_it_is() -> None:
    begun = trio.current_time()
    with trio.fail_after(HANG_S):
        async with open_rts(cores=1) as rts:
            with pytest.raises(ZeroDivisionError):
                async with open_job(farm(nap), rts=rts, values={"items": [10 * HANG_S]}) as job:
                    raise ZeroDivisionError
            assert (await job.wait_ended()).state == "stopped"
            assert (await rts.status()).classes["core"].held == 0
    assert trio.current_time() - begun < HANG_S


async def test_cancelling_the_scope_stops_the_job() -> None:
    before = children()
    with trio.move_on_after(HANG_S) as hang, trio.CancelScope() as scope:
        async with open_rts(cores=2) as rts, open_job(farm(nap), rts=rts, values={"items": [3600.0] * 9}):
            while (await rts.status()).classes["core"].held < 2:
                await trio.lowlevel.checkpoint()
            scope.cancel()
            await trio.sleep_forever()
    assert scope.cancelled_caught
    assert not hang.cancelled_caught
    assert children() == before


async def test_two_jobs_of_one_application_share_its_run_time_system() -> None:
    pids: list[set[int]] = [set(), set()]

    async def run(index: int) -> None:
        async with open_job(farm(nap), rts=rts, values={"items": [0.01] * 40}) as job:
            pids[index] = set((await job.wait()).outputs["results"])

    with trio.fail_after(HANG_S):
        async with open_rts(cores=2) as rts:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(run, 0)
                nursery.start_soon(run, 1)
            assert (await rts.status()).jobs == ()
    assert pids[0]
    assert pids[1]
    assert not pids[0] & pids[1], "a compute process belongs to one job"


async def test_an_application_serves_functions_of_its_own() -> None:
    async def later(value: int) -> int:
        await trio.lowlevel.checkpoint()
        return value + 1

    async with open_rts(cores=1) as rts:
        settings = JobSettings(listen="memory:job")
        held = farm(nap, name="held")
        job_scope = open_job(held, rts=rts, values={"items": [0.3]}, settings=settings)
        with trio.fail_after(HANG_S):
            async with job_scope as job:
                job.serve("double", double)
                job.serve("later", later)
                job.serve("fall", fall)
                assert await rts.call(job.job_id, "double", 21) == 42
                assert await rts.call(job.job_id, "later", value=1) == 2
                job.serve("add", partial(job.put, "items"))
                assert await rts.call(job.job_id, "add", [0.0, 0.0]) is None
                async with rts.connect_to_job(job.job_id) as peer:
                    offered = (await peer.call(GetFunctions())).functions
                assert [it.name for it in offered] == ["add", "double", "fall", "later"]
                assert offered[-1].parameters == "(value: 'int') -> 'int'"
                with pytest.raises(RemoteError, match="it serves add, double, fall, later"):
                    await rts.call(job.job_id, "nothing")
                with pytest.raises(RemoteError, match="2 is not welcome"):
                    await rts.call(job.job_id, "fall", 2)
                with pytest.raises(ValueError, match="served under the name 'double' already"):
                    job.serve("double", double)
                with pytest.raises(LookupError, match="registered: j1"):
                    await rts.call("j9", "double", 1)
                result = await job.wait()
                assert len(await job.results_so_far()) == len(result.outputs["results"]) == 3
                with pytest.raises(ValueError, match="j1 takes no tokens: it is over"):
                    job.put("items", [1.0])


async def test_a_value_that_cannot_be_sent_is_refused_where_it_is_put_and_the_job_goes_on() -> None:
    settings = JobSettings(listen="memory:job")
    with trio.fail_after(HANG_S):
        async with (
            open_rts(cores=1) as rts,
            open_job(farm(nap), rts=rts, values={"items": [0.3]}, settings=settings) as job,
        ):
            job.serve("add_lock", lambda: job.put("items", [0.0, threading.Lock()]))
            with pytest.raises(BadValue, match="lock"):
                job.put("items", [0.0, threading.Lock()])
            with pytest.raises(RemoteError, match="lock") as caught:
                await rts.call(job.job_id, "add_lock")
            result = await job.wait()
    assert caught.value.kind == "BadValue"
    assert (result.state, len(result.outputs["results"])) == ("finished", 1)


async def test_a_job_begins_where_a_dump_of_another_stood() -> None:
    net = farm(nap, name="naps")
    with trio.fail_after(HANG_S):
        async with open_rts(cores=2) as rts:
            with suppress(JobFailed):
                async with open_job(net, rts=rts, values={"items": [0.0, 0.0, 3600.0]}) as job:
                    while len(seen := await job.results_so_far()) < 2:
                        await job.wait_news()
                    dump = json.loads(json.dumps(await job.dump()))
                    job.stop()
            assert [task["inputs"] for task in dump["tasks"]] == [[3600.0]]
            dump["tasks"][0]["inputs"] = [0.0]
            async with open_job(net, rts=rts, dump=dump) as job:
                result = await job.wait()
            with pytest.raises(WorkflowError, match="give only the dump"):
                async with open_job(net, rts=rts, dump=dump, values={"items": []}):
                    pass
    assert result.outputs["results"][:2] == seen
    assert (result.tasks["finished"], len(result.outputs["results"])) == (3, 3)


async def test_a_net_with_a_final_output_ends_when_it_is_there() -> None:
    net = Net("race")
    items = net.input("items")
    net.transition("race", run=nap, inputs={"seconds": items}, outputs=net.output("first", final=True))
    with trio.fail_after(HANG_S):
        async with (
            open_rts(cores=2) as rts,
            open_job(net, rts=rts, values={"items": [0.05, 3600.0]}) as job,
        ):
            result = await job.wait()
    assert result.state == "finished"
    assert len(result.outputs["first"]) == 1
    assert result.tasks["cancelled"] == 1


async def test_records_go_to_a_file(tmp_path: Path) -> None:
    path = tmp_path / "records"
    with trio.fail_after(HANG_S):
        async with (
            open_rts(cores=2) as rts,
            open_job(farm(double), rts=rts, values={"items": range(5)}, records_path=path),
        ):
            pass
    records = [json.loads(line) for line in path.read_text().splitlines()]
    assert sum(r["record"] == "TaskChanged" and r["state"] == "finished" for r in records) == 5


async def test_who_watches_a_fast_job_with_a_file_of_records_knows_how_it_has_ended(tmp_path: Path) -> None:
    seen, watcher = Progress(), Watcher()
    watcher.add_credit(1_000)
    with trio.fail_after(HANG_S):
        async with (
            open_rts(cores=1) as rts,
            open_job(
                farm(double), rts=rts, values={"items": range(5_000)}, records_path=tmp_path / "run"
            ) as job,
            trio.open_nursery() as nursery,
        ):
            here, there = memory_pair("job", job.job_id, "control", "top", nursery)
            nursery.start_soon(job.records.feed, there, watcher)
            await job.wait()
            job.records.send_the_rest()
            for batch in await here.receive():
                assert isinstance(batch, RecordBatch)
                for record in batch.records:
                    seen.apply(record)
            nursery.cancel_scope.cancel()
    assert seen.jobs[job.job_id].counts[TaskState.FINISHED] == 5_000
    with (tmp_path / "run").open("rb") as file:
        finished = [it for it in read_records(file) if isinstance(it, TaskChanged) and it.state == "finished"]
    assert len({record.task_id for record in finished}) == 5_000


async def test_who_watches_after_another_one_sees_what_runs_too(tmp_path: Path) -> None:
    go, running = tmp_path / "go", TaskState.RUNNING

    async def watch_until_it_runs(job: Job) -> None:
        seen, watcher = Progress(), Watcher()
        watcher.add_credit(1_000)
        async with trio.open_nursery() as nursery:
            here, there = memory_pair("job", job.job_id, "control", "top", nursery)
            nursery.start_soon(job.records.feed, there, watcher)
            while job.job_id not in seen.jobs or not seen.jobs[job.job_id].running:
                for batch in await here.receive():
                    assert isinstance(batch, RecordBatch)
                    for record in batch.records:
                        seen.apply(record)
            assert seen.jobs[job.job_id].counts[running] == 1
            nursery.cancel_scope.cancel()

    with trio.fail_after(HANG_S):
        async with (
            open_rts(cores=1) as rts,
            open_job(farm(speak), rts=rts, values={"items": [str(go)]}) as job,
        ):
            await until((tmp_path / "go.begun").exists)
            for _ in range(3):
                await watch_until_it_runs(job)
            go.touch()


async def test_threads_on_request() -> None:
    with trio.fail_after(HANG_S):
        async with (
            open_rts(cores=2) as rts,
            open_job(
                farm(nap), rts=rts, values={"items": [0.02] * 8}, settings=JobSettings(threads=True)
            ) as job,
        ):
            pids = (await job.wait()).outputs["results"]
    assert len(set(pids)) == 1


def test_a_workflow_file_brings_the_modules_beside_it(tmp_path: Path) -> None:
    (tmp_path / "helper_module_here.py").write_text("def triple(x):\n    return 3 * x\n")
    flow = tmp_path / "flow_with_helper.py"
    flow.write_text(
        "from gspc_trio import Workflow, farm\nimport helper_module_here\n"
        "def workflow(n: int = 3):\n"
        "    return Workflow(farm(helper_module_here.triple), {'items': range(n)})\n"
    )
    loaded = load_workflow_file(flow, ["n=2"])
    assert set(loaded.modules) == {"flow_with_helper", "helper_module_here"}
    assert loaded.modules["helper_module_here"][0] == str(tmp_path / "helper_module_here.py")
    (tmp_path / "flow.txt").touch()
    with pytest.raises(WorkflowFileError, match="is not a workflow file"):
        load_workflow_file(tmp_path / "flow.txt", [])


def test_a_syntax_error_is_said_to_be_where_it_is(tmp_path: Path) -> None:
    broken = tmp_path / "broken_module_here.py"
    broken.write_text("def triple(x):\n    return 3 *\n")
    flow = tmp_path / "flow_with_broken.py"
    flow.write_text("import broken_module_here\n")
    with pytest.raises(WorkflowFileError) as caught:
        load_workflow_file(flow, [])
    assert str(caught.value) == f"{broken}, line 2: SyntaxError: invalid syntax"


def test_an_error_in_a_module_of_a_workflow_shows_the_frames_that_led_there(tmp_path: Path) -> None:
    helper = tmp_path / "helper_that_fails.py"
    helper.write_text("def number_of(settings):\n    return settings['n']\n")
    flow = tmp_path / "flow_with_frames.py"
    flow.write_text("import helper_that_fails\ndef workflow():\n    helper_that_fails.number_of({})\n")
    with pytest.raises(WorkflowFileError) as caught:
        load_workflow_file(flow, [])
    lines = str(caught.value).splitlines()
    assert lines[0] == caught.value.what == f"{flow}, line 3: KeyError: 'n'"
    shown = [line.strip() for line in lines if line.startswith("  File ")]
    assert shown == [f'File "{flow}", line 3, in workflow', f'File "{helper}", line 2, in number_of']


@pytest.mark.parametrize("open_it", [open_rts, open_iml])
def test_outside_of_trio_it_is_said_what_to_do(open_it: Any) -> None:
    async def main() -> None:
        async with open_it():
            raise AssertionError("it opened")

    with pytest.raises(
        NotInTrio, match=r"here runs asyncio: use 'await asyncio\.to_thread\(trio\.run, main\)'"
    ):
        asyncio.run(main())
    with pytest.raises(NotInTrio, match=r"here runs no trio: call 'trio\.run\(main\)'"):
        main().send(None)


def test_what_is_said_of_asyncio_works() -> None:
    async def main() -> dict[str, Any]:
        async with (
            open_rts(cores=1) as rts,
            open_job(farm(double), rts=rts, values={"items": [7]}) as job,
        ):
            return dict((await job.wait()).outputs)

    async def in_asyncio() -> Any:
        return await asyncio.to_thread(trio.run, main)

    assert asyncio.run(in_asyncio()) == {"results": [14]}


async def test_under_an_autojump_clock_time_is_real_while_processes_work(autojump_clock: MockClock) -> None:
    async with open_rts(cores=2) as rts, open_rts(cores=1) as other:
        net = farm(nap)
        async with open_job(net, rts=rts, values={"items": [1.0] * 2}) as job:
            result = await job.wait()
        async with open_job(net, rts=other, values={"items": [0.1]}) as job:
            await job.wait()
    assert (result.state, result.tasks["finished"], result.tasks["failed"]) == ("finished", 2, 0)
    assert result.elapsed_s >= 1.0
    begun_s = time.monotonic()
    await trio.sleep(3_600)  # it leaps again
    assert time.monotonic() - begun_s < HANG_S
    assert (autojump_clock.rate, autojump_clock.autojump_threshold) == (0.0, 0.0)


async def test_a_clock_that_a_test_moves_itself_is_left_alone(mock_clock: MockClock) -> None:
    with real_time():
        assert (mock_clock.rate, mock_clock.autojump_threshold) == (0.0, math.inf)


async def test_many_short_items_of_a_farm_share_tasks_and_each_has_its_own_end(tmp_path: Path) -> None:
    items = [(number, str(tmp_path / "ended")) for number in range(4000)]
    settings = JobSettings(keep_going=True)
    async with open_rts(cores=2) as rts:
        with suppress(JobFailed):
            async with open_job(
                farm(fall_or_end), rts=rts, values={"items": items}, settings=settings
            ) as job:
                result = await job.wait_ended()
                job.machine.check()
    welcome = [number for number in range(4000) if number % 500 != 3]
    assert sorted(result.outputs["results"]) == welcome
    assert (result.tasks["finished"], result.tasks["failed"]) == (len(welcome), 8)
    assert sum(result.tasks.values()) == 4000
    errors = [failure.outcome.error for failure in result.failures if failure.outcome.error is not None]
    assert sorted(error.message for error in errors) == sorted(
        f"{number} is not welcome" for number in range(3, 4000, 500)
    )
    assert all("in fall_or_end" in error.traceback for error in errors)
    assert len({failure.task_id for failure in result.failures}) == 8
    assert job.machine.scheduler.ended < 4000  # they were fewer tasks than items
