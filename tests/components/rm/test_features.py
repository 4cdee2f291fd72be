"""Features of hosts (ASP-6): who asks for some gets resources of a host that has them, and no others."""

from __future__ import annotations

import pytest

from gspc_trio.components.rm.events import Added, Coming, JobJoined, Removed
from gspc_trio.components.rm.messages import Refuse
from gspc_trio.core.resources import Resource, checked_feature, parse_features, with_features
from gspc_trio.core.task import Requirement, Shape
from tests.components.rm.support import Driver, any_of

FAST = Shape((Requirement(features=("avx",)),))
FAST_AND_BIG = Shape((Requirement(features=("avx", "big")),))


def host(name: str, *features: str, cores: int = 2, memory_bytes: int = 0) -> tuple[Resource, ...]:
    node = Resource(f"{name}.node", "node", memory_bytes=memory_bytes, features=features)
    return node, *(Resource(f"{name}.core{i}", "core", (node.resource_id,)) for i in range(cores))


def test_a_task_goes_only_where_the_features_are() -> None:
    driver = Driver(*host("r1"), *host("r2", "avx"), *host("r3", "avx", "big"))
    driver.demand("a", 4, FAST)
    assert {name[:2] for names in driver.granted("a") for name in names} == {"r2", "r3"}
    driver.demand("a", 1, FAST)
    (entry,) = driver.rm.explain("a")
    assert entry.reason == "no core is free on a host with avx"
    assert entry.lacks == {"r1": ("avx",)}
    assert {one.resources[0][:2] for one in entry.held_by} == {"r2", "r3"}
    assert driver.take("b") == ("r1.core0",)


def test_what_comes_free_there_goes_to_who_waits_for_it() -> None:
    driver = Driver(*host("r1"), *host("r2", "avx", cores=1))
    driver.take("b", any_of("core", "r2.node", hard=True))
    driver.demand("a", 1, FAST)
    driver.release("b")
    assert driver.granted("a") == [("r2.core0",)]


@pytest.mark.parametrize(
    ("requirements", "memory_bytes", "found"),
    [
        ((Requirement(features=("avx",)), Requirement()), 0, {"r2", "r1"}),
        ((Requirement(), Requirement(features=("avx",))), 0, {"r2", "r1"}),
        ((Requirement(features=("avx",)),), 60, {"r2"}),
        ((Requirement("core", ("r1.node",), features=("avx",)),), 0, {"r2"}),
        ((Requirement("core", ("r1.node", "r2.core0"), hard=True, features=("avx",)),), 0, {"r2"}),
        ((Requirement(features=("big",)), Requirement(features=("avx",))), 0, {"r1", "r2"}),
    ],
)
def test_features_beside_everything_else(
    requirements: tuple[Requirement, ...], memory_bytes: int, found: set[str]
) -> None:
    driver = Driver(
        *host("r1", "big", cores=1, memory_bytes=100), *host("r2", "avx", cores=1, memory_bytes=100)
    )
    names = driver.take("a", Shape(requirements, memory_bytes=memory_bytes))
    assert names is not None
    assert {name[:2] for name in names} == found


def refusal(driver: Driver, shape: Shape) -> tuple[str, str]:
    refused = [one for one in driver.demand("a", 1, shape) if isinstance(one, Refuse)]
    return (refused[0].kind, refused[0].reason) if refused else ("", "")


def test_what_no_host_has_is_refused_at_once_and_says_what_there_is() -> None:
    driver = Driver(*host("r1", "avx", "ssd"), *host("r2", "big"))
    nowhere = Shape((Requirement(features=("avx2",)),))
    assert refusal(driver, nowhere) == (
        "unknown feature",
        "asked for core with avx2, but no host has avx2 (did you mean 'avx'?); "
        "features that hosts have: avx, big, ssd",
    )
    assert refusal(driver, FAST_AND_BIG) == (
        "unknown feature",
        "asked for core with avx and big, but no host has all of it: r1 has no big, r2 has no avx",
    )
    many = Driver(
        *host("r1", "ssd", *(f"flag{one:02}" for one in range(30))),
        *host("r2", *(f"flag{one:02}" for one in range(30))),
    )
    told = refusal(many, nowhere)[1].partition("; ")[2]
    assert told.startswith("features that hosts have: ssd, flag00, flag01, ")
    assert told.endswith("flag18 and 11 more")
    on_gpu = Shape((Requirement("gpu", features=("avx",)),))
    driver.send(Added((*host("r3"), Resource("r3.gpu0", "gpu", ("r3.node",)))))
    assert refusal(driver, on_gpu)[1].endswith("r1 has no gpu, r2 has no avx, r3 has no avx")
    there = Shape((Requirement("core", ("r2.node",), hard=True, features=("avx",)),))
    assert refusal(driver, there) == (
        "unknown resource",
        "asked for core (only r2.node) with avx, but r2.node is not there, or has no core with avx",
    )
    together = Shape((Requirement(features=("avx",)), Requirement(features=("big",))), same_host=True)
    assert refusal(driver, together)[0] == "impossible"


def test_a_host_on_its_way_may_bring_a_feature() -> None:
    driver = Driver(*host("r1"))
    driver.send(Coming("r2", host("r2", "avx")))
    assert refusal(driver, FAST) == ("", "")
    assert refusal(driver, FAST_AND_BIG)[0] == "unknown feature"
    waits = Shape((Requirement(features=("avx", "big")),), wait=True)
    assert refusal(driver, waits) == ("", "")
    driver.send(Added(host("r2", "avx")))
    assert driver.granted("a") == [("r2.core0",)]


def test_a_feature_goes_with_the_resource_that_states_it() -> None:
    driver = Driver(*host("r1", "avx"))
    driver.send(Removed(("r1.node",)))
    driver.send(Added(host("r1")))
    assert refusal(driver, FAST)[0] == "unknown feature"


@pytest.mark.parametrize(("placement", "order"), [("compact", "2233"), ("fair", "3423")])
def test_a_placement_chooses_among_the_hosts_with_the_feature(placement: str, order: str) -> None:
    driver = Driver(*host("r1", cores=9), jobs=("b",))
    for name in ("r2", "r3", "r4"):
        driver.send(Added(host(name, "avx", cores=3)))
    driver.take("b", any_of("core", "r2.node", hard=True))
    driver.send(JobJoined("a", placement=placement))
    driver.demand("a", 4, FAST)
    assert "".join(names[0][1] for names in driver.granted("a")) == order


def test_features_are_names() -> None:
    assert Requirement(features=("b", "a", "b")).features == ("a", "b")
    with pytest.raises(TypeError, match=r"features are a tuple of texts: \('avx',\) for this one"):
        Requirement(features="avx")
    for wrong in ("", "a b", "a,b", "x" * 65):
        with pytest.raises(ValueError, match="can be no feature"):
            Requirement(features=(wrong,))
    with pytest.raises(TypeError, match="a feature is a text, not 5"):
        checked_feature(5)
    assert parse_features("ssd,fast,ssd") == ("ssd", "fast")
    with pytest.raises(ValueError, match="'' can be no feature"):
        parse_features("ssd,")
    found = with_features(host("r1", "avx"), ("ssd",))
    assert [one.features for one in found] == [("avx", "ssd"), (), ()]
    assert str(FAST_AND_BIG) == "core with avx and big"
