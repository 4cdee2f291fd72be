"""The plan that moves data least, against a plain transcription of the algorithm."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gspc_trio.components.job.plan import Links, PlanData, PlanError, PlanHost, PlannedPlace, PlanTask
from gspc_trio.policies.plans.move import MovePlanner

RACK, BEYOND = 2.0**30, 2.0**27  # powers of two, so that sums are exact and ties are ties
MIB = 1 << 20


def naive(
    tasks: Sequence[PlanTask], hosts: Sequence[PlanHost], links: Links, tightness: int
) -> dict[int, tuple[str, Fraction]]:
    """Algorithm 1, with the score of equation 3.2: rate each host for each task."""
    by_name = {host.name: host for host in hosts}
    assigned: dict[int, tuple[str, Fraction]] = {}
    outputs = {task.task_id: task.output_bytes for task in tasks}

    def dist(host: PlanHost, other: str, size: int) -> Fraction:
        if host.name == other:
            return Fraction(0)
        return Fraction(size) / Fraction(links.bytes_per_s(by_name[other], host))

    waiting = list(tasks)
    while waiting:
        task = next(it for it in waiting if all(dep in assigned for dep in it.dependencies))
        waiting.remove(task)
        best: tuple[str, Fraction] | None = None
        for host in hosts:
            if not host.can_run(task):
                continue
            score = Fraction(0)
            for data in task.inputs:
                if data.size_bytes:
                    score += min(dist(host, holder, data.size_bytes) for holder in data.hosts)
            for dep in task.dependencies:
                score += dist(host, assigned[dep][0], outputs[dep])
            if tightness and assigned:
                others = sum(dist(host, at, outputs[it]) for it, (at, _) in assigned.items())
                score += Fraction(tightness) * others / len(assigned)
            if best is None or score < best[1]:
                best = host.name, score
        assert best is not None
        assigned[task.task_id] = best
    return assigned


SIZES = st.sampled_from([0, MIB, 2 * MIB, 3 * MIB, 64 * MIB])


@st.composite
def cases(draw: st.DrawFn) -> tuple[list[PlanTask], list[PlanHost], Links]:
    hosts = [
        PlanHost(
            f"h{number}",
            draw(st.sampled_from(["a", "b", "c"])),
            frozenset({"x"}) if number == 0 else draw(st.sampled_from([frozenset(), frozenset({"x"})])),
            draw(st.sampled_from([0, MIB, 8 * MIB])) if number else 0,
            draw(st.integers(1, 2)),
            draw(st.sampled_from([1.0, 2.0, 4.0])),
        )
        for number in range(draw(st.integers(1, 7)))
    ]
    names = [host.name for host in hosts]
    links = Links(RACK, BEYOND)
    for source in names:
        for target in names:
            if source != target and draw(st.integers(0, 4)) == 0:
                links.note(source, target, MIB, MIB / draw(st.sampled_from([2.0**24, 2.0**28, 2.0**33])))
    tasks = []
    for number in range(draw(st.integers(1, 7))):
        data = st.builds(
            PlanData, SIZES, st.lists(st.sampled_from(names), min_size=1, unique=True).map(tuple)
        )
        before = st.lists(st.integers(1, number), unique=True, max_size=3) if number else st.just([])
        tasks.append(
            PlanTask(
                number + 1,
                tuple(draw(before)),
                tuple(draw(st.lists(data, max_size=2))),
                draw(SIZES),
                draw(st.sampled_from([frozenset(), frozenset(), frozenset({"x"})])),
                draw(st.sampled_from([0, 0, MIB, 4 * MIB, 16 * MIB])),
                draw(st.sampled_from([0.0, 0.5, 1.0, 4.0])),
            )
        )
    return tasks, hosts, links


@settings(max_examples=50)
@given(cases())
def test_it_places_tasks_as_the_algorithm_does(
    case: tuple[list[PlanTask], list[PlanHost], Links],
) -> None:
    tasks, hosts, links = case
    found = MovePlanner(hosts, links).plan(tasks)
    wanted = naive(tasks, hosts, links, 0)
    assert {it: (placed.host, Fraction(placed.score_s)) for it, placed in found.items()} == wanted


@settings(max_examples=20)
@given(cases(), st.sampled_from([1, 4]))
def test_tightness_adds_the_mean_distance_to_the_other_tasks(
    case: tuple[list[PlanTask], list[PlanHost], Links], tightness: int
) -> None:
    tasks, hosts, links = case
    planner = MovePlanner(hosts, links, tightness)
    for task in tasks:  # one after the other: what was chosen on equal scores may differ by rounding
        before = dict(planner.placed)
        placed = planner.plan([task])[task.task_id]
        done = [PlanTask(it, output_bytes=one.output_bytes) for it, one in before.items()]
        scores = {}
        for host in hosts:
            if not host.can_run(task):
                continue
            fixed = [it for it in hosts if it is host]
            alone = _score_at(fixed[0], task, before, hosts, links, tightness, done)
            scores[host.name] = alone
        least = min(scores.values())
        assert scores[placed.host] <= least * (1 + 1e-9)
        assert placed.score_s == pytest.approx(least, rel=1e-9, abs=1e-12)


def _score_at(
    host: PlanHost,
    task: PlanTask,
    before: dict[int, PlannedPlace],
    hosts: Sequence[PlanHost],
    links: Links,
    tightness: int,
    done: Sequence[PlanTask],
) -> float:
    by_name = {it.name: it for it in hosts}

    def dist(other: str, size: int) -> float:
        return 0.0 if other == host.name else size / links.bytes_per_s(by_name[other], host)

    score = sum(min(dist(it, data.size_bytes) for it in data.hosts) for data in task.inputs)
    score += sum(dist(before[it].host, before[it].output_bytes) for it in task.dependencies)
    if done:
        score += tightness * sum(dist(before[it.task_id].host, it.output_bytes) for it in done) / len(done)
    return score


HOSTS = [PlanHost("h1", "a"), PlanHost("h2", "a", frozenset({"avx2"})), PlanHost("h3", "b")]


def test_a_plan_says_where_what_it_costs_and_how_long_that_is_worth_waiting_for() -> None:
    planner = MovePlanner(HOSTS, Links())
    made = planner.plan(
        [
            PlanTask(2, (1,), (PlanData(10**8, ("h3",)),)),
            PlanTask(1, (), (PlanData(10**9, ("h2", "h9")),), output_bytes=10**9),
        ]
    )
    assert made == {
        1: PlannedPlace("h2", 0.0, 0, 10.0, ("h1",), 10**9),
        2: PlannedPlace("h2", 1.0, 10**8, 9.0, ("h1",)),
    }


WRONG = {
    "tasks depend on each other: 1 -> 2 -> 1": [PlanTask(1, (2,)), PlanTask(2, (1,))],
    "task 1 depends on task 7, which is not there": [PlanTask(1, (7,))],
    "task 1 (a) is there twice": [PlanTask(1, name="a"), PlanTask(1, name="a")],
    "task 1 states -1 bytes: a size is 0 or more": [PlanTask(1, output_bytes=-1)],
    "task 1 runs for nan s: that is a finite number, 0 or more": [PlanTask(1, run_s=float("nan"))],
    "5 bytes that task 1 reads are lost: it was on h8": [PlanTask(1, inputs=(PlanData(5, ("h8",)),))],
    "task 1 needs 'avx3', which no host has (did you mean 'avx2'?); there are: avx2": [
        PlanTask(1, features=frozenset({"avx3"}))
    ],
}


@pytest.mark.parametrize("message", WRONG)
def test_what_makes_no_sense_is_refused_and_changes_nothing(message: str) -> None:
    planner = MovePlanner(HOSTS, Links())
    planner.plan([PlanTask(9, output_bytes=1)])
    before = dict(planner.placed)
    with pytest.raises(PlanError) as caught:
        planner.plan([PlanTask(8), *WRONG[message]])
    assert (str(caught.value), planner.placed) == (message, before)
