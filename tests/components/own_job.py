"""A task that runs a job on its own run-time system, as a trio program does."""

from __future__ import annotations

import trio

from gspc_trio import farm, open_job, open_rts
from tests.components.tasks.plain import double


def double_in_a_job(numbers: list[int], file: str) -> list[object]:
    async def main() -> list[object]:
        async with (
            open_rts(connection_file=file) as rts,
            open_job(farm(double, ordered=True), rts=rts, values={"items": numbers}) as job,
        ):
            return list((await job.wait()).outputs["results"])

    return trio.run(main)
