"""Which spans a job has, and what becomes of those for which there is no room."""

from __future__ import annotations

import logging
import socket
import threading

import pytest
import trio
from msgspec.structs import replace

from gspc_trio.components.job.scheduler.interface import AttemptEnded, EndedItems, TaskDone
from gspc_trio.components.job.shell.settings import JobSettings, OtelMissing, is_traced
from gspc_trio.components.job.shell.span_export import SpanSender, endpoint_address, open_tracer
from gspc_trio.components.job.spans import Span
from gspc_trio.components.job.tracing import (
    KEPT_FOR_FAILURES,
    QUEUE_SPANS_MAX,
    TEXT_MAX,
    JobTracer,
    SendingPace,
    SpanQueue,
)
from gspc_trio.core.task import Outcome, Reason, TaskError, TaskState
from gspc_trio.core.trace_context import TraceContext

JOB = TraceContext("4bf92f3577b34da6a3ce929d0e0e4736", 99)
BOOM = TaskError("ValueError", "boom", "Traceback ...", b"pickled")
STAGED_S = (10.0, 11.0, 14.0, 15.5)
SPANS_MAX = 10_000


def tracer(sampled: bool = True) -> JobTracer:
    return JobTracer(JOB._replace(sampled=sampled), 5, "j1", "fit", 1.0, lambda _: "here")


def done(task_id: int, attempt: int = 1, **more: object) -> TaskDone:
    outcome = Outcome(task_id, attempt, Reason.FINISHED, started_s=11.5, duration_s=2.0)
    return TaskDone(task_id, TaskState.FINISHED, replace(outcome, **more), "work", "r1.core1")


def failed(
    reason: Reason = Reason.FAILED, attempt: int = 1, ran_s: float = 0.0, **more: object
) -> AttemptEnded:
    outcome = replace(Outcome(1, attempt, reason, error=BOOM), **more)
    return AttemptEnded(outcome, "work", attempt, "r1.core1", ran_s)


def about(attempt: int, outcome: str) -> dict[str, str | int]:
    names = ("gspc.job.id", "gspc.task.id", "gspc.attempt", "gspc.resource.id", "host.name", "gspc.outcome")
    return dict(zip(names, ("j1", 1, attempt, "r1.core1", "here", outcome), strict=True))


def test_an_attempt_has_a_span_below_the_job_and_one_below_that_for_each_phase() -> None:
    traced = tracer()
    traced.finished(done(1, staged_s=STAGED_S, moved=(("there", 7, 0.1),)), 20.0)
    attempt, told = JOB.span_of(1, 1), {**about(1, "finished"), "gspc.fetched_bytes": 7}
    assert traced.queue.take(SPANS_MAX) == [
        Span("work", attempt, JOB.span_id, 10.0, 15.5, told),
        Span("stage in", JOB.span_of(1, 1, 2), attempt, 10.0, 11.0, told),
        Span("compute", JOB.span_of(1, 1, 1), attempt, 11.5, 13.5, told),
        Span("stage out", JOB.span_of(1, 1, 3), attempt, 14.0, 15.5, told),
    ]


def range_of(count: int, errors: dict[int, TaskError] | None = None) -> EndedItems:
    """Return calls with the numbers from 2 on, a second each."""
    outcome = Outcome(1, 1, Reason.FINISHED, started_s=10.0, duration_s=1.0 * count)
    whole = TaskDone(1, TaskState.FINISHED, outcome, f"work x {count}", "r1.core1", 0, count)
    return EndedItems(whole, "work", count, errors or {}, 9.0)


def test_calls_of_a_range_have_spans_as_tasks_have_and_the_range_has_none() -> None:
    traced, alone = tracer(), tracer()
    ended = range_of(3, {1: BOOM})
    traced.before(None, lambda: 20.0)(ended.done)
    traced.items_ended(ended, 20.0)
    alone.ended(AttemptEnded(ended.outcome(1), "work", 1, "r1.core1"), 20.0)
    for place in (0, 2):
        outcome = Outcome(2 + place, 1, Reason.FINISHED, started_s=10.0 + place, duration_s=1.0)
        alone.finished(TaskDone(2 + place, TaskState.FINISHED, outcome, "work", "r1.core1"), 20.0)
    assert len(traced.queue) == 6
    assert traced.queue.take(SPANS_MAX) == alone.queue.take(SPANS_MAX)


def test_spans_of_ranges_are_spread_and_counted_as_those_of_tasks() -> None:
    ranges, tasks = tracer(), tracer()
    of_ranges, of_tasks = ranges.before(None, lambda: 1.0), tasks.before(None, lambda: 1.0)
    for count in (700, 600, 5, 900):
        ended = range_of(count)
        of_ranges(ended.done)
        ranges.items_ended(ended, 1.0)
        for place in range(count):
            of_tasks(done(2 + place))
        assert (len(ranges.queue), ranges.queue.dropped) == (len(tasks.queue), tasks.queue.dropped)
        taken = [[span.span_id for span in queue.take(200)] for queue in (ranges.queue, tasks.queue)]
        assert taken[0] == taken[1]


def test_of_a_fast_job_spans_are_spread_evenly_until_it_is_slow_again() -> None:
    traced = tracer()
    take = traced.before(None, lambda: 20.0)

    def told(first: int, last: int) -> list[int]:
        """Return which of these tasks have spans that are sent when they have ended."""
        for number in range(first, last):
            take(done(number))
        spans = traced.queue.take(QUEUE_SPANS_MAX)
        return [int(span.attributes["gspc.task.id"]) for span in spans if span.parent_id == JOB.span_id]

    usual = (QUEUE_SPANS_MAX - KEPT_FOR_FAILURES) // 2
    assert told(0, 10_000) == list(range(usual)), "how fast it is is not known yet"
    every = -(-10_000 // usual)
    assert told(10_000, 20_000) == list(range(10_000, 20_000, every))
    again = told(20_000, 20_005)
    assert told(20_005, 20_030) == list(range(20_005, 20_030)), "all, for there is room"
    traced.ended(failed(), 20.0)
    [attempt] = traced.queue.take(QUEUE_SPANS_MAX)
    assert attempt.attributes["gspc.outcome"] == "failed"
    sent = usual + len(range(10_000, 20_000, every)) + len(again) + 25
    assert traced.queue.dropped == 2 * (20_030 - sent)


def test_while_the_process_computes_spans_are_sent_less_often() -> None:
    pace = SendingPace(100.0, 7.0)
    assert pace.wait_s(101.0, 7.05, sent_s=0.02) == 2.0
    assert pace.wait_s(103.0, 7.051, sent_s=0.001) == 0.5, "few spans are soon sent"
    assert pace.wait_s(104.0, 7.7, sent_s=0.01) == 5.0
    assert pace.wait_s(109.0, 8.1, sent_s=0.01) == 1.0


def test_what_is_tried_again_is_linked_with_the_attempt_before() -> None:
    traced = tracer()
    traced.ended(failed(), 20.0)
    traced.ended(failed(Reason.LOST, 3, ran_s=4.0), 30.0)
    traced.finished(done(1, 4), 40.0)
    traced.finished(done(2), 41.0)
    attempts = [span for span in traced.queue.take(SPANS_MAX) if span.parent_id == JOB.span_id]
    numbers = [JOB.span_of(1, attempt) for attempt in (1, 3, 4)]
    assert [span.span_id for span in attempts] == [*numbers, JOB.span_of(2, 1)]
    assert [span.link for span in attempts] == [0, *numbers[:2], 0]
    assert attempts[0].error == TaskError("ValueError", "boom", "Traceback ..."), "the exception stays here"


@pytest.mark.parametrize(
    ("ended", "begin_s", "end_s"),
    [
        (failed(started_s=11.0, duration_s=2.0), 11.0, 13.0),
        (failed(Reason.CANCELLED, duration_s=2.0), 18.0, 20.0),
        (failed(Reason.LOST, ran_s=5.0), 15.0, 20.0),
        (failed(Reason.LOST), 20.0, 20.0),
    ],
)
def test_an_attempt_that_did_not_finish_took_what_is_known_of_it(
    ended: AttemptEnded, begin_s: float, end_s: float
) -> None:
    traced = tracer()
    traced.ended(ended, 20.0)
    spans = traced.queue.take(SPANS_MAX)
    assert {(span.begin_s, span.end_s) for span in spans} == {(begin_s, end_s)}
    assert [span.name for span in spans] == ["work", "compute"][: 1 + (begin_s < end_s)]
    assert spans[0].attributes["gspc.outcome"] == ended.outcome.reason.value


def test_the_job_is_the_span_above_all() -> None:
    traced = tracer()
    traced.end("failed", "x" * 10_000, {"finished": 3, "failed": 0}, 50.0)
    told = {"gspc.job.id": "j1", "gspc.outcome": "failed", "gspc.tasks.finished": 3}
    error = TaskError("failed", "x" * TEXT_MAX)
    assert traced.queue.take(SPANS_MAX) == [Span("fit", JOB.span_id, 5, 1.0, 50.0, told, error)]
    traced.end("finished", "", {}, 50.0)
    assert traced.queue.take(1)[0].error is None


def test_what_finds_no_room_is_counted_and_failures_find_some() -> None:
    traced = tracer()
    for number in range(QUEUE_SPANS_MAX):
        traced.finished(done(number + 1), 20.0)
    usual = QUEUE_SPANS_MAX - KEPT_FOR_FAILURES
    assert (len(traced.queue), traced.queue.dropped) == (usual, 2 * QUEUE_SPANS_MAX - usual)
    for number in range(QUEUE_SPANS_MAX):
        traced.ended(failed(attempt=number + 1, started_s=1.0), 20.0)
    assert QUEUE_SPANS_MAX - 4 < len(traced.queue) <= QUEUE_SPANS_MAX
    assert [span.name for span in traced.queue.take(2)] == ["work", "compute"], "the oldest come first"


def test_what_no_attempt_has_made_has_no_span_and_a_trace_that_is_not_recorded_none_at_all() -> None:
    traced, silent = tracer(), tracer(sampled=False)
    traced.finished(done(1, 0), 20.0)
    traced.finished(TaskDone(1, TaskState.FAILED, Outcome(1, 1, Reason.FAILED)), 20.0)
    silent.finished(done(1), 20.0)
    silent.ended(failed(), 20.0)
    silent.end("finished", "", {}, 20.0)
    assert (len(traced.queue), len(silent.queue), silent.queue.dropped) == (0, 0, 0)


def test_spans_are_sent_if_somebody_asks_for_it(monkeypatch: pytest.MonkeyPatch) -> None:
    endpoint = {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:4318"}
    assert not is_traced(JobSettings(), {})
    assert not is_traced(JobSettings(), {**endpoint, "OTEL_SDK_DISABLED": "true"})
    assert not is_traced(JobSettings(otel=False), endpoint)
    monkeypatch.setattr("gspc_trio.components.job.shell.settings.find_spec", lambda _: None)
    assert not is_traced(JobSettings(), endpoint), "the variable may be there for other programs"
    with pytest.raises(OtelMissing, match=r'pip install "gspc-trio\[otel\]"'):
        is_traced(JobSettings(otel=True), {})
    monkeypatch.setattr("gspc_trio.components.job.shell.settings.find_spec", lambda _: object())
    assert is_traced(JobSettings(), endpoint)
    assert is_traced(JobSettings(otel=True), {})


@pytest.mark.parametrize(
    ("given", "address"),
    [
        ({}, ("localhost", 4318)),
        ({"OTEL_EXPORTER_OTLP_ENDPOINT": "http://a:1"}, ("a", 1)),
        ({"OTEL_EXPORTER_OTLP_ENDPOINT": "http://a:1", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": ""}, ("a", 1)),
        ({"OTEL_EXPORTER_OTLP_ENDPOINT": "a", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": "http://b/v"}, ("b", 80)),
        ({"OTEL_EXPORTER_OTLP_ENDPOINT": "https://me:secret@[::1]/x"}, ("::1", 443)),
        ({"OTEL_EXPORTER_OTLP_ENDPOINT": "http://a:none"}, None),
        ({"OTEL_EXPORTER_OTLP_ENDPOINT": "here"}, None),
        ({"HTTP_PROXY": "http://proxy"}, None),
        ({"https_proxy": "http://proxy"}, ("localhost", 4318)),
        ({"all_proxy": "http://proxy", "NO_PROXY": "*"}, ("localhost", 4318)),
    ],
)  # fmt: skip
def test_what_is_asked_whether_somebody_listens(
    given: dict[str, str], address: tuple[str, int] | None
) -> None:
    assert endpoint_address(given) == address


async def test_nothing_is_started_and_nobody_waits_for_an_endpoint_that_is_down(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", f"http://me:secret@127.0.0.1:{port}")
    queue = SpanQueue()
    sender = SpanSender(queue, "1" * 32)
    queue.put([Span("a", 1, 0, 1.0, 2.0, {})])
    async with trio.open_nursery() as nursery:
        nursery.start_soon(sender.run)
        with caplog.at_level(logging.WARNING):
            await sender.end(1_000.0)
    assert caplog.messages == [
        f"OpenTelemetry: 1 spans were dropped: 1 could not be sent: 127.0.0.1:{port}: Connection refused"
    ]


async def test_nobody_waits_until_the_name_of_an_endpoint_is_found(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    found = threading.Event()

    def look_up(*_: object, **__: object) -> None:
        found.wait()
        raise socket.gaierror(socket.EAI_AGAIN, "Temporary failure in name resolution")

    monkeypatch.setattr(socket, "getaddrinfo", look_up)
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://collector.example:4318")
    sender = SpanSender(queue := SpanQueue(), "1" * 32)
    queue.put([Span("a", 1, 0, 1.0, 2.0, {})])
    try:
        with caplog.at_level(logging.WARNING):
            async with trio.open_nursery() as nursery:
                nursery.start_soon(sender.run)
                await sender.end(1_000.0)
    finally:
        found.set()
    assert [text.rpartition("sent: ")[2] for text in caplog.messages] == [
        "collector.example:4318: it does not answer"
    ]


async def test_nothing_goes_on_when_a_job_cannot_say_how_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", f"http://127.0.0.1:{server.getsockname()[1]}")

    def status() -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        async with open_tracer(JobSettings(), "j1", {}, status):
            pass
