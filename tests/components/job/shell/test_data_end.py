"""What asks the memory layer for a job ends before the job's connection to the layer does."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
import trio
from msgspec.structs import replace

from gspc_trio.components.embed import open_rts
from gspc_trio.components.job.shell.data import open_job_data
from gspc_trio.protocol.values import TrackedReference

pytestmark = pytest.mark.process

HANG_S = 60.0


@pytest.mark.parametrize("fails", [False, True])
async def test_what_makes_lost_data_again_ends_before_the_connection_to_the_layer(fails: bool) -> None:
    was_over: list[bool] = []
    with trio.fail_after(HANG_S):
        async with open_rts(cores=1, host="a", data_bytes=1 << 24) as rts:
            assert rts.data is not None
            layer = replace(rts.data, job="job")
            try:
                async with open_job_data(layer, "a", lambda *_: None, 1 << 20) as data:
                    begun = trio.Event()

                    async def put_again(_: str, __: Sequence[memoryview]) -> None:
                        begun.set()
                        try:
                            await trio.sleep_forever()
                        finally:
                            was_over.append(data.iml.is_over)

                    data.recovery.put_again = put_again
                    value = await trio.to_thread.run_sync(data.encode, bytes(1 << 20))
                    assert isinstance(value, TrackedReference)
                    await data.iml.free(value.reference.data_id)
                    data.recovery.lost((value.reference.data_id,))
                    await begun.wait()
                    if fails:
                        raise ValueError("the job failed")
            except* ValueError:
                assert fails
    assert was_over == [False]
