"""Options of tasks."""

from __future__ import annotations

import pytest

from gspc_trio.core.task import TaskOptions


@pytest.mark.parametrize("name", ["memory_bytes", "output_bytes"])
def test_a_negative_size_is_refused_where_it_is_stated(name: str) -> None:
    with pytest.raises(ValueError, match=f"{name} must be at least 0, not -1"):
        TaskOptions(**{name: -1})
