"""What is refused of the settings of blocks, in one line each, and what follows from those that are not."""

from __future__ import annotations

import math
import re
from pathlib import Path

import pytest
from attrs import fields

from gspc_trio.components.provision.block_settings import BadBlockSettings, BlockSettings
from gspc_trio.components.provision.site_settings import USUAL_BLOCKS
from gspc_trio.components.provision.strategy import parse_time

USUAL = {"max_time_s": 3600.0, "max_nodes": 4, "cores_per_node": 16}


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"node_granularity": 5}, "node_granularity 5 is more than max_nodes 4"),
        ({"spread": 1.1}, "spread is to be at most 1, not 1.1"),
        ({"spread": -0.1}, "spread is to be 0 or more, not -0.1"),
        (
            {"exponential_spread": 1.0},
            "exponential_spread is the ratio of a block to the one before: above 1, or 0 for the linear "
            "spread, not 1",
        ),
        ({"allocation_step": 0.0}, "allocation_step is to be above 0, not 0"),
        ({"parallelism": 2.0}, "parallelism is to be at most 1, not 2"),
        ({"slots": 0}, "slots is to be 1 or more, not 0"),
        ({"slots": 2.5}, "nodes, cores and slots are whole numbers, not 2.5"),
        ({"overallocation_decay": math.nan}, "overallocation_decay is to be a number, not nan"),
        ({"max_time_s": math.inf}, "max_time_s is to be a number, not inf"),
        ({"max_time_s": 60.0}, "nothing is left of max_time_s 60 without reserve_s 60"),
        (
            {"max_time_s": 119.0, "time_unit_s": 60.0},
            "nothing is left of max_time_s 119 without reserve_s 60 in units of 60 s",
        ),
    ],
)
def test_what_has_no_meaning_is_refused_in_one_line(given: dict[str, float], words: str) -> None:
    with pytest.raises(BadBlockSettings) as raised:
        BlockSettings(**(USUAL | given))
    assert str(raised.value) == words


def test_what_is_left_for_tasks_and_the_widest_block() -> None:
    settings = BlockSettings(3630, 5, 16, node_granularity=2, time_unit_s=60)
    assert (settings.usable_s, settings.nodes_max, settings.cores_max) == (3540, 4, 64)


def test_the_table_in_the_docs_has_every_setting_with_its_default() -> None:
    page = (Path(__file__).parents[3] / "docs" / "sites.md").read_text(encoding="utf-8")
    told = dict(re.findall(r"^\| `(\w+)` \| `?(\S+?)`? \|", page, re.MULTILINE))
    used = {one.name: getattr(USUAL_BLOCKS, one.name) for one in fields(BlockSettings)}
    del used["time_unit_s"]  # of the batch system, not of the user
    expected = {name.removesuffix("_s"): value for name, value in used.items()}
    assert {name: parse_time(told[name]) for name in expected} == expected
