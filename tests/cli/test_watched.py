"""What people are told while hosts are started by hand."""

from __future__ import annotations

from types import SimpleNamespace
from typing import cast

import pytest
import trio
from trio.testing import MockClock

from gspc_trio.cli.waiting import watched
from gspc_trio.components.rts.shell.client import RunTimeSystem


class Starting:
    """A run-time system whose hosts wait for something else each time it is asked."""

    def __init__(self, *details: str) -> None:
        self._details = iter(details)

    async def status(self) -> object:
        detail = next(self._details, "slurm job 17 is running")
        hosts = {"b.0": "starting", "b.1": "starting", "other": "starting", "up": "up"}
        return SimpleNamespace(
            rifs=[SimpleNamespace(host=host, state=state, detail=detail) for host, state in hosts.items()]
        )


async def test_each_new_reason_is_told_once_by_host_or_block(
    capsys: pytest.CaptureFixture[str], autojump_clock: MockClock
):
    del autojump_clock
    rts = Starting("", "slurm job 17 is queued: Priority", "slurm job 17 is queued: Priority")
    async with watched(cast(RunTimeSystem, rts), ["b", "up"]):
        await trio.sleep(10)
    told = capsys.readouterr()
    assert told.err.splitlines() == ["b: slurm job 17 is queued: Priority", "b: slurm job 17 is running"]
    assert told.out == ""


async def test_an_error_comes_as_it_is(autojump_clock: MockClock):
    del autojump_clock
    with pytest.raises(ValueError, match="no"):
        async with watched(cast(RunTimeSystem, Starting()), ["b"]):
            raise ValueError("no")
