"""The directory of a cache: who may use it, what survives damage, and what goes when there is too much."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from gspc_trio.components.job.cache import CacheEntry, CacheError, NotCacheable
from gspc_trio.components.job.shell.cache_files import (
    LEFT_BEHIND_S,
    TAG,
    CacheDirectory,
)
from gspc_trio.components.job.shell.identities import FileIdentities

KEYS = [bytes([number]) * 16 for number in range(10)]


def entry(size_bytes: int = 10) -> CacheEntry:
    return CacheEntry("work", ((bytes(size_bytes),),))


def test_two_runs_share_a_directory(tmp_path: Path) -> None:
    one, other = CacheDirectory(tmp_path / "made" / "here"), CacheDirectory(tmp_path / "made" / "here")
    assert one.get(KEYS[0]) is None
    one.put(KEYS[0], entry(1))
    assert other.get(KEYS[0]) == entry(1)
    other.put(KEYS[0], entry(2))
    assert one.get(KEYS[0]) == entry(2)
    assert other.clear()[0] == 1
    assert one.get(KEYS[0]) is None
    assert (tmp_path / "made" / "here").stat().st_mode & 0o777 == 0o700
    assert {file.stat().st_mode & 0o077 for file in (tmp_path / "made" / "here").iterdir()} == {0}


@pytest.mark.parametrize("mode", [0o755, 0o750, 0o702])
def test_a_directory_that_others_have_access_to_is_refused(tmp_path: Path, mode: int) -> None:
    CacheDirectory(tmp_path / "c").close()
    (tmp_path / "c").chmod(mode)
    with pytest.raises(
        CacheError, match=rf"others have access to the cache .* \(mode {mode:04o}\).*chmod 700"
    ):
        CacheDirectory(tmp_path / "c")


def test_a_directory_of_somebody_else_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    CacheDirectory(tmp_path / "c").close()
    monkeypatch.setattr(os, "geteuid", lambda: os.getuid() + 1)
    with pytest.raises(CacheError, match="belongs to another user"):
        CacheDirectory(tmp_path / "c")


def test_a_directory_with_other_files_is_refused(tmp_path: Path) -> None:
    (tmp_path / "thesis.txt").write_text("mine")
    for mode in (0o755, 0o700):  # nobody is told to shut a directory that is for something else
        tmp_path.chmod(mode)
        with pytest.raises(CacheError, match="is no cache of gspc-trio"):
            CacheDirectory(tmp_path)
    (tmp_path / TAG).write_text("Signature: 8a477f597d28d172789f06886806bc55\n# of another program\n")
    with pytest.raises(CacheError, match="is no cache of gspc-trio"):
        CacheDirectory(tmp_path)
    with pytest.raises(CacheError, match="name the directory of one"):
        CacheDirectory(tmp_path / "none", make=False)
    with pytest.raises(CacheError, match="is a file, and a directory is meant: name another"):
        CacheDirectory(tmp_path / "thesis.txt", make=False)


def test_a_directory_whose_tag_was_only_begun_is_a_cache(tmp_path: Path) -> None:
    tmp_path.chmod(0o700)
    begun = tmp_path / f".begun-{0:032x}"
    begun.write_bytes(b"Signa")
    with pytest.raises(CacheError, match="is no cache of gspc-trio"):
        CacheDirectory(tmp_path, make=False)
    CacheDirectory(tmp_path).put(KEYS[0], entry())
    assert CacheDirectory(tmp_path, make=False).get(KEYS[0]) == entry()
    (tmp_path / TAG).unlink()
    (tmp_path / ".begun-thesis").write_text("mine")
    with pytest.raises(CacheError, match="is no cache of gspc-trio"):
        CacheDirectory(tmp_path)


def test_damaged_entries_and_what_a_killed_run_has_left_are_not_there(tmp_path: Path) -> None:
    directory = CacheDirectory(tmp_path / "c")
    for key in KEYS[:4]:
        directory.put(key, entry(100))
    first, second, third, fourth = (tmp_path / "c" / key.hex() for key in KEYS[:4])
    first.write_bytes(first.read_bytes()[:-1])
    second.write_bytes(b"")
    third.write_bytes(b"x" + third.read_bytes()[1:])
    fourth.unlink()
    fourth.symlink_to(tmp_path / "elsewhere")
    assert [directory.get(key) for key in KEYS[:4]] == [None] * 4
    directory.put(KEYS[3], entry())
    assert directory.get(KEYS[3]) == entry()
    assert not (tmp_path / "elsewhere").exists()


def test_what_was_not_used_for_longest_goes_first(tmp_path: Path) -> None:
    directory = CacheDirectory(tmp_path / "c")
    for number, key in enumerate(KEYS):
        directory.put(key, entry(1000))
        os.utime(tmp_path / "c" / key.hex(), (number, number))
    assert directory.get(KEYS[0]) == entry(1000)  # now it was used
    left = directory.shrink(5_500, now_s=1e9)
    assert [file.name for file in directory.entries()] == [key.hex() for key in (*KEYS[-3:], KEYS[0])]
    assert left == sum(file.size_bytes for file in directory.entries()) <= 5_500


def test_files_that_nobody_finishes_are_removed(tmp_path: Path) -> None:
    directory = CacheDirectory(tmp_path / "c")
    begun = [tmp_path / "c" / f".begun-{number:032x}" for number in range(2)]
    for number, path in enumerate(begun):
        path.write_bytes(b"half")
        os.utime(path, (number * LEFT_BEHIND_S, number * LEFT_BEHIND_S))
    directory.shrink(1000, now_s=LEFT_BEHIND_S + 1)
    assert [path.exists() for path in begun] == [False, True]
    directory.clear()
    assert [path.name for path in (tmp_path / "c").iterdir()] == [TAG]


def test_files_are_told_apart_by_content_or_by_time(tmp_path: Path) -> None:
    file, other = tmp_path / "file", tmp_path / "other"
    file.write_text("one")
    other.write_text("one")
    os.utime(file, (1, 1))
    os.utime(other, (2, 2))
    content, time = FileIdentities(str(tmp_path), "content"), FileIdentities(str(tmp_path), "time")
    auto = FileIdentities("", "auto")
    assert content.identity("file") == content.identity("other") == auto.identity(str(file))
    assert time.identity("file") != time.identity("other")
    known = (("file", content.identity("file")),)
    assert content.are_same(known)
    file.write_text("two")
    assert not content.are_same(known)
    os.utime(file, (2, 2))
    assert time.identity("file") == time.identity("other")
    assert len({content.identity(name) for name in ("file", "none", "none/such", ".")}) == 3
    (tmp_path / "set").mkdir()
    empty = content.identity("set/"), content.identity("set/*.txt"), content.identity("set")
    (tmp_path / "set" / "1.txt").write_text("one")
    one = content.identity("set/"), content.identity("set/*.txt"), content.identity("set")
    (tmp_path / "set" / "1.txt").write_text("two")
    (tmp_path / "set" / "2").write_text("two")
    two = content.identity("set/"), content.identity("set/*.txt"), content.identity("set")
    assert [len(set(each)) for each in zip(empty, one, two, strict=True)] == [3, 3, 1]
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(NotCacheable, match="pipe is no plain file"):
        content.identity("pipe")
