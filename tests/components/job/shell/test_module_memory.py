"""Modules of xpnet copy ranges of a memory layer: the example, in processes of their own."""

from __future__ import annotations

from pathlib import Path

import pytest

from gspc_trio.components.embed import open_rts
from gspc_trio.components.embedded_job import open_job
from gspc_trio.components.job.shell.workflow_file import load_workflow_file
from gspc_trio.iml.shell.layer import open_iml

EXAMPLE = Path(__file__).parents[4] / "examples" / "xpnet" / "upper.xpnet"

pytestmark = pytest.mark.process


async def test_ranges_of_published_data_are_fetched_and_stored() -> None:
    text = b"so it goes, all of it" * 1000
    ranges = f'Struct [handle := Struct [name := "{{}}"], offset := 0UL, size := {len(text)}UL]'
    told = [f"text={ranges.format('text')}", f"target={ranges.format('capitals')}", "block=8192UL"]
    workflow = load_workflow_file(EXAMPLE, told).workflow
    async with open_rts(cores=1, data_bytes=1 << 24) as rts, open_iml(layer=rts.data) as iml:
        await iml.alloc(len(text), text, name="text")
        capitals = await iml.alloc(len(text), name="capitals")
        async with open_job(workflow.net, rts=rts, values=workflow.values) as job:
            assert list((await job.wait()).outputs["letters"]) == [15_000]
        assert await iml.get(capitals) == text.upper()
