"""What has to run again for data that was lost."""

from __future__ import annotations

import pytest

from gspc_trio.components.job.lineage import Forgotten, Lineage, Origin, ancestors, plan
from gspc_trio.core.task import Task, TaskOptions


def make(lineage: Lineage, number: int, *given: tuple[str, Origin | None], may_rerun: bool = True) -> Origin:
    task = Task(number, "t", 1, (b"x" * 10,), options=TaskOptions(may_rerun=may_rerun))
    return lineage.origin(task, (f"d{number}",), dict(given))


def numbers(origins: list[Origin]) -> list[int]:
    return [origin.task.task_id for origin in origins if origin.task is not None]


def test_only_what_is_not_there_is_made_again_and_parents_first() -> None:
    lineage = Lineage()
    one, two = make(lineage, 1), make(lineage, 2)
    three = make(lineage, 3, ("d1", one), ("d2", two))
    four = make(lineage, 4, ("d3", three), ("d1", one))
    assert ancestors([four]) == ["d3", "d1", "d2"]
    assert numbers(plan({"d4": four}, {"d1", "d3"})) == [4]
    assert numbers(plan({"d4": four}, {"d1", "d2"})) == [3, 4]
    order = numbers(plan({"d4": four, "d2": two}, set()))
    assert sorted(order) == [1, 2, 3, 4]
    assert order.index(3) > max(order.index(1), order.index(2))
    assert order[-1] == 4


def test_what_nobody_remembers_is_named() -> None:
    lineage = Lineage()
    one = make(lineage, 1, ("d0", None))
    two = make(lineage, 2, ("d1", one))
    assert numbers(plan({"d2": two}, {"d1"})) == [2]
    with pytest.raises(Forgotten, match="data d0 cannot be made again"):
        plan({"d2": two}, set())
    with pytest.raises(Forgotten, match="data d3"):
        plan({"d3": make(lineage, 3, may_rerun=False)}, set())


def test_initial_values_are_put_again_before_what_is_made_of_them() -> None:
    lineage = Lineage(bytes_max=40)
    value = lineage.initial("d0", [memoryview(b"x" * 15), memoryview(b"y" * 5)])
    assert value is not None
    assert lineage.initial("d9", [memoryview(b"x" * 21)]) is None
    made = make(lineage, 1, ("d0", value))
    assert plan({"d1": made}, set()) == [value, made]
    assert plan({"d0": value}, set()) == [value]
    assert lineage.size_bytes == 30
    del value, made
    assert lineage.size_bytes == 0


def test_there_is_a_limit_and_what_is_forgotten_gives_its_room_back() -> None:
    lineage = Lineage(bytes_max=25)
    kept = [make(lineage, number) for number in (1, 2, 3)]
    assert lineage.size_bytes == 20
    assert [origin.task is not None for origin in kept] == [True, True, False]
    child = make(lineage, 4, ("d1", kept[0]))
    kept.clear()
    assert child.task is None
    assert lineage.size_bytes == 0
    again = make(lineage, 5)
    grandchild = make(lineage, 6, ("d5", again))
    del again
    assert lineage.size_bytes == 20
    del grandchild
    assert lineage.size_bytes == 0
