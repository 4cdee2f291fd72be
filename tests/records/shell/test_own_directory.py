"""The directory of a journal or of a state: for one user, and for one process at a time."""

from __future__ import annotations

from pathlib import Path

import pytest
from attrs import frozen

from gspc_trio.components.job.journal_bytes import About
from gspc_trio.components.job.shell.journal import create_journal
from gspc_trio.components.job.shell.journal_files import JournalError
from gspc_trio.components.rts.shell.state_files import StateError, open_state
from gspc_trio.records.shell.own_directory import own_directory

ABOUT = About("t", "t.py", "", (), {})
USED = "somebody uses"


@frozen
class Refused(ValueError):
    message: str


def test_it_is_made_for_one_user(tmp_path: Path) -> None:
    with own_directory(tmp_path / "a" / "b", USED, Refused):
        assert (tmp_path / "a" / "b").stat().st_mode & 0o777 == 0o700
    (tmp_path / "like").mkdir()
    assert (tmp_path / "a").stat().st_mode == (tmp_path / "like").stat().st_mode, "what is above is as usual"


@pytest.mark.parametrize("below", ["", "a/b"])
def test_a_file_is_none(tmp_path: Path, below: str) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(Refused) as refused, own_directory(tmp_path / "file" / below, USED, Refused):
        raise AssertionError("it was let in")
    assert refused.value.message == f"{tmp_path}/file is a file, and a directory is meant: name another one"


def test_it_is_for_one_process_at_a_time(tmp_path: Path) -> None:
    folder = tmp_path / "a"
    with own_directory(folder, USED, Refused):
        with pytest.raises(Refused) as refused, own_directory(folder, USED, Refused):
            raise AssertionError("it was let in")
    assert refused.value.message == f"somebody uses {folder}"
    with own_directory(folder, USED, Refused):
        pass


def test_a_link_in_the_place_of_the_lock_is_not_followed(tmp_path: Path) -> None:
    victim = tmp_path / "victim"
    folder = tmp_path / "a"
    folder.mkdir(mode=0o700)
    (folder / "lock").symlink_to(victim)
    with pytest.raises(OSError), own_directory(folder, USED, Refused):
        raise AssertionError("it was let in")
    assert not victim.exists()


@pytest.mark.parametrize("mode", [0o777, 0o755, 0o710])
def test_one_that_others_can_look_into_is_refused(tmp_path: Path, mode: int) -> None:
    tmp_path.chmod(mode)
    says = f"others can look into {tmp_path}: chmod 700 it, or name another directory"
    with pytest.raises(JournalError) as of_journal, create_journal(tmp_path, ABOUT):
        raise AssertionError("it was let in")
    with pytest.raises(StateError) as of_state, open_state(tmp_path):
        raise AssertionError("it was let in")
    assert str(of_journal.value) == str(of_state.value) == says


def test_nobody_is_told_to_shut_a_directory_that_is_for_something_else(tmp_path: Path) -> None:
    (tmp_path / "thesis.txt").write_text("mine")
    tmp_path.chmod(0o755)
    says = f"{tmp_path} is in use for something else: name another directory, or a new one"
    with pytest.raises(Refused) as refused, own_directory(tmp_path, USED, Refused):
        raise AssertionError("it was let in")
    assert refused.value.message == says


def test_who_has_it_is_said(tmp_path: Path) -> None:
    with create_journal(tmp_path / "j", ABOUT):
        with pytest.raises(JournalError, match="a job server that runs uses the journal"):
            with create_journal(tmp_path / "j", ABOUT):
                raise AssertionError("it was let in")
    with open_state(tmp_path / "s"):
        with pytest.raises(StateError, match="a run-time system that runs uses the state"):
            with open_state(tmp_path / "s"):
                raise AssertionError("it was let in")
