"""Results of a job while it runs, in the order in which they come."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
import trio

from gspc_trio import JobFailed, JobSettings, Net, WorkflowError, farm, open_job, open_rts
from tests.components.tasks.results import blob, blob_and_more, both, fail_at_three, pass_gate

pytestmark = pytest.mark.process


async def test_a_result_is_there_before_the_job_ends(tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    os.mkfifo(gate)
    items = [("", 1), (str(gate), 2), ("", 3)]
    seen: list[int] = []
    async with (
        open_rts(cores=2) as rts,
        open_job(farm(pass_gate), rts=rts, values={"items": items}) as job,
    ):
        async for result in job.results():
            seen.append(result)
            if len(seen) == 2:
                assert not job.has_ended
                await trio.to_thread.run_sync(gate.write_text, "go")
        assert (await job.wait()).outputs["results"] == seen
        assert [result async for result in job.results("results")] == seen, "and afterwards"
        with pytest.raises(ValueError, match=r"no output port 'result'.*output ports: results"):
            job.results("result")
    assert sorted(seen) == [1, 2, 3]
    assert seen[-1] == 2


async def test_of_several_output_ports_one_is_named() -> None:
    net = Net("two")
    net.transition("both", both, [net.input("items")], {"one": net.output("one"), "two": net.output("two")})
    async with open_rts(cores=1) as rts, open_job(net, rts=rts, values={"items": []}) as job:
        with pytest.raises(ValueError, match=r"^name one of the output ports: one, two$"):
            job.results()


async def test_inline_transitions_count_and_large_values_are_opened() -> None:
    net = Net("inline")
    net.input("items")
    net.place("made")
    net.output("sizes")
    net.transition("blob", blob, ["items"], ["made"])
    net.transition("measure", len, ["made"], ["sizes"], inline=True)
    async with (
        open_rts(cores=1) as rts,
        open_job(net, rts=rts, values={"items": [1, 22]}) as job,
    ):
        assert [size async for size in job.results()] == [1, 22]
    async with (
        open_rts(cores=1, data_bytes=1 << 26) as rts,
        open_job(farm(blob), rts=rts, values={"items": [100, 1_000_000]}) as job,
    ):
        sizes = {len(result) async for result in job.results()}
    assert sizes == {100, 1_000_000}


async def test_a_job_that_fails_says_so_after_its_results() -> None:
    seen: list[Any] = []

    async def follow() -> None:
        settings, values = JobSettings(keep_going=True), {"items": [1, 2, 3, 4]}
        async with open_rts(cores=1) as rts:
            async with open_job(farm(fail_at_three), rts=rts, values=values, settings=settings) as job:
                async for result in job.results():
                    seen.append(result)

    with pytest.raises(JobFailed, match="three"):
        await follow()
    assert seen == [1, 2, 4]


async def test_a_farm_gives_each_result_with_its_item() -> None:
    net = farm(fail_at_three, pairs=True)
    assert net.name == "fail_at_three"
    async with open_rts(cores=2) as rts, open_job(net, rts=rts, values={"items": [1, 2, 4]}) as job:
        assert {item: result async for item, result in job.results()} == {1: 1, 2: 2, 4: 4}
    with pytest.raises(WorkflowError, match="does not fit its inputs"):
        farm(blob_and_more, pairs=True)
