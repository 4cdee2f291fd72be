"""Facts in columns: they are those that were put in, whoever reads them, from memory or from a file."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from gspc_trio.core.task import TaskState
from gspc_trio.records.columns import ROWS_MAX, columns_of, facts_of, runs_of
from gspc_trio.records.facts import FactColumns, Record, StreamOpened, TaskChanged, TaskFlow
from gspc_trio.records.lines import BadRecordLine, decode_record, decode_records, encode_records, read_records
from gspc_trio.reports.run import recorded_run
from gspc_trio.tui.replay import Player

seconds = st.floats(0, 1e9)
texts = st.text(max_size=8) | st.just("not \udcff text")
counts = st.integers(0, 10**6)
staged = st.just(()) | st.tuples(seconds, seconds, seconds, seconds)
moved = st.lists(st.tuples(texts, counts, seconds), max_size=2).map(tuple)
tasks = st.builds(
    TaskChanged, seconds, texts, counts, st.sampled_from(TaskState), counts, texts, texts, texts,
    seconds, seconds, staged, moved, texts,
)  # fmt: skip
paths = st.lists(texts, max_size=2).map(tuple)
flows = st.builds(
    TaskFlow, seconds, texts, counts, texts, st.lists(counts, max_size=3).map(tuple), counts, paths, paths
)


def packed(facts: list[Record]) -> list[FactColumns]:
    kind = type(facts[0])
    each = {name: [getattr(fact, name) for fact in facts] for name in kind.__struct_fields__}
    return columns_of(kind, {}, each)


@given(st.lists(tasks, min_size=1) | st.lists(flows, min_size=1))
def test_what_is_put_into_columns_comes_out_of_memory_and_of_lines(facts: list[Record]) -> None:
    [columns] = packed(facts)
    assert columns.rows == len(facts)
    assert facts_of(columns) == facts
    line = encode_records([columns])
    assert line.count(b"\n") == 1
    assert decode_records(line) == facts
    assert list(read_records([line, line])) == facts * 2
    with pytest.raises(BadRecordLine):
        decode_record(line)


def test_what_all_have_is_said_once_and_a_line_has_an_end() -> None:
    same = {"at_s": 1.0, "job": "j1", "state": TaskState.READY}
    found = columns_of(TaskChanged, same, {"task_id": range(ROWS_MAX + 1), "name": ["a"] * (ROWS_MAX + 1)})
    assert [columns.rows for columns in found] == [ROWS_MAX, 1]
    assert {tuple(columns.each) for columns in found} == {("task_id",)}
    assert found[0].same == {**same, "name": "a"}
    alike = [TaskChanged(1.0, "j1", 7, TaskState.READY)] * 3
    assert [fact for columns in packed([*alike]) for fact in facts_of(columns)] == alike


@given(st.integers(1, 40), st.integers(0, 10**6), st.floats(0, 1e9), st.floats(0, 1e3))
@example(ROWS_MAX + 1, 7, 100.0, 0.5)
def test_what_grows_evenly_is_said_once(count: int, first: int, begun_s: float, step_s: float) -> None:
    same = {"at_s": 1.0, "job": "j1", "state": TaskState.READY}
    runs: dict[str, tuple[float, float]] = {"task_id": (first, 1), "started_s": (begun_s, step_s)}
    found = runs_of(TaskChanged, same, count, runs)
    lines = encode_records(found).splitlines(keepends=True)
    assert len(lines) == 1 + (count > ROWS_MAX)
    facts = [fact for line in lines for fact in decode_records(line)]
    assert [fact.task_id for fact in facts if isinstance(fact, TaskChanged)] == [*range(first, first + count)]
    assert sum(columns.rows for columns in found) == len(facts)
    last_s = pytest.approx(begun_s + (count - 1) * step_s)
    assert facts[0] == TaskChanged(1.0, "j1", first, TaskState.READY, started_s=begun_s)
    assert facts[-1] == TaskChanged(1.0, "j1", first + count - 1, TaskState.READY, started_s=last_s)


@pytest.mark.parametrize(
    "fields",
    [
        {"of": "Nothing"},
        {"count": 3, "runs": {"duration_s": [1.0, 0.0]}},
        {"count": 0, "runs": {"duration_s": [1.0, 0.0]}},
        {"count": -2, "runs": {"duration_s": [1.0, 0.0]}},
        {"each": {}, "count": ROWS_MAX + 1, "runs": {"task_id": [1, 1]}},
        {"count": 2, "runs": {"duration_s": [1.0]}},
        {"each": {}, "count": 2, "runs": {"task_id": [1, 0.5]}},
        {"each": {}},
        {"each": {"task_id": [1, 2], "name": ["a"]}},
        {"each": {"task_id": "12"}},
        {"each": {"task_id": [1, "2"]}},
        {"each": {"task_id": [1], "at_s": [1e300]}},
        {"each": [1]},
        {"same": {}},
        {"of": "FactColumns"},
        {"of": ["TaskChanged"]},
    ],
)
def test_columns_that_are_none_are_refused(fields: dict[str, object]) -> None:
    good = {
        "record": "FactColumns",
        "of": "TaskChanged",
        "same": {"at_s": 1.0, "job": "j1", "state": "ready"},
        "each": {"task_id": [1, 2]},
    }
    assert [fact.at_s for fact in decode_records(json.dumps(good))] == [1.0, 1.0]
    with pytest.raises(BadRecordLine):
        decode_records(json.dumps(good | fields))


NUMBER = 40


def lines_of_a_run() -> list[bytes]:
    """Return a file as a fast job writes it: 40 tasks, of which each takes a second after the one before."""
    ids, job = list(range(1, NUMBER + 1)), {"job": "j1", "name": "work"}
    ready, ran = {**job, "at_s": 0.0, "state": "ready"}, {**job, "state": "finished", "attempt": 1}
    ends = {"at_s": [float(number) for number in ids], "task_id": ids, "started_s": [100.0 + n for n in ids]}
    records: list[Record | FactColumns] = [
        StreamOpened(0.0, 100.0, "test"),
        *columns_of(TaskChanged, ready, {"task_id": ids}),
        *columns_of(TaskChanged, {**ran, "resource_id": "r1.core0"}, ends),
    ]
    return encode_records(records).splitlines(keepends=True)


def test_readers_see_columns_as_single_facts(tmp_path: Path) -> None:
    lines = lines_of_a_run()
    single = [encode_records([record]) for record in read_records(lines)]
    assert (len(lines), len(single)) == (3, 1 + 2 * NUMBER)
    assert recorded_run(read_records(lines)) == recorded_run(read_records(single))
    players = []
    for name, written in (("columns", lines), ("single", single)):
        (tmp_path / name).write_bytes(b"".join(written))
        players.append(Player(tmp_path / name))
    for at_s in (NUMBER, 7.5, 20, 0, 33.0):  # on and back, also to the middle of a line
        counts_of = []
        for player in players:
            player.seek(at_s)
            counts_of.append((player.position_s, player.length_s, player.model.job("j1").counts))
        assert counts_of[0] == counts_of[1]
    for player in players:
        player.step(3)
        assert player.model.job("j1").counts[TaskState.FINISHED] == 36
        player.close()


def test_going_back_may_begin_in_the_middle_of_a_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gspc_trio.tui.replay.CHECKPOINT_RECORDS", NUMBER + 10)
    monkeypatch.setattr("gspc_trio.tui.replay.TAIL_BYTES", 10)
    (tmp_path / "run").write_bytes(b"".join(lines_of_a_run()))
    player = Player(tmp_path / "run")
    assert player.length_s == NUMBER
    player.seek(NUMBER)
    for at_s in (30, 11, 29.5):
        player.seek(at_s)
        assert player.model.job("j1").counts[TaskState.FINISHED] == int(at_s)
    player.close()


@given(st.data())
def test_a_line_that_was_not_written_whole_is_told_and_the_rest_is_read(data: st.DataObject) -> None:
    lines = lines_of_a_run()
    torn = lines[-1][: data.draw(st.integers(1, len(lines[-1]) - 2))]
    told: list[str] = []
    assert len(list(read_records([*lines[:-1], torn], "run.jsonl", told.append))) == 1 + NUMBER
    assert told == ["run.jsonl:3: the last line is not whole, and was left out"]
    with pytest.raises(BadRecordLine, match=r"^run\.jsonl:2: not a record"):
        list(read_records([lines[0], torn + b"\n"], "run.jsonl"))
