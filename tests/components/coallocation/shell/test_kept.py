"""Grants and workers that a site keeps from one job to the next."""

from __future__ import annotations

import trio

from gspc_trio import open_coallocation, open_resources, open_rts

HANG_S = 60.0
JOBS = {
    "parent": {"executable": "sh", "arguments": ["-c", "echo $PPID $GSPC_RESOURCES"]},
    "kill": {"executable": "sh", "arguments": ["-c", "kill -9 $PPID; exec sleep 60"]},
}


async def test_jobs_one_after_the_other_use_one_process_and_others_get_its_resource():
    with trio.fail_after(HANG_S):
        async with (
            open_rts(cores=1) as rts,
            open_resources(rts) as other,
            open_coallocation("*(parent)(parent)(parent)", jobs=JOBS, rts=[rts]) as request,
        ):
            ends = await request.wait()
            assert len({end.output for end in ends}) == 1
            await other.acquire("core")


async def test_a_job_after_one_whose_process_was_lost_runs():
    with trio.fail_after(HANG_S):
        async with (
            open_rts(cores=1) as rts,
            open_coallocation("*(kill)(parent)", jobs=JOBS, rts=[rts]) as request,
        ):
            ends = await request.wait()
    assert [end.state for end in ends] == ["failed", "finished"]
