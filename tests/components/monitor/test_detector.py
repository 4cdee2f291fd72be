"""What is found in frames of hosts (ASP-9)."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gspc_trio.components.monitor.detector import KINDS, Detector, DetectorLimits, Finding, Switch
from gspc_trio.components.monitor.messages import NodeFrame
from gspc_trio.components.monitor.readings import LEVELS as ALL_LEVELS

GIB = 1 << 30
COUNTS = {
    "usable_busy_ms": 1000,
    "own_cpu_ms": 500,
    "page_faults": 100,
    "disk_read_bytes": 0,
    "disk_written_bytes": 50_000_000,
    "own_written_bytes": 49_000_000,
    "tcp_segments_sent": 1000,
}
LEVELS = {
    "memory_bytes": 16.0 * GIB,
    "own_memory_bytes": 1.0 * GIB,
    "unexplained_memory_bytes": 2.0 * GIB,
    "probe_arithmetic_us": 1000.0,
    "probe_cache_us": 60.0,
    "probe_memory_us": 1300.0,
    "probe_write_us": 3000.0,
    "probe_round_trip_us": 1000.0,
}

Change = Callable[[int], Mapping[str, float]]
"""Number of a frame since it begins -> what that shows instead."""

SERIES: dict[str, Change] = {
    "leak": lambda n: {"unexplained_memory_bytes": (2 + 0.02 * n) * GIB},
    "memeater": lambda n: {"unexplained_memory_bytes": (2 + 0.3 * min(n, 4)) * GIB},
    "dial": lambda _: {"usable_busy_ms": 6000},
    "ddot": lambda _: {"usable_busy_ms": 6000, "probe_cache_us": 100.0},
    "cpufreq": lambda _: {"probe_arithmetic_us": 1250.0},
    "pagefail": lambda _: {"allocation_failures": 3},
    "ioerr": lambda _: {"probe_io_errors": 1},
    "copy": lambda _: {"probe_write_us": 20_000.0, "disk_written_bytes": 900_000_000},
    "linklog": lambda _: {"probe_round_trip_us": 9000.0},
}
OTHERS: list[tuple[str, str, Change]] = [
    ("leak", "tasks", lambda n: {"own_memory_bytes": (1 + 0.05 * n) * GIB}),
    ("copy", "tasks", lambda _: {"probe_write_us": 20_000.0, "own_written_bytes": 50_000_000}),
    ("memeater", "host", lambda _: {"usable_busy_ms": 6000, "probe_memory_us": 2600.0, "page_faults": 900}),
    ("copy", "host", lambda _: {"disk_read_bytes": 600_000_000}),
    ("cpufreq", "host", lambda _: {"throttles": 4}),
    ("ioerr", "host", lambda _: {"disk_read_only": 1.0}),
    ("ioerr", "host", lambda _: {"task_io_errors": 2}),
    ("linklog", "host", lambda _: {"tcp_segments_sent_again": 30}),
]
QUIET: list[Change] = [
    lambda _: {"usable_busy_ms": 9000, "own_cpu_ms": 8500},  # tasks are at work
    lambda n: {"own_memory_bytes": (1 + n % 2) * GIB},  # tasks come and go
    lambda n: {"unexplained_memory_bytes": (2 + 0.02 * (n % 4)) * GIB},  # it is returned
    lambda _: {"probe_arithmetic_us": 1250.0, "usable_busy_ms": 9000, "own_cpu_ms": 8500},  # another base
    lambda _: {"disk_written_bytes": 900_000_000, "own_written_bytes": 880_000_000},  # tasks write much
    lambda _: {"probe_round_trip_us": 5900.0},  # not 5 ms more
    lambda _: {"probe_round_trip_us": 9000.0, "usable_busy_ms": 9000, "own_cpu_ms": 8500},  # a busy RIF
]


def frame(number: int, changes: Mapping[str, float] | None = None, covered_s: float = 5.0) -> NodeFrame:
    values = {**COUNTS, **LEVELS, **(changes or {})}
    counts = {name: int(value) for name, value in values.items() if name not in ALL_LEVELS}
    levels = {name: value for name, value in values.items() if name not in counts}
    return NodeFrame(5 * number, covered_s, counts, levels)


def found(change: Change, frames: int = 20, after: int = 12) -> list[Finding]:
    """Return what is found when clean frames are followed by some with an anomaly, and by clean ones."""
    detector = Detector()
    detector.joined("a", 2)
    shown = [frame(number) for number in range(30)]
    shown += [frame(30 + number, change(number)) for number in range(frames)]
    last = {name: value for name, value in change(frames - 1).items() if "memory_bytes" in name}
    shown += [frame(30 + frames + number, last) for number in range(after)]
    return [one for each in shown for one in detector.take("a", each)]


@pytest.mark.parametrize("kind", KINDS)
def test_each_class_is_found_alone_and_ends(kind: str) -> None:
    on, off = found(SERIES[kind])
    assert (on.kind, on.is_on, on.subject, off.kind, off.is_on) == (kind, True, "host", kind, False)
    frames = (on.at_s - 5 * 30) / 5
    assert frames <= {"leak": 14, "memeater": 8}.get(kind, 3)  # of 5 s; on.at_s is the end of one
    assert on.evidence


@pytest.mark.parametrize(("kind", "subject", "change"), OTHERS)
def test_other_signs_and_causes(kind: str, subject: str, change: Change) -> None:
    assert {(one.kind, one.subject) for one in found(change)} >= {(kind, subject)}
    if subject == "tasks":
        assert all(one.subject == "tasks" for one in found(change))


def test_what_eats_memory_fast_is_found_before_it_rests() -> None:
    def eaten(share: float) -> Change:
        return lambda n: {"unexplained_memory_bytes": (2 + 16 * share * min(n, 4)) * GIB}

    on = found(eaten(0.025))[0]
    assert (on.kind, on.is_on, (on.at_s - 5 * 30) / 5) == ("memeater", True, 4)
    assert not [one for one in found(eaten(0.012)) if one.kind == "memeater"], "a fast leak begins like this"


def test_a_leak_that_takes_more_in_some_frames_than_in_others_is_no_memeater() -> None:
    def leaked(n: int) -> Mapping[str, float]:  # 160 MiB each 2 s of 24 GiB, in a memory of 16 GiB
        return {"unexplained_memory_bytes": (2 + 16 * 0.00667 * (5 * n // 2)) * GIB}

    assert [one.kind for one in found(leaked) if one.is_on] == ["leak"]


def test_a_leak_that_ends_has_eaten_nothing() -> None:
    on = [one.kind for one in found(lambda n: {"unexplained_memory_bytes": (2 + 0.2 * n) * GIB}) if one.is_on]
    assert on == ["leak"]


def series(*parts: tuple[int, Mapping[str, float]]) -> list[tuple[str, bool]]:
    """Return what is found in so many frames of each kind, one after the other."""
    detector, number, shown = Detector(), 0, []
    detector.joined("a", 2)
    for frames, changes in parts:
        for _ in range(frames):
            shown += [(one.kind, one.is_on) for one in detector.take("a", frame(number, changes))]
            number += 1
    return shown


def test_where_the_frequency_is_told_nothing_else_is_a_slow_processor() -> None:
    work = {"usable_busy_ms": 9000, "own_cpu_ms": 8800}
    idle = {"frequency_mhz": 1000.0}
    fast, slow, turbo = ({"frequency_mhz": 2000.0, "busy_frequency_mhz": mhz} for mhz in (3000, 2100, 4200))
    assert series((10, idle), (10, fast | work), (10, slow | work))[:1] == [("cpufreq", True)]
    one = {"usable_busy_ms": 5100, "own_cpu_ms": 5000}
    assert series((10, idle), (10, fast | one), (10, slow | one))[:1] == [("cpufreq", True)], "of one CPU"
    assert series((10, fast), (10, idle)) == [], "it is low without work"
    assert series((10, turbo | one), (10, fast | work)) == [], "more of them that work are slower"
    assert series((10, fast | work), (10, slow | one))[:1] == [("cpufreq", True)], "fewer are not"
    assert series((10, fast), (10, fast | {"probe_arithmetic_us": 3000.0})) == [], (
        "a neighbour shares its core"
    )
    assert series((10, {}), (10, {"probe_arithmetic_us": 3000.0, "cpu_stolen_ms": 900})) == []


def test_load_that_comes_with_memory_moves_it() -> None:
    load, mib = {"usable_busy_ms": 6000}, 1 << 20
    more = {"unexplained_memory_bytes": 2.0 * GIB + 30 * mib}
    assert series((10, {}), (20, load | more))[:1] == [("ddot", True)]
    little = {"unexplained_memory_bytes": 2.0 * GIB + 10 * mib}
    assert series((10, {}), (20, load | little)) == [("dial", True)]


def test_what_tasks_have_written_is_theirs_when_the_kernel_stores_it_later() -> None:
    writes = {"own_written_bytes": 3_000_000_000, "disk_written_bytes": 0, "memory_dirty_bytes": 3e9}
    rests = {"own_written_bytes": 0, "disk_written_bytes": 0, "memory_dirty_bytes": 3e9}
    stores = {"own_written_bytes": 0, "disk_written_bytes": 1_000_000_000, "memory_dirty_bytes": 1.5e9}
    assert series((10, {}), (1, writes), (3, rests), (3, stores), (9, {})) == []
    assert series((10, {}), (1, writes), (3, rests), (6, stores))[:1] == [("copy", True)], "more than it was"
    removed = {"own_written_bytes": 0, "disk_written_bytes": 0, "memory_dirty_bytes": 0.0}
    assert series((10, {}), (1, writes), (3, removed), (3, stores))[:1] == [("copy", True)]


def test_one_error_is_chance_and_two_are_a_fault() -> None:
    once = {"probe_io_errors": 1}
    assert series((10, {}), (1, once), (5, {}), (1, once), (3, {})) == []
    assert series((10, {}), (1, once), (2, {}), (1, once))[-1:] == [("ioerr", True)]


def test_a_leak_is_urgent_once_when_little_memory_is_left() -> None:
    detector, told = Detector(), []
    detector.joined("a", 2)
    for n in range(40):
        levels = {
            "unexplained_memory_bytes": (2 + 0.4 * n) * GIB,
            "memory_available_bytes": (14 - 0.4 * n) * GIB,
        }
        told += detector.take("a", frame(n, levels))
    leaks = [(one.is_on, one.is_urgent) for one in told if one.kind == "leak"]
    assert leaks == [(True, False), (True, True)]
    assert [one.evidence for one in told if one.is_urgent] == ["10% of the memory is left"]


@pytest.mark.parametrize("change", QUIET)
def test_work_of_tasks_is_no_anomaly(change: Change) -> None:
    assert found(change) == []


def test_what_a_host_does_not_tell_is_no_anomaly() -> None:
    detector = Detector()
    detector.joined("a", 2)
    assert [one for number in range(40) for one in detector.take("a", NodeFrame(5 * number, 5.0))] == []
    assert detector.take("b", frame(1)) == []


def test_a_base_is_the_median_of_clean_frames_alone() -> None:
    detector = Detector()
    detector.joined("a", 2)
    slow = {"probe_arithmetic_us": 1250.0}
    series = [frame(number) for number in range(20)]
    series += [frame(20 + number, slow) for number in range(200)]  # for longer than the base lasts
    on = [one for each in series for one in detector.take("a", each)]
    assert [(one.kind, one.is_on) for one in on] == [("cpufreq", True)]
    assert [one for n in range(9) for one in detector.take("a", frame(220 + n, slow, covered_s=1.0))] == []


@settings(max_examples=60)
@given(st.lists(st.booleans(), max_size=40), st.integers(1, 5), st.integers(1, 7))
def test_it_is_on_and_off_as_a_naive_model_says(shown: list[bool], on_frames: int, off_frames: int) -> None:
    limits = DetectorLimits(on_of=on_frames + 1, on_frames=on_frames, off_frames=off_frames)
    switch, is_on = Switch(limits), False
    for number in range(1, len(shown) + 1):
        before, seen = is_on, shown[:number]
        if is_on:
            is_on = len(seen) < off_frames or any(seen[-off_frames:])
        else:
            is_on = sum(seen[-limits.on_of :]) >= on_frames
        assert switch.take(seen[-1]) == (is_on != before)
        assert switch.is_on == is_on
