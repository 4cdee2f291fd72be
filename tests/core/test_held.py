"""What a task sees of the resources of its co-allocated grant."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest

from gspc_trio.core.held import describe_held, held_environment, held_resources, hold


@pytest.fixture(autouse=True)
def nothing_held() -> Iterator[None]:
    hold(())
    yield
    hold(())


def test_a_task_sees_ids_and_hosts_in_order() -> None:
    hold(describe_held([("r2.core1", "far.example"), ("r1.core0", "near")]))
    assert held_resources() == (("r2.core1", "far.example"), ("r1.core0", "near"))
    assert held_environment() == {"GSPC_RESOURCES": "r2.core1@far.example,r1.core0@near"}


def test_a_task_of_one_resource_sees_none() -> None:
    assert held_resources() == ()
    assert held_environment() == {}


def test_tasks_in_other_threads_hold_their_own() -> None:
    hold(("r1.core0@here",))
    seen = []
    thread = threading.Thread(target=lambda: seen.append(held_resources()))
    thread.start()
    thread.join()
    assert seen == [()]
