"""Real traces run, are recorded, and give their own graph."""

from __future__ import annotations

from pathlib import Path

import pytest

from gspc_trio import open_job, open_rts
from gspc_trio.records.lines import read_records
from gspc_trio.workflow.formats.format import ReadOptions, Source, Surroundings
from gspc_trio.workflow.formats.wfformat.read import read_trace
from gspc_trio.workflow.formats.wfformat.running import running_trace
from gspc_trio.workflow.formats.wfformat.trace import Trace
from gspc_trio.workflow.formats.wfformat.write import trace_of_records, write_trace

DATA = Path(__file__).parents[5] / "shared" / "data" / "wfinstances"


def iso_time(at_s: float) -> str:
    return f"{at_s:g} s"


def graph(trace: Trace) -> dict[str, set[str]]:
    return {task_id: set(task.parents) for task_id, task in trace.tasks.items()}


async def test_a_recorded_run_of_a_trace_has_its_graph(tmp_path: Path) -> None:
    files = sorted(DATA.glob("*.json"))
    if not files:
        pytest.skip(f"there are no traces in {DATA}")
    async with open_rts(cores=2) as rts:
        for number, path in enumerate(files):
            source = Source(path.name, path.read_bytes())
            trace = read_trace(source)
            net = running_trace(trace, source, ReadOptions(scale=1e-5)).net
            records = tmp_path / f"{number}.jsonl"
            async with open_job(net, rts=rts, records_path=records) as job:
                await job.wait()
            recorded = trace_of_records(
                read_records(records.read_bytes().splitlines(keepends=True)),
                Surroundings(lambda _: None, iso_time),
            )
            again = read_trace(Source("again.json", write_trace(recorded.trace).encode()))
            assert graph(again) == graph(trace)
            assert recorded.lost == ()
