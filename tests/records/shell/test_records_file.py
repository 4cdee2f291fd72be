"""The file for records: one run at a time has it, and what is no file of records stays as it is."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from gspc_trio.records.shell.records_file import (
    check_records_file,
    close_records_file,
    open_records_file,
    part_of,
)

LINE = b'{"record":"StreamOpened","at_s":0.0,"wall_offset_s":0.0,"version":""}\n'


def test_records_of_an_earlier_run_are_replaced_but_not_by_looking(tmp_path: Path) -> None:
    path = tmp_path / "run.jsonl"
    path.write_bytes(LINE * 3)
    check_records_file(path)
    assert path.read_bytes() == LINE * 3
    file = open_records_file(path)
    file.write(LINE)
    close_records_file(file)
    assert path.read_bytes() == LINE


@pytest.mark.parametrize("before", [b"", b'{"rec', b'{ "record": "StreamOpened"}\n'])
def test_an_empty_file_and_one_of_a_run_that_was_killed_can_be_used(tmp_path: Path, before: bytes) -> None:
    path = tmp_path / "run.jsonl"
    path.write_bytes(before)
    close_records_file(open_records_file(path))
    assert path.read_bytes() == b""


@pytest.mark.parametrize("before", [b"def workflow():\n", b"\x00\x01", b'{"version": 1, "times": []}'])
def test_what_holds_something_else_stays_as_it_is(tmp_path: Path, before: bytes) -> None:
    path = tmp_path / "flow.py"
    path.write_bytes(before)
    for use in (check_records_file, open_records_file):
        with pytest.raises(OSError, match="something else than records, and stays as it is"):
            use(path)
    assert path.read_bytes() == before


def test_two_runs_do_not_write_to_one_file(tmp_path: Path) -> None:
    path = tmp_path / "run.jsonl"
    first = open_records_file(path)
    first.write(LINE)
    first.flush()
    for use in (check_records_file, open_records_file):
        with pytest.raises(OSError, match="another run writes its records there: name another file"):
            use(path)
    assert path.read_bytes() == LINE
    held = os.dup(first.fileno())  # a process that was forked meanwhile
    close_records_file(first)
    close_records_file(open_records_file(path))
    os.close(held)


def test_devices_are_written_to_and_directories_are_not(tmp_path: Path) -> None:
    check_records_file(Path(os.devnull))
    close_records_file(open_records_file(Path(os.devnull)))
    for path, error in [(tmp_path, IsADirectoryError), (tmp_path / "no" / "file", FileNotFoundError)]:
        with pytest.raises(error):
            check_records_file(path)


def test_each_attempt_to_run_a_job_has_its_own_file() -> None:
    names = [part_of(Path("a/run.jsonl"), attempt) for attempt in (1, 2, 3)]
    assert names == [Path("a/run.jsonl"), Path("a/run.2.jsonl"), Path("a/run.3.jsonl")]
