"""Preferences by the cost of moving data (SCH-8)."""

from __future__ import annotations

from collections.abc import Mapping

from gspc_trio.core.task import CORE, Requirement, Shape, Task
from gspc_trio.policies.transfer import TransferCost, cheapest_hosts, cost_s

TOPS = {"a": ["r1.node"], "b": ["r2.node"], "c": ["r3.node"]}


class Places:
    """Where the data of tasks lies: by task id."""

    def __init__(self, **places: dict[str, int]) -> None:
        self.places = places

    def places_of(self, task: Task) -> Mapping[str, int]:
        return self.places.get(f"t{task.task_id}", {})


def shape_of(places: dict[str, int], task: Task | None = None, **settings: object) -> Shape:
    policy = TransferCost(data=Places(t1=places), tops=dict(TOPS), **settings)  # type: ignore[arg-type]
    return policy.shape_of(task or Task(1, "t", 1))


def test_the_cost_is_what_the_rest_takes_to_come() -> None:
    def bandwidth(source: str, target: str) -> float:
        return {("a", "b"): 10.0, ("b", "a"): 5.0}.get((source, target), 0.0)

    assert cost_s({"a": 100, "b": 10}, "a", bandwidth) == 2.0
    assert cost_s({"a": 100, "b": 10}, "b", bandwidth) == 10.0
    assert cost_s({"a": 100}, "a", bandwidth) == 0.0
    assert cheapest_hosts({"a": 100, "b": 10}, bandwidth) == ["a", "b"]
    assert cheapest_hosts({"a": 20, "b": 20}, bandwidth) == ["b", "a"]


def test_hosts_that_hold_data_are_preferred_by_cost() -> None:
    assert shape_of({"b": 10, "c": 100}).requirements == (Requirement("core", ("r3.node", "r2.node")),)


def test_a_task_without_data_or_with_its_own_preferences_is_left_as_it_is() -> None:
    assert shape_of({}) == CORE
    own = Task(1, "t", 1, shape=Shape((Requirement("core", ("r1.core0",)),)))
    assert shape_of({"b": 10}, own) == own.shape


def test_only_the_first_resource_of_several_is_preferred() -> None:
    task = Task(1, "t", 1, shape=Shape((Requirement("core"), Requirement("gpu"))))
    assert shape_of({"a": 1}, task).requirements == (Requirement("core", ("r1.node",)), Requirement("gpu"))


def test_a_host_whose_memory_cannot_hold_the_data_is_never_taken() -> None:
    shape = shape_of({"a": 60, "b": 50}, memory_bytes={"a": 100, "b": 200})
    assert shape.requirements == (Requirement("core", ("r2.node", "r3.node"), hard=True),)
    nowhere = shape_of({"a": 60}, memory_bytes=dict.fromkeys("abc", 10))
    assert nowhere.requirements == (Requirement("core", (), hard=True),)
