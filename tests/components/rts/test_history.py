"""Jobs that are over are kept within limits: the oldest are forgotten first, those that failed last."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import json

from gspc_trio.components.rts import history
from gspc_trio.components.rts.history import NOTHING, History
from gspc_trio.components.rts.messages import EndedJob, JobSummary


def ended(number: int, state: str = "finished", report: str | None = None) -> EndedJob:
    summary = NOTHING if report is None else JobSummary(report=report)
    return EndedJob(f"j{number}", "work", state, ended_s=float(number), summary=summary)


def names(kept: History) -> list[str]:
    return [job.job for job in kept.jobs]


def test_the_oldest_go_first_and_those_that_failed_last() -> None:
    kept = History(jobs_max=3)
    for number, state in enumerate(["failed", "finished", "stopped", "finished", "failed", "failed"]):
        kept.add(ended(number, state))
    assert names(kept) == ["j0", "j4", "j5"]
    kept.add(ended(6, "failed"))
    assert names(kept) == ["j4", "j5", "j6"]
    kept.add(ended(7))
    assert names(kept) == ["j5", "j6", "j7"], "the last one stays in any case"


def test_the_size_is_limited_but_the_last_one_stays() -> None:
    kept = History(bytes_max=2_500)
    for number in range(4):
        kept.add(ended(number, report="x" * 800))
    assert names(kept) == ["j2", "j3"]
    kept.add(ended(4, report="x" * 5_000))
    assert names(kept) == ["j4"]


def test_of_a_job_that_tells_too_much_only_the_end_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(history, "JOB_BYTES_MAX", 1_000)
    kept = History()
    kept.add(ended(1, "failed", report="x" * 2_000))
    assert kept.find("j1") == ended(1, "failed")
    assert kept.find("j2") is None


@given(st.lists(st.tuples(st.integers(1, 8), st.sampled_from(["finished", "failed"]), st.integers(0, 900))))
def test_limits_hold_and_a_job_that_ends_again_counts_once(jobs: list[tuple[int, str, int]]) -> None:
    kept = History(jobs_max=4, bytes_max=2_000)
    for changes, (number, state, size) in enumerate(jobs, 1):
        job = ended(number, state, "x" * size)
        kept.add(job)
        assert kept.changes == changes
        there = kept.jobs
        assert len(there) <= 4
        assert len({one.job for one in there}) == len(there)
        assert sum(len(json.encode(one)) for one in there) <= 2_000 or len(there) == 1
        assert kept.find(job.job) == job
