"""Output of tasks: pieces are joined, lines are whole, and what is kept has a bound."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gspc_trio.components.job import output
from gspc_trio.components.job.output import PIECE_BYTES_MAX, KeptOutput
from gspc_trio.core.messages import OutputLine


def line(task_id: int, text: str, *, stderr: bool = False) -> OutputLine:
    return OutputLine(task_id, "work", stderr, text)


def end(kept: KeptOutput, task_id: int, stdout: bytes, stderr: bytes = b"", *, failed: bool = False) -> None:
    kept.ended(task_id, "work", 1, (stdout, stderr), 9.0, failed=failed)


def live(kept: KeptOutput, task_id: int, all_of_it: bytes, now: float = 1.0, attempt: int = 1) -> None:
    """Tell what a running task has printed so far, as a worker does: without what is known."""
    seen, _ = kept.seen(task_id, attempt)
    piece = all_of_it[seen:][-PIECE_BYTES_MAX:]
    kept.printed(task_id, "work", attempt, ((len(all_of_it), piece), (0, b"")), now)


def lines(kept: KeptOutput) -> list[OutputLine]:
    return kept.lines_since(0, 10_000)[0]


def test_lines_of_a_task_that_ends() -> None:
    kept = KeptOutput()
    end(kept, 1, b"one\ntwo", b"odd\n")
    assert lines(kept) == [line(1, "one"), line(1, "two"), line(1, "odd", stderr=True)]
    assert kept.of(1) == ("one\ntwo", "odd\n")
    assert kept.of(2) == ("", "")


def test_lines_of_a_running_task_come_once_and_whole() -> None:
    kept = KeptOutput()
    live(kept, 1, b"one\ntw")
    assert lines(kept) == [line(1, "one")]
    live(kept, 1, b"one\ntwo\n")
    end(kept, 1, b"one\ntwo\nthree")
    assert lines(kept) == [line(1, "one"), line(1, "two"), line(1, "three")]
    assert kept.running == {}


@given(st.binary(max_size=300), st.lists(st.integers(0, 300), max_size=6))
def test_however_it_is_told_nothing_is_lost_or_doubled(printed: bytes, looks: list[int]) -> None:
    kept = KeptOutput()
    for look in sorted(looks):
        live(kept, 1, printed[:look])
    end(kept, 1, printed)
    assert kept.streams_of(1)[0] == printed
    assert kept.streams_since(1, (0, 0))[0] == (printed, len(printed))
    for seen in looks:
        assert kept.streams_since(1, (seen, 0))[0][0] == printed[seen:]


def test_what_was_printed_between_two_looks_beyond_a_piece_is_left_out_and_counted() -> None:
    kept = KeptOutput()
    live(kept, 1, b"begin\n")
    live(kept, 1, b"begin\n" + b"x" * 1000 + b"y" * PIECE_BYTES_MAX)
    text, _ = kept.of(1)
    assert text.startswith("begin\n[... 1000 bytes left out ...]\ny")


NUMBERED = b"".join(b"line number %09d\n" % number for number in range(10_000))


def test_after_a_gap_lines_are_whole() -> None:
    kept = KeptOutput()
    live(kept, 1, b"open")
    live(kept, 1, b"open" + NUMBERED)
    first = (len(NUMBERED) - PIECE_BYTES_MAX) // 22 + 1
    said = [one.text for one in lines(kept)[:3]]
    assert said == ["open", f"[... {first * 22} bytes left out ...]", f"line number {first:09}"]
    assert kept.of(1)[0].splitlines()[:3] == said


def test_of_an_end_that_cannot_be_joined_it_is_said_that_there_was_more() -> None:
    first = (len(NUMBERED) - PIECE_BYTES_MAX) // 22 + 1
    for begin, before in ((b"", []), (b"begin\n", ["begin"])):
        kept = KeptOutput()
        live(kept, 1, begin)
        end(kept, 1, NUMBERED[-PIECE_BYTES_MAX:])
        assert [one.text for one in lines(kept)[: len(before) + 2]] == [
            *before,
            "[... more left out ...]",
            f"line number {first:09}",
        ]
        assert kept.of(1)[0].splitlines()[: len(before) + 1] == [*before, "[... more left out ...]"]


def test_who_follows_reads_nothing_twice_where_something_is_missing() -> None:
    kept, followed, seen = KeptOutput(), b"", 0
    for length in range(50_000, len(NUMBERED), 80_000):
        live(kept, 1, NUMBERED[:length])
        (new, seen), _ = kept.streams_since(1, (seen, 0))
        followed += new
    assert followed == kept.streams_of(1)[0]
    printed = [line for line in followed.splitlines() if line.startswith(b"line")]
    assert len(printed) == len(set(printed))


def test_what_is_read_begins_with_what_is_gone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(output, "TASK_BYTES_MAX", 50)
    kept = KeptOutput()
    live(kept, 1, NUMBERED[:110])
    expected = b"[... 66 bytes left out ...]\nline number 000000003\nline number 000000004\n"
    assert kept.streams_of(1)[0] == expected
    assert kept.streams_since(1, (22, 0))[0] == (expected.replace(b"66", b"44"), 110)
    assert kept.streams_since(1, (88, 0))[0] == (b"line number 000000004\n", 110)


def test_the_end_of_a_long_output_is_joined_to_what_was_seen() -> None:
    everything = b"".join(b"line %d\n" % number for number in range(20_000))
    kept = KeptOutput()
    live(kept, 1, everything[: len(everything) - 1000])
    end(kept, 1, everything[-PIECE_BYTES_MAX:])
    text, _ = kept.of(1)
    assert text.encode().endswith(everything[-PIECE_BYTES_MAX:])
    assert [one.text for one in lines(kept)[-2:]] == ["line 19998", "line 19999"]


def ended_attempt(kept: KeptOutput, attempt: int, stdout: bytes, why: str = "") -> None:
    kept.ended(1, "work", attempt, (stdout, b""), 9.0, failed=bool(why), why=why)


def test_what_earlier_attempts_have_printed_comes_before_that_of_the_next_one() -> None:
    kept = KeptOutput()
    live(kept, 1, b"first")
    ended_attempt(kept, 1, b"first\ntry", "attempt 1 failed: ValueError: no\nthis is too long")
    assert kept.of(1) == ("first\ntry", "")
    live(kept, 1, b"", attempt=2)  # it has said nothing yet
    mark = "[... attempt 1 failed: ValueError: no ...]"
    live(kept, 1, b"second\n", attempt=2)
    assert kept.of(1) == (f"first\ntry\n{mark}\nsecond\n", "")
    ended_attempt(kept, 2, b"second\n")
    assert kept.of(1) == (f"first\ntry\n{mark}\nsecond\n", "")
    texts = line(1, "first"), line(1, "try"), line(1, mark, stderr=True), line(1, "second")
    assert lines(kept) == list(texts)


def test_nothing_is_said_of_an_attempt_that_is_not_followed_by_another_one() -> None:
    kept = KeptOutput()
    ended_attempt(kept, 1, b"only", "attempt 1 failed")
    kept.ended(1, "work", 1, (b"only", b""), 9.0, failed=True)  # its task has failed
    assert (kept.of(1), lines(kept)) == (("only", ""), [line(1, "only")])


def test_an_attempt_whose_end_nobody_has_told_is_followed_by_the_next_one() -> None:
    kept = KeptOutput()
    live(kept, 1, b"first")
    ended_attempt(kept, 2, b"second")
    assert kept.of(1)[0] == "first\n[... run again ...]\nsecond"


def test_a_task_that_had_finished_and_runs_again_begins_anew() -> None:
    kept = KeptOutput()
    ended_attempt(kept, 1, b"first")
    ended_attempt(kept, 1, b"again")
    assert kept.of(1)[0] == "again"


@given(
    st.lists(st.tuples(st.text("ab\n", min_size=1, max_size=20), st.integers(0, 20)), min_size=1, max_size=5)
)
def test_who_follows_a_task_sees_all_of_its_attempts(attempts: list[tuple[str, int]]) -> None:
    kept, followed, seen = KeptOutput(), b"", 0
    for attempt, (text, look) in enumerate(attempts, 1):
        live(kept, 1, text.encode()[:look], attempt=attempt)
        for _ in range(2):
            (new, seen), _ = kept.streams_since(1, (seen, 0))
            followed += new
        ended_attempt(kept, attempt, text.encode(), f"attempt {attempt} failed")
    (new, seen), _ = kept.streams_since(1, (seen, 0))
    assert followed + new == kept.streams_of(1)[0]
    printed = [line for line in kept.of(1)[0].splitlines() if not line.startswith("[...")]
    assert printed == [line for text, _ in attempts for line in text.splitlines()]


def test_attempts_that_failed_are_kept_within_the_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(output, "KEPT_BYTES_MAX", 1000)
    kept = KeptOutput()
    for attempt in (1, 2):
        for task_id in range(1, 10):
            kept.ended(task_id, "work", attempt, (b"x" * 100, b""), 9.0, failed=True, why="lost")
    assert not kept.running
    assert sum(len(kept.streams_of(task_id)[0]) for task_id in range(1, 10)) <= 1000


def test_a_progress_bar_is_shown_now_and_then_and_at_its_end() -> None:
    kept = KeptOutput()
    printed = b""
    for step in range(30):
        printed += b"\r%d%%" % step
        live(kept, 1, printed, now=step / 10)
    end(kept, 1, printed + b"\rdone\n")
    assert [one.text for one in lines(kept)] == ["0%", "20%", "done"]


def test_a_long_line_is_cut() -> None:
    kept = KeptOutput()
    end(kept, 1, b"x" * 5000)
    assert lines(kept)[0].text == "x" * 4000 + "... (1000 more characters)"


def test_output_of_failures_is_kept_longest(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(output, "KEPT_TASKS_MAX", 3)
    kept = KeptOutput()
    end(kept, 1, b"failed", failed=True)
    for task_id in range(2, 10):
        end(kept, task_id, b"finished")
    assert [task_id for task_id in range(1, 10) if kept.of(task_id)[0]] == [1, 8, 9]


def test_what_is_kept_has_a_bound_in_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(output, "KEPT_BYTES_MAX", 1000)
    kept = KeptOutput()
    for task_id in range(1, 20):
        end(kept, task_id, b"x" * 300)
    assert [task_id for task_id in range(1, 20) if kept.of(task_id)[0]] == [17, 18, 19]


def test_who_is_slow_is_told_how_many_lines_are_gone() -> None:
    kept = KeptOutput()
    for number in range(output.LINES_MAX + 10):
        end(kept, number, b"a line\n")
    found, seen, left_out = kept.lines_since(0, 100)
    assert (len(found), found[0].task_id, seen, left_out) == (100, 10, 110, 10)
    found, seen, left_out = kept.lines_since(seen, 10_000)
    assert (len(found), seen, left_out) == (output.LINES_MAX - 100, kept.number, 0)
    assert kept.lines_since(seen, 100) == ([], seen, 0)
