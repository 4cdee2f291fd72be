"""Preferences by the cost of moving data (SCH-8)."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from gspc_trio.core.task import CORE, Requirement, Shape, Task, TaskVariant, TaskVariants
from gspc_trio.policies.transfer import Bandwidths, TransferCost, cheapest_hosts, cost_s

TOPS = {"a": ["r1.node"], "b": ["r2.node"], "c": ["r3.node"]}


class Places:
    """Where the data of tasks lies: by task id."""

    def __init__(self, **places: dict[str, int]) -> None:
        self.places = places

    def places_of(self, task: Task) -> Mapping[str, int]:
        return self.places.get(f"t{task.task_id}", {})

    def bytes_of(self, task: Task) -> int:
        return sum(self.places_of(task).values())


def shape_of(places: dict[str, int], task: Task | None = None, **settings: object) -> Shape:
    policy = TransferCost(data=Places(t1=places), tops=dict(TOPS), **settings)  # type: ignore[arg-type]
    return policy.shape_of(task or Task(1, "t", 1))


def test_the_cost_is_what_the_rest_takes_to_come() -> None:
    def bandwidth(source: str, target: str) -> float:
        return {("a", "b"): 10.0, ("b", "a"): 5.0}.get((source, target), 1e9)

    assert cost_s({"a": 100, "b": 10}, "a", bandwidth) == 2.0
    assert cost_s({"a": 100, "b": 10}, "b", bandwidth) == 10.0
    assert cost_s({"a": 100}, "a", bandwidth) == 0.0
    assert cheapest_hosts({"a": 100, "b": 10}, bandwidth) == ["a", "b"]
    assert cheapest_hosts({"a": 20, "b": 20}, bandwidth) == ["b", "a"]


def test_bandwidths_are_measured_and_not_assumed() -> None:
    bandwidths = Bandwidths()
    assert bandwidths.of("a", "b") == bandwidths.of("b", "a") == 1.0  # the bytes alone count
    bandwidths.note("a", "b", 1_000_000, 0.01)
    assert bandwidths.of("a", "b") == 1e8
    assert bandwidths.of("a", "c") == 1e8  # as far as is known
    bandwidths.note("a", "b", 2_000_000, 0.01)
    assert bandwidths.of("a", "b") == pytest.approx(1.3e8)
    bandwidths.note("c", "b", 1_000_000, 0.1)
    assert bandwidths.of("c", "a") == 1e7
    assert bandwidths.of("b", "a") == pytest.approx((1.3e8 + 1e7) / 2)
    for source, target, size_bytes, seconds in [
        ("a", "b", 10, 1.0),
        ("a", "b", 10**6, 0.0),
        ("a", "a", 10**6, 9.0),
    ]:
        bandwidths.note(source, target, size_bytes, seconds)  # too short, no time, no transfer
    assert bandwidths.dump() == {"a -> b": pytest.approx(1.3e8), "c -> b": 1e7}


def test_a_slow_way_changes_the_order() -> None:
    bandwidths = Bandwidths()
    assert cheapest_hosts({"a": 20, "b": 10}, bandwidths.of) == ["a", "b"]
    bandwidths.note("a", "b", 1_000_000, 0.001)
    bandwidths.note("b", "a", 1_000_000, 1.0)
    assert cheapest_hosts({"a": 20, "b": 10}, bandwidths.of) == ["b", "a"]


def test_hosts_that_hold_data_are_preferred_by_cost() -> None:
    assert shape_of({"b": 10, "c": 100}).requirements == (Requirement("core", ("r3.node", "r2.node")),)


def test_a_task_without_data_or_with_its_own_preferences_is_left_as_it_is() -> None:
    assert shape_of({}) == CORE
    own = Task(1, "t", 1, shape=Shape((Requirement("core", ("r1.core0",)),)))
    assert shape_of({"b": 10}, own) == own.shape


def test_only_the_first_resource_of_several_is_preferred() -> None:
    task = Task(1, "t", 1, shape=Shape((Requirement("core"), Requirement("gpu"))))
    assert shape_of({"a": 1}, task).requirements == (Requirement("core", ("r1.node",)), Requirement("gpu"))


def test_it_says_whether_all_hosts_can_hold_the_data_of_a_task() -> None:
    places, task = Places(t1={"a": 10, "b": 10}), Task(1, "t", 1)
    sizes = ({}, {"a": 20, "b": 20, "c": 20}, {"c": 19}, {"elsewhere": 1})
    found = [
        TransferCost(data=places, tops=dict(TOPS), memory_bytes=it).fits_everywhere(task) for it in sizes
    ]
    assert found == [True, True, False, True]


def test_a_host_whose_memory_cannot_hold_the_data_is_never_taken() -> None:
    shape = shape_of({"a": 60, "b": 50}, memory_bytes={"a": 100, "b": 200})
    assert shape.requirements == (Requirement("core", ("r2.node", "r3.node"), hard=True),)
    nowhere = shape_of({"a": 60}, memory_bytes=dict.fromkeys("abc", 10))
    assert nowhere.requirements == (Requirement("core", (), hard=True),)


def test_each_variant_costs_what_it_takes_to_bring_the_data_to_its_class() -> None:
    """As long as nothing was measured a usual network is taken; a class that is nowhere costs nothing."""
    ways = tuple(TaskVariant(name, 1, Shape((Requirement(name),))) for name in ("core", "gpu", "fpga"))
    policy = TransferCost(data=Places(t1={"a": 5_000_000_000}), tops=dict(TOPS))
    policy.classes = {"a": {"r1.core0": "core"}, "b": {"r2.core0": "core", "r2.gpu0": "gpu"}}
    variants = policy.variants_of(Task(1, "t", 1, variants=TaskVariants(ways, in_order=True)))
    assert variants is not None
    assert variants.in_order
    assert [way.transfer_s for way in variants.ways] == [0.0, 5.0, 0.0]
    assert [way.shape.requirements[0].preferences for way in variants.ways] == [("r1.node",)] * 3
    assert policy.variants_of(Task(1, "t", 1)) is None
    without_data = Task(2, "t", 1, variants=TaskVariants(ways))
    assert policy.variants_of(without_data) == TaskVariants(ways)
    for number in range(100):
        policy.note_resource(f"h{number}", f"h{number}.fpga0", "fpga")
    policy.data = Places(t1={"a": 2_000_000_000})
    told = policy.variants_of(Task(1, "t", 1, variants=TaskVariants(ways)))
    assert told is not None
    assert [way.transfer_s for way in told.ways] == [0.0, 2.0, 2.0]
    policy.forget_resources({f"h{number}.fpga0" for number in range(100)})
    told = policy.variants_of(Task(1, "t", 1, variants=TaskVariants(ways)))
    assert told is not None
    assert [way.transfer_s for way in told.ways] == [0.0, 2.0, 0.0]
