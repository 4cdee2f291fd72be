import math
from pathlib import Path

import pytest

from gspc_trio.components.monitor.io_frames import IO, HostIo, IoFrame, IoTold, checked_mode, rows_of
from gspc_trio.components.monitor.shell.store import Store, query
from gspc_trio.compute.io.area import Reading

NONE = (0, 0, 0, 0, 0, 0)


def test_sums_by_task_host_job_and_frame_agree(tmp_path: Path) -> None:
    store = Store(tmp_path, 1 << 24)
    total = 0
    for number, host in enumerate(("a", "b", "c")):
        io = HostIo()
        for step in range(20):
            tasks = tuple((step * 3 + one, 1) for one in range(step % 3 + 1))
            grown = (step + number, 0, 1000 + 7 * step, 0, 0, 0)
            total += grown[2]
            io.told(
                f"j{step % 2}", f"{host}.core0", Reading(tasks, grown, NONE, (), 1, -1), 1000.0 + 2 * step
            )
            store.write({IO.name: rows_of(host, IoTold(io.close(1000.0 + 2 * step)))})
        store.write({IO.name: rows_of(host, IoTold(io.close(math.inf)))})
    store.close()
    for key in ("task", "host", "job", "begin_s"):
        found = query(tmp_path, f"SELECT sum(s) FROM (SELECT sum(read_bytes) AS s FROM io GROUP BY {key})")
        assert found.rows == [(total,)]
    assert query(tmp_path, "SELECT count(DISTINCT begin_s % 5), max(covered_s) <= 5 FROM io").rows == [(1, 1)]


@pytest.mark.parametrize(
    ("begin_s", "covered_s", "amounts"),
    [
        (1000, 1.0, {"unheard_of": 1}),
        (1000, 1.0, {"read_bytes": 1 << 63}),
        (-5, 1.0, {}),
        (1000, math.nan, {}),
        (1000, 6.0, {}),
    ],
)
def test_what_no_host_can_have_told_is_refused(
    begin_s: int, covered_s: float, amounts: dict[str, int]
) -> None:
    frame = IoFrame(begin_s, "j", "a.core0", 1, 1, covered_s, amounts)
    with pytest.raises(ValueError, match="no task of a has read or written so"):
        rows_of("a", IoTold((frame,)))


def test_an_unknown_mode_is_named() -> None:
    assert checked_mode("calls") == "calls"
    with pytest.raises(ValueError, match="io=cals: there are off, counts, calls"):
        checked_mode("cals")
