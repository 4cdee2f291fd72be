"""Throttles: parsed as users write them; compared with a naive model; fair (SWF-8)."""

from __future__ import annotations

import re
from collections import Counter

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from gspc_trio.components.provision.throttle import (
    DEFAULTS,
    Limit,
    ThrottleGate,
    ThrottleKind,
    parse_throttles,
)


def test_the_defaults_are_those_that_the_docs_state() -> None:
    assert {name: limit for name, limit in DEFAULTS.items() if limit is not None} == {
        "job_submit": 4,
        "host_job_submit": 2,
        "file_transfers": 4,
        "file_operations": 8,
    }
    form = re.compile(r"(host_)?(job|file_transfers|file_operations)(_submit)?")
    assert len(DEFAULTS) == 12
    assert all(form.fullmatch(name) for name in DEFAULTS)


def test_throttles_are_parsed_as_users_write_them() -> None:
    given = {"job": 3, "job_submit": "off", "host_job": "12"}
    assert parse_throttles(given) == {"job": 3, "job_submit": None, "host_job": 12}


@pytest.mark.parametrize("value", [0, -1, "0", "", "many", 1.5, True, None, "1e3", "²", "9" * 5000])
def test_what_is_no_limit_is_refused_in_one_line(value: object) -> None:
    with pytest.raises(ValueError, match=r"^throttle job: .* is no limit; write a whole number") as caught:
        parse_throttles({"job": value})
    assert "\n" not in str(caught.value)


def test_an_unknown_throttle_is_refused_with_the_one_that_is_meant() -> None:
    with pytest.raises(ValueError, match=r"no throttle 'job_submits' \(did you mean 'job_submit'\?\)"):
        parse_throttles({"job_submits": 3})
    with pytest.raises(ValueError, match="there are: file_operations"):
        parse_throttles({"x": 3})


def test_a_submit_throttle_is_held_during_the_call_and_a_task_throttle_until_the_end() -> None:
    gate = ThrottleGate({"job": 2, "job_submit": 1})
    for key in "abc":
        gate.want(key, ThrottleKind.JOB, "site")
    assert gate.start() == ["a"]
    assert gate.why("b") == "throttle job_submit 1: 1 under way"
    gate.submitted("a")
    assert gate.start() == ["b"]
    gate.submitted("b")
    assert gate.start() == []
    assert gate.why("c") == "throttle job 2: 2 under way"
    assert gate.waiting(ThrottleKind.JOB) == ["c"]
    gate.ended("a")
    assert gate.start() == ["c"]
    assert gate.uses("site") == {"host_job": (2, None), "host_job_submit": (1, 2)}


def test_a_host_that_is_full_or_has_many_who_wait_holds_up_no_other() -> None:
    gate = ThrottleGate({"file_transfers": 3, "host_file_transfers": 2})
    for number in range(100):
        gate.want(f"a{number}", ThrottleKind.FILE_TRANSFER, "a")
    gate.want("b0", ThrottleKind.FILE_TRANSFER, "b")
    assert gate.start() == ["a0", "b0", "a1"]
    gate.ended("b0")
    assert gate.start() == []  # there is room in all, but not at a
    assert gate.why("a2") == "throttle host_file_transfers 2: 2 under way at a"
    gate.want("c0", ThrottleKind.FILE_TRANSFER, "c")
    assert gate.start() == ["c0"]


def test_a_host_has_throttles_of_its_own() -> None:
    gate = ThrottleGate()
    gate.set_host("slow", {"host_job_submit": 1})
    for key in ("s1", "s2", "f1", "f2", "f3"):
        gate.want(key, ThrottleKind.JOB, {"s": "slow", "f": "fast"}[key[0]])
    assert gate.start() == ["s1", "f1", "f2"]
    gate.forget_host("slow")
    assert gate.start() == ["s2"]
    with pytest.raises(ValueError, match="throttle job_submit is one of all sites together"):
        gate.set_host("slow", {"job_submit": 1})


def test_what_was_under_way_before_counts() -> None:
    gate = ThrottleGate({"job": 1})
    gate.adopt("old", ThrottleKind.JOB, "site")
    gate.adopt("older", ThrottleKind.JOB, "site")
    gate.want("new", ThrottleKind.JOB, "site")
    assert gate.start() == []
    gate.ended("old")
    assert gate.start() == []
    gate.ended("older")
    assert gate.start() == ["new"]


LIMITS = st.dictionaries(st.sampled_from(sorted(DEFAULTS)), st.none() | st.integers(1, 3))
HOSTS = st.sampled_from(["a", "b", "c"])


class ThrottlesAgainstNaive(RuleBasedStateMachine):
    """The naive model keeps lists, counts them anew each time, and looks for anybody who could start."""

    def __init__(self) -> None:
        super().__init__()
        self.limits: dict[str, Limit] = {}
        self.gate = ThrottleGate()
        self.waiting: list[tuple[str, ThrottleKind, str]] = []
        self.started: dict[str, tuple[ThrottleKind, str]] = {}
        self.submitting: set[str] = set()
        self.made = 0

    @precondition(lambda self: not self.made)
    @rule(limits=LIMITS)
    def configure(self, limits: dict[str, Limit]) -> None:
        self.limits, self.gate = limits, ThrottleGate(limits)

    @rule(kind=st.sampled_from(ThrottleKind), host=HOSTS)
    def want(self, kind: ThrottleKind, host: str) -> None:
        self.made += 1
        self.waiting.append((str(self.made), kind, host))
        self.gate.want(str(self.made), kind, host)

    @rule()
    def start(self) -> None:
        for key in self.gate.start():
            entry = next(entry for entry in self.waiting if entry[0] == key)
            first = next(other for other in self.waiting if other[1:] == entry[1:])
            assert entry == first, "at one host the first who came starts first"
            assert self.may_start(*entry[1:])
            self.waiting.remove(entry)
            self.started[key] = entry[1:]
            self.submitting.add(key)
        assert not any(self.may_start(kind, host) for _, kind, host in self.waiting)

    @precondition(lambda self: self.submitting)
    @rule(data=st.data())
    def submitted(self, data: st.DataObject) -> None:
        key = data.draw(st.sampled_from(sorted(self.submitting)))
        self.submitting.remove(key)
        self.gate.submitted(key)

    @precondition(lambda self: self.started or self.waiting)
    @rule(data=st.data())
    def ended(self, data: st.DataObject) -> None:
        key = data.draw(st.sampled_from([*self.started, *(entry[0] for entry in self.waiting)]))
        self.started.pop(key, None)
        self.submitting.discard(key)
        self.waiting = [entry for entry in self.waiting if entry[0] != key]
        self.gate.ended(key)

    def may_start(self, kind: ThrottleKind, host: str) -> bool:
        counts: Counter[str] = Counter()
        for key, (other, at) in self.started.items():
            names = [str(other)] + [f"{other}_submit"] * (key in self.submitting)
            counts.update(names)
            counts.update(f"host_{name}" for name in names if at == host)
        names = [f"{prefix}{kind}{suffix}" for prefix in ("", "host_") for suffix in ("", "_submit")]
        limits = {**DEFAULTS, **self.limits}
        return all(limits[name] is None or counts[name] < (limits[name] or 0) for name in names)

    @invariant()
    def same(self) -> None:
        self.gate.check()
        for kind in ThrottleKind:
            waiting = {key for key, other, _ in self.waiting if other == kind}
            assert set(self.gate.waiting(kind)) == waiting
        for key, kind, host in self.waiting:
            assert (self.gate.why(key) is None) == self.may_start(kind, host)


TestThrottlesAgainstNaive = ThrottlesAgainstNaive.TestCase
TestThrottlesAgainstNaive.settings = settings(max_examples=40, stateful_step_count=40)
