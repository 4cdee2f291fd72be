"""What a task sees of the resources of its co-allocated grant."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator

import pytest

from gspc_trio.compute.loop import together
from gspc_trio.core.held import (
    cpus_here,
    describe_held,
    gpus_here,
    held_environment,
    held_resources,
    hold,
)
from gspc_trio.core.resources import Resource

GANG = describe_held(
    [
        (Resource("r2.core1", "core", cpus=(1, 9)), "far.example"),
        (Resource("r1.core0", "core", cpus=(0,)), "near"),
        (Resource("r2.socket0", "socket", cpus=(2, 3), gpus=(1,)), "far.example"),
    ]
)


@pytest.fixture(autouse=True)
def nothing_held() -> Iterator[None]:
    hold(())
    yield
    hold(())


def test_a_task_sees_ids_and_hosts_in_order() -> None:
    hold(GANG)
    assert held_resources() == (
        ("r2.core1", "far.example"),
        ("r1.core0", "near"),
        ("r2.socket0", "far.example"),
    )
    assert held_environment() == {
        "GSPC_RESOURCES": "r2.core1@far.example,r1.core0@near,r2.socket0@far.example",
        "CUDA_VISIBLE_DEVICES": "1",
    }


def test_what_counts_is_what_is_on_the_host_of_the_first() -> None:
    assert cpus_here(GANG) == {1, 2, 3, 9}
    assert gpus_here(GANG) == {1}
    assert cpus_here(GANG[1:]) == {0}
    assert gpus_here(GANG[1:]) == set()


def test_one_that_stands_for_no_cpus_leaves_the_task_where_it_is() -> None:
    gpu = describe_held([(Resource("r2.gpu0", "gpu", gpus=(0,)), "far.example")])
    assert cpus_here((*GANG, *gpu)) == set()
    assert gpus_here((*GANG, *gpu)) == {0, 1}


def test_a_task_of_one_resource_sees_none() -> None:
    assert held_resources() == ()
    assert held_environment() == {}


def test_tasks_in_other_threads_hold_their_own() -> None:
    hold(GANG)
    seen = []
    thread = threading.Thread(target=lambda: seen.append(held_resources()))
    thread.start()
    thread.join()
    assert seen == [()]


def test_a_task_runs_on_all_its_cpus_and_the_next_one_as_before() -> None:
    allowed = sorted(os.sched_getaffinity(0))
    resources = [(Resource(f"r1.core{cpu}", "core", cpus=(cpu,)), "here") for cpu in allowed[:2]]
    os.sched_setaffinity(0, allowed[:1])
    try:
        with together(describe_held(resources)):
            assert os.sched_getaffinity(0) == set(allowed[:2])
            assert len(held_resources()) == len(resources)
        assert os.sched_getaffinity(0) == set(allowed[:1])
        assert held_resources() == ()
    finally:
        os.sched_setaffinity(0, allowed)


def test_cpus_that_are_not_there_change_nothing() -> None:
    before = os.sched_getaffinity(0)
    with together(describe_held([(Resource("r1.core0", "core", cpus=(100_000,)), "here")])):
        assert os.sched_getaffinity(0) == before
