"""Replaying a record file: at any speed, to any time, always the state that the records tell."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gspc_trio.records.facts import JobChanged, Record, TaskChanged
from gspc_trio.records.lines import encode_record
from gspc_trio.tui import replay
from gspc_trio.tui.model import Model
from gspc_trio.tui.replay import BadRecordFile, Player
from tests.tui.support import FAILED, FINISHED, READY, RUNNING, WALL_S, host, job_stream, opened, task


def write(path: Path, records: list[Record]) -> Path:
    path.write_text("".join(encode_record(record) + "\n" for record in records))
    return path


def run_of(seconds: int) -> list[Record]:
    """A run that begins a task each second, each of which takes two, and every fifth of which fails."""
    records: list[Record] = [opened(), *host("r1", "alpha", 3), JobChanged(0.0, "j1", "running", "fit")]
    for n in range(seconds):
        core = f"r1.core{n % 3}"
        records += [task(n, n, READY, attempt=0), task(n + 0.1, n, RUNNING, core)]
        if n >= 2:
            end = FAILED if n % 5 == 0 else FINISHED
            records.append(task(n + 0.5, n - 2, end, f"r1.core{(n - 2) % 3}", started_s=WALL_S + n - 2))
    records.append(JobChanged(float(seconds), "j1", "failed", "fit", "a task failed"))
    return records


@pytest.fixture
def player(tmp_path: Path) -> Iterator[Player]:
    player = Player(write(tmp_path / "run.records", run_of(60)))
    yield player
    player.close()


def facts(model: Model) -> object:
    return model.jobs(), model.tasks(None), list(model.log), dict(model.held)


def test_time_passes_at_the_speed_that_is_set(player: Player) -> None:
    player.advance(3.0)
    assert player.position_s == 3.0
    assert player.model.now_s == WALL_S + 3.0
    assert player.model.job("j1").counts[READY] == 1  # that of the third second, just now
    player.faster(4.0)
    player.advance(1.0)
    assert (player.speed, player.position_s) == (4.0, 7.0)
    player.paused = True
    player.advance(10.0)
    assert player.position_s == 7.0


def test_it_ends_with_the_run(player: Player) -> None:
    player.advance(1e6)
    assert (player.position_s, player.length_s, player.at_end) == (60.0, 60.0, True)
    assert player.model.job("j1").state == "failed"
    assert player.model.log[-1].text == "job j1 (fit) failed: a task failed"


def test_every_second_has_its_value(player: Player) -> None:
    player.seek(50.0)
    assert len(player.model.rate.last(600)) == 51
    assert player.model.rate.last(2) == [1.0, 0.0] or player.model.rate.last(2) == [1.0, 1.0]


def test_a_step_is_one_record(player: Player) -> None:
    player.seek(10.0)
    before = player.model.job("j1").counts
    player.step()
    after = player.model.job("j1").counts
    assert player.paused
    assert (before[READY], after[READY], after[RUNNING]) == (1, 0, before[RUNNING] + 1)


def test_going_back_and_forth_tells_the_same(player: Player) -> None:
    player.seek(30.0)
    there = facts(player.model)
    player.seek(55.0)
    player.seek(12.0)
    player.seek(30.0)
    assert facts(player.model) == there


@settings(max_examples=40)
@given(st.lists(st.floats(-5, 70), min_size=1, max_size=8))
def test_any_seeks_with_checkpoints_tell_what_the_records_tell(
    tmp_path_factory: pytest.TempPathFactory, times: list[float]
) -> None:
    path = write(tmp_path_factory.mktemp("replay") / "run.records", run_of(60))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(replay, "CHECKPOINT_RECORDS", 20)
        player, straight = Player(path), Player(path)
        for at_s in times:
            player.seek(at_s)
        straight.seek(times[-1])
        assert player.position_s == straight.position_s
        assert facts(player.model) == facts(straight.model)
        assert player.model.cores.last(5) == straight.model.cores.last(5)
        player.close()
        straight.close()


@pytest.mark.parametrize(
    ("text", "at_s"), [("30", 30.0), ("0:30", 30.0), ("0:00:12.5", 12.5), ("50%", 30.0), ("9:99:99", 60.0)]
)
def test_a_time_is_written_as_people_write_it(player: Player, text: str, at_s: float) -> None:
    player.seek_text(text)
    assert player.position_s == at_s


@pytest.mark.parametrize("text", ["soon", "1:2:3:4", "-5", "%", ""])
def test_what_is_no_time_is_refused(player: Player, text: str) -> None:
    with pytest.raises(ValueError, match="is no time of this run"):
        player.seek_text(text)
    assert player.position_s == 0.0


def test_a_fast_replay_takes_no_more_than_it_can_at_one_time(tmp_path: Path) -> None:
    records: list[Record] = [opened(), *(task(1.0, n, READY) for n in range(100))]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(replay, "ADVANCE_RECORDS_MAX", 30)
        player = Player(write(tmp_path / "run.records", records))
        player.advance(5.0)
        assert player.model.job("j1").counts[READY] == 29
        player.advance(5.0)
        assert player.model.job("j1").counts[READY] == 59
        player.close()


def test_a_last_line_that_was_not_written_whole_is_skipped(tmp_path: Path) -> None:
    path = write(tmp_path / "run.records", job_stream())
    whole = path.read_text()
    path.write_text(whole + '{"record":"TaskChanged","at_s":99')
    player = Player(path)
    player.seek(1e9)
    assert (player.skipped, player.length_s) == (1, 7.5)
    player.close()


def test_a_file_of_something_else_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "other"
    path.write_text("hello\n")
    with pytest.raises(BadRecordFile, match="is no record file"):
        Player(path)
    with pytest.raises(FileNotFoundError):
        Player(tmp_path / "missing")


def test_a_stream_without_a_head_can_be_replayed(tmp_path: Path) -> None:
    records = [record for record in job_stream() if isinstance(record, TaskChanged)]
    player = Player(write(tmp_path / "run.records", list(records)))
    player.seek(100.0)
    assert player.model.job("j1").total == 10
    player.close()
