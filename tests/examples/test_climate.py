"""Two programs, "climate.py", on two run-time systems, which exchange data after their barrier (COA-2)."""

from __future__ import annotations

from pathlib import Path

import pytest
import trio

from gspc_trio import open_coallocation, open_rts

ROOT = Path(__file__).parents[2]


async def test_two_programs_of_two_run_time_systems_exchange_data(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    request = (ROOT / "examples" / "climate.xml").read_text()
    with trio.fail_after(60):
        async with open_rts(cores=1) as ocean, open_rts(cores=1) as air:
            async with open_coallocation(request, rts={"ocean": ocean, "air": air}) as running:
                ends = await running.wait()
    assert [(str(end.state), end.output.splitlines()) for end in ends] == [
        ("finished", ["ocean: 15 degrees after 5 steps", "air: 15 degrees after 5 steps"]),
        ("finished", ["the climate is known"]),
    ]
