"""Which jobs of nets may have ranges of tokens as tasks, and how they begin."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from gspc_trio.components.job.engine_wrapper import Engine
from gspc_trio.components.job.machine import JobMachine
from gspc_trio.components.job.ranged import RangedJobMachine, RangeTasks
from gspc_trio.components.job.shell.settings import JobSettings
from gspc_trio.compute.code import code_of_items
from gspc_trio.workflow.bulk.token_ranges import TokenRanges
from gspc_trio.workflow.engine import WorkflowEngine


def machine_for(
    engine: Engine, code: Callable[[int], bytes], settings: JobSettings
) -> tuple[Callable[..., JobMachine], Callable[[int], bytes]]:
    """Return what makes the machine of a job, and its code table.

    Its tokens are taken in ranges where that makes no difference; an engine that is wrapped has others that
    look at each task.

    Args:
        engine: of the job, which has not begun.
        code: returns an entry of the code table, encoded.
        settings: of the job.
    """
    if type(engine) is not WorkflowEngine or not settings.may_have_ranges:
        return JobMachine, code
    encoded: dict[int, bytes] = {}
    codes: dict[str, int] = {}

    def find_code(name: str) -> bool:
        """Give what calls the function of a transition with each of many values a number."""
        number = len(engine.code_table) + len(encoded)
        of_items = code_of_items(code(engine.plan.code_ids[name]))
        if of_items is None:
            return False
        encoded[number], codes[name] = of_items, number
        return True

    ranges = TokenRanges(engine, find_code)
    if not ranges.transitions:
        return JobMachine, code
    engine.ranges = ranges
    return partial(
        RangedJobMachine, ranges=RangeTasks(engine, codes)
    ), lambda number: encoded.get(number) or code(number)
