from __future__ import annotations

from pathlib import Path

import pytest
import trio

from gspc_trio import JobSettings, farm, open_job, open_rts
from gspc_trio.cli.calls import call, parse_arguments
from gspc_trio.cli.common import CommandError
from gspc_trio.nursery.connections.rpc import PeerGone, RemoteError
from tests.components.tasks.plain import fall, nap

HANG_S = 60.0


def test_arguments_are_json_where_they_can_be() -> None:
    assert parse_arguments(["1", "two", '"3"', "null", "three=[3]", "four=a=b", "a b=1", "{"]) == (
        [1, "two", "3", None, "a b=1", "{"],
        {"three": [3], "four": "a=b"},
    )


async def test_a_call_says_what_went_wrong_in_the_function_and_on_the_way(tmp_path: Path) -> None:
    file, asked, lost = tmp_path / "rts.json", trio.Event(), list[str]()

    async def never() -> None:
        asked.set()
        await trio.sleep_forever()

    async def call_until_lost(job_id: str) -> None:
        with pytest.raises(PeerGone) as caught:
            await call(job_id, "never", rts=file)
        lost.append(caught.value.reason)

    values = {"items": [HANG_S]}
    with trio.fail_after(HANG_S):
        async with open_rts(cores=1, publish=file) as rts, trio.open_nursery() as nursery:
            with trio.CancelScope() as scope:
                async with open_job(
                    farm(nap), rts=rts, values=values, settings=JobSettings().listening()
                ) as job:
                    job.serve("look_up", {}.__getitem__)
                    job.serve("never", never)
                    job.serve("fall", fall)
                    with pytest.raises(CommandError, match=r"^look_up of job j1 raised KeyError: 'x'$"):
                        await call(job.job_id, "look_up", ["x"], rts=file)
                    where = rf"tests/components/tasks/plain.py:{fall.__code__.co_firstlineno + 2}, in fall\)$"
                    with pytest.raises(CommandError, match=rf"ValueError: 2 is not welcome \(.*/{where}"):
                        await call(job.job_id, "fall", ["2"], rts=file)
                    with pytest.raises(RemoteError, match="does not serve 'y'; it serves fall, look_up"):
                        await call(job.job_id, "y", rts=file)
                    nursery.start_soon(call_until_lost, job.job_id)
                    await asked.wait()
                    scope.cancel()
    assert len(lost) == 1
