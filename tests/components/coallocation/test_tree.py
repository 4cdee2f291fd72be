from __future__ import annotations

from gspc_trio.components.coallocation.tree import (
    Multistage,
    NamedJob,
    Request,
    jobs_of,
    services_of,
)


def stages(*requests: Request | str) -> Multistage:
    return Multistage(tuple(NamedJob(one) if isinstance(one, str) else one for one in requests))


def test_jobs_are_numbered_in_the_order_of_the_text_and_services_breadth_first() -> None:
    lower, lowest = stages("d", stages("e", "f")), stages("e", "f")
    tree = stages(stages("a", "b", "c"), lower)
    assert [getattr(job, "name", "") for job in jobs_of(tree)] == list("abcdef")
    named = [(getattr(one, "name", one), above) for one, above in services_of(tree)]
    assert named == [
        (tree, 0),
        (stages("a", "b", "c"), 1),
        (lower, 1),
        *[("a", 2), ("b", 2), ("c", 2), ("d", 3), (lowest, 3)],
        *[("e", 8), ("f", 8)],
    ]


def test_places_do_not_matter_for_equality() -> None:
    assert NamedJob("a", (), (1, 2)) == NamedJob("a") != NamedJob("b")
