"""What a notebook shows of an executor, a future, a net and the result of a job."""

from __future__ import annotations

import re
from html import unescape

from gspc_trio import CacheCounts, Executor, JobResult, Net
from gspc_trio.components.job.machine import TaskFailure
from gspc_trio.core.html import facts_table
from gspc_trio.core.task import Outcome, Reason, TaskError
from tests.executor.support import double, fail

EVIL = "<script>alert('&')</script>"


def facts(html: str) -> list[tuple[str, str]]:
    """Return the rows of a table, which must be all there is."""
    title, *rows = re.findall(r"<tr>(.*?)</tr>", html, re.DOTALL)
    cells = [re.fullmatch(r"<th [^>]*>([^<]*)</th><td [^>]*>([^<]*)</td>", row) for row in rows]
    head = re.fullmatch(r'<th colspan="2" [^>]*>([^<]*)</th>', title)
    assert head is not None
    found = [(unescape(cell[1]), unescape(cell[2])) for cell in cells if cell is not None]
    assert len(found) == len(rows)
    return [("", unescape(head[1])), *found]


def test_a_table_takes_no_html_and_is_never_long() -> None:
    many = [f"n{number}" for number in range(1_000)]
    html = facts_table(EVIL, state=EVIL, empty="", none=(), names=many, text="x" * 10_000, **{EVIL: "1"})
    assert "<script" not in html
    assert facts(html) == [
        ("", EVIL),
        ("state", EVIL),
        ("names", "n0, n1, n2, n3, n4, n5, n6, n7, n8, n9, n10, n11 and 988 more"),
        ("text", "x" * 500 + " ..."),
        (EVIL, "1"),
    ]


def test_a_net_shows_its_ports_and_transitions() -> None:
    net = Net("squares")
    numbers, squares = net.input("numbers"), net.output("squares")
    net.transition("square", double, {"value": numbers}, squares)
    assert facts(net._repr_html_()) == [
        ("", "<Net squares: 2 places, 1 transitions>"),
        ("inputs", "numbers"),
        ("outputs", "squares"),
        ("transitions", "square"),
    ]


def test_a_result_shows_how_its_job_ended() -> None:
    outcome = Outcome(3, 1, Reason.FAILED, error=TaskError("failed", EVIL))
    lost = TaskFailure(4, "late", Outcome(4, 1, Reason.LOST), "")
    result = JobResult(
        "failed",
        {"squares": [EVIL, *range(99)]},
        {"finished": 1_000, "failed": 1, "ready": 0},
        12.34,
        (
            TaskFailure(3, "square", outcome, "h1/0"),
            *[lost] * 9,
        ),
        "a task failed",
        CacheCounts(found=1),
    )
    assert facts(result._repr_html_()) == [
        ("", "Job"),
        ("state", "failed"),
        ("why", "a task failed"),
        ("tasks", "1,000 finished, 1 failed"),
        ("time", "12.3 s"),
        ("failed", f"square: {EVIL}\nlate\nlate"),
        ("cache", "1 from the cache, 0 kept"),
        ("output squares", f'100: ["{EVIL}", 0, 1, 2, 3, 4, ...]'),
    ]


def test_a_future_and_its_executor_show_how_they_are(executor: Executor) -> None:
    finished, failed = executor.submit(double, EVIL), executor.submit(fail, EVIL)
    assert (finished.result(), str(failed.exception())) == (2 * EVIL, EVIL)
    task = finished._task_id
    assert facts(finished._repr_html_()) == [
        ("", "Future"),
        ("state", "finished returned str"),
        ("task", str(task)),
        ("result", repr(2 * EVIL)),
    ]
    assert facts(failed._repr_html_())[1:] == [
        ("state", "finished raised LookupError"),
        ("task", str(task + 1)),
        ("error", EVIL),
    ]
    large = executor.submit(bytes, 100_000)
    assert large.exception() is None
    assert facts(large._repr_html_())[1][1].endswith("bytes that nobody has opened yet")
    shown = dict(facts(executor._repr_html_()))
    assert (shown["state"], shown["tasks"]) == ("takes tasks", "2 finished, 1 failed")
    assert "2 core" in shown["resources"]


def test_an_executor_that_was_shut_down_says_so() -> None:
    with Executor(cores=1, threads=True) as executor:
        pass
    assert ("state", "can run no more tasks: it was shut down") in facts(executor._repr_html_())


def test_nothing_of_a_notebook_is_there_outside() -> None:
    with Executor(cores=1, threads=True) as executor:
        assert executor._loop.cells is None
