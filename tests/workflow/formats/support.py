"""Files of foreign formats, as tests read and run them."""

from __future__ import annotations

import pytest

from gspc_trio.workflow.definition import Workflow
from gspc_trio.workflow.formats.format import Format, FormatError, ReadOptions, Source
from tests.workflow.support import Driver, engine_for


def problems_of(chosen: Format, text: str | bytes, options: ReadOptions | None = None) -> list[str]:
    """Return what is wrong with a file named ``f``, as the user sees it."""
    data = text.encode() if isinstance(text, str) else text
    with pytest.raises(FormatError) as caught:
        chosen.read(Source("f", data), options or ReadOptions())
    return str(caught.value).splitlines()


def run_to_end(workflow: Workflow) -> dict[str, list[object]]:
    """Run a workflow, its tasks right here, and return its outputs."""
    engine = engine_for(workflow.net, **workflow.values)
    return Driver(engine).run().engine.outputs()
