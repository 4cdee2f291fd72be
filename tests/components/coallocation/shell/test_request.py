"""Requests with real programs on an embedded run-time system."""

from __future__ import annotations

from pathlib import Path

import pytest
import trio
import trio.lowlevel

from gspc_trio import RslError, open_coallocation, open_resources, open_rts
from gspc_trio.components.coallocation.shell.request import CoJobEnd

HANG_S = 60.0


def says(*words: str, **options: object) -> dict[str, object]:
    return {"executable": "sh", "arguments": ["-c", " ".join(words)], **options}


async def test_programs_run_in_order_together_and_failures_reach_those_that_wait(tmp_path: Path) -> None:
    meet = "touch $GSPC_PART; while [ ! -e $((1 - GSPC_PART)) ]; do sleep 0.01; done; echo $GSPC_PART"
    jobs = {
        "pair": "+(half)(half)",
        "half": says(meet, directory=str(tmp_path)),
        "one": says("echo one >> log; echo one", directory=str(tmp_path)),
        "two": says("echo two >> log", directory=str(tmp_path)),
        "bad": says("echo said; exit 3", attempts=2),
        "wide": says("echo wide", count=[9, 1]),
        "many": says("true", count=9, barrier_timeout=5),
        "late": says("sleep 60", max_time=0.2),
        "far": says("true", contact="nowhere"),
    }
    told: list[int] = []
    text = "*(pair)(*(*(one))(two))(*(bad)(*(wide))(many))(*(late))(*(far))"
    with trio.fail_after(HANG_S):
        async with open_rts(cores=2) as rts:
            async with open_coallocation(
                text, jobs=jobs, rts=[rts], on_change=lambda _, end: told.append(end.number)
            ) as request:
                ends = await request.wait()
                assert await request.cancel() == ends
            found = {end.name: (str(end.state), end.output) for end in ends}
            assert found == {
                "pair": ("not run", ""),
                "one": ("finished", "one\n"),
                "two": ("finished", ""),
                "bad": ("failed", "said\n"),
                "wide": ("finished", "wide\n"),
                "many": ("failed", ""),
                "late": ("failed", ""),
                "far": ("failed", ""),
            }
            assert sorted(told) == list(range(1, 9))
            assert (tmp_path / "log").read_text() == "one\ntwo\n"
            reasons = {end.name: end.reason for end in ends}
            assert "exit status 3" in reasons["bad"]
            assert "longer than max_time, 0.2 s" in reasons["late"]
            assert "there is no site or host nowhere" in reasons["far"]
            assert "which has failed" in reasons["pair"]
            async with open_coallocation("pair", jobs=jobs, rts=[rts]) as request:
                (end,) = await request.wait()
            assert (str(end.state), sorted(end.output.split())) == ("finished", ["0", "1"])
            assert (await rts.status()).classes["core"].free == 2


async def test_cancel_stops_what_runs_and_gives_all_back() -> None:
    jobs = {"long": says("sleep 3600"), "next": says("true")}
    with trio.fail_after(HANG_S):
        async with open_rts(cores=2) as rts:
            async with open_coallocation("*(*(long)(long))(next)", jobs=jobs, rts=[rts]) as request:
                await trio.lowlevel.checkpoint()
                ends: tuple[CoJobEnd, ...] = await request.cancel()
            assert [str(end.state) for end in ends] == ["cancelled"] * 3
            with pytest.raises(RslError, match="there is no job 'later'"):
                async with open_coallocation("later", jobs=jobs, rts=[rts]):
                    pass
            with pytest.raises(ValueError, match="on a run-time system at least"):
                async with open_coallocation("next", jobs=jobs, rts=[]):
                    pass
            async with open_resources(rts) as resources:
                await resources.acquire("core", "core")
