"""Directories of tasks: made, read and removed without following a link, swept when their owner is gone."""

from __future__ import annotations

import errno
import os
import tempfile
import threading
from pathlib import Path

import pytest

from gspc_trio.compute.folders import PREFIX, BadFile, Folder, Folders, remove_tree, sweep


def write(folder: Folder, *parts: str, content: bytes = b"x") -> None:
    descriptor = folder.create(parts)
    os.write(descriptor, content)
    os.close(descriptor)


def test_each_task_has_a_directory_of_its_own(tmp_path: Path) -> None:
    folders = Folders(str(tmp_path))
    first, second = folders.make(), folders.make()
    write(first, "sub", "deep", "file", content=b"content")
    descriptor, size_bytes = first.open(("sub", "deep", "file"))
    assert (os.read(descriptor, 100), size_bytes) == (b"content", 7)
    os.close(descriptor)
    with pytest.raises(FileNotFoundError):
        second.open(("sub", "deep", "file"))
    assert os.stat(first.path).st_mode & 0o777 == 0o700
    first.remove()
    assert not os.path.exists(first.path)
    folders.close()
    assert os.listdir(tmp_path) == []


def test_what_is_there_is_not_written_over(tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.write_text("old")
    folder = Folders(str(tmp_path)).make()
    os.symlink(outside, os.path.join(folder.path, "link"))
    os.symlink(tmp_path, os.path.join(folder.path, "way"))
    with pytest.raises(FileExistsError):
        folder.create(("link",))
    with pytest.raises(BadFile, match="way is a link"):
        folder.create(("way", "x"))
    write(folder, "file")
    with pytest.raises(BadFile, match="file is a link or no directory"):
        folder.create(("file", "x"))
    assert outside.read_text() == "old"
    assert sorted(name for name in os.listdir(tmp_path) if not name.startswith(PREFIX)) == ["outside"]


def test_a_device_is_not_read(tmp_path: Path) -> None:
    folder = Folders(str(tmp_path)).make()
    try:
        os.mknod(os.path.join(folder.path, "null"), 0o020666, os.makedev(1, 3))
    except PermissionError:
        os.mkfifo(os.path.join(folder.path, "null"))
    with pytest.raises(BadFile, match="null is no plain file"):
        folder.open(("null",))


def test_many_threads_make_directories_in_one_home(tmp_path: Path) -> None:
    folders, made = Folders(str(tmp_path)), list[Folder]()
    threads = [threading.Thread(target=lambda: made.append(folders.make())) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len({folder.path for folder in made}) == 8
    assert len(os.listdir(tmp_path)) == 1
    folders.close()
    assert os.listdir(tmp_path) == []


def test_only_what_nobody_owns_is_swept(tmp_path: Path) -> None:
    living = Folders(str(tmp_path))
    write(living.make(), "file")
    left = tmp_path / f"{PREFIX}left"
    left.mkdir()
    (left / "file").touch()
    (tmp_path / f"{PREFIX}link").symlink_to(left)
    (tmp_path / "other").mkdir()
    sweep(str(tmp_path))
    assert not left.exists()
    assert sorted(os.listdir(tmp_path)) == sorted([os.path.basename(living._home), f"{PREFIX}link", "other"])
    living.close()
    sweep(str(tmp_path / "nothing"))


def test_one_that_is_swept_before_it_is_locked_is_made_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make, made = tempfile.mkdtemp, list[str]()

    def make_and_sweep(prefix: str, dir: str) -> str:
        made.append(make(prefix=prefix, dir=dir))
        if len(made) == 1:
            sweep(dir)  # as somebody else does at this very moment
        return made[-1]

    monkeypatch.setattr(tempfile, "mkdtemp", make_and_sweep)
    folders = Folders(str(tmp_path))
    assert os.path.dirname(folders.make().path) == made[1]
    folders.close()


def test_links_are_removed_and_not_followed(tmp_path: Path) -> None:
    kept = tmp_path / "kept"
    kept.mkdir()
    (kept / "file").touch()
    gone = tmp_path / "gone"
    (gone / "locked").mkdir(parents=True)
    (gone / "locked" / "file").touch()
    (gone / "link").symlink_to(kept)
    (gone / "locked").chmod(0)
    remove_tree(str(gone))
    assert not gone.exists()
    assert (kept / "file").exists()


def test_descriptors_are_given_back(tmp_path: Path) -> None:
    before = len(os.listdir("/proc/self/fd"))
    folders = Folders(str(tmp_path))
    folder = folders.make()
    for name in ("nothing", "no/thing"):
        with pytest.raises(OSError, match="No such file") as raised:
            folder.open(name.split("/"))
        assert raised.value.errno == errno.ENOENT
    write(folder, "a", "b")
    with pytest.raises(FileExistsError):
        folder.create(("a", "b"))
    folders.close()
    assert len(os.listdir("/proc/self/fd")) == before


@pytest.fixture
def tree(tmp_path: Path) -> Folder:
    folder = Folders(str(tmp_path)).make()
    for path in ("a.txt", "b.txt", "c.log", ".hidden.txt", "x/a.txt", "x/y/a.txt", "x/.z/h.txt", "[1].txt"):
        write(folder, *path.split("/"))
    return folder


@pytest.mark.parametrize(
    ("pattern", "found"),
    [
        ("*.txt", "[1].txt a.txt b.txt"),
        ("?.txt", "a.txt b.txt"),
        ("[!a].*", "b.txt c.log"),
        ("[[]1].txt", "[1].txt"),
        (".*", ".hidden.txt"),
        ("*/a.txt", "x/a.txt"),
        ("x/*/*.txt", "x/y/a.txt"),
        ("**/a.txt", "a.txt x/a.txt x/y/a.txt"),
        ("x/**/*", "x/a.txt x/y/a.txt"),
        ("x/**", "x/a.txt x/y/a.txt"),
        ("x/", "x/.z/h.txt x/a.txt x/y/a.txt"),
        ("a.txt", "a.txt"),
        ("nothing/*", ""),
        ("*.csv", ""),
        ("*/nothing", ""),
        ("**/h.txt", ""),
    ],
)
def test_a_pattern_finds_what_a_shell_would(tree: Folder, pattern: str, found: str) -> None:
    assert tree.find(pattern, 100) == sorted(found.split())


def test_all_of_a_directory_is_found(tree: Folder) -> None:
    assert len(tree.find("./", 100)) == 8
    with pytest.raises(FileNotFoundError):
        tree.find("nothing/", 100)


@pytest.mark.parametrize("pattern", ["*.txt", "**/*.txt", "./", "linked/*", "*/passwd"])
def test_a_link_that_matches_is_refused_and_not_followed(tree: Folder, pattern: str) -> None:
    os.symlink("/etc/passwd", os.path.join(tree.path, "p.txt"))
    os.symlink("/etc", os.path.join(tree.path, "linked"))
    with pytest.raises(BadFile, match="is a link"):
        tree.find(pattern, 100)


def test_links_to_directories_are_passed_by_where_any_depth_is_meant(tree: Folder) -> None:
    os.symlink("/etc", os.path.join(tree.path, "linked"))
    assert tree.find("**/a.txt", 100) == ["a.txt", "x/a.txt", "x/y/a.txt"]


def test_too_many_files_too_deep_ones_and_names_that_are_no_text_are_refused(tree: Folder) -> None:
    with pytest.raises(BadFile, match=r"\*\*/\*\.txt stands for more files than a task may have \(4, "):
        tree.find("**/*.txt", 4)
    Path(os.fsdecode(os.fsencode(tree.path) + b"/\xff")).touch()
    with pytest.raises(BadFile, match="is no text in UTF-8"):
        tree.find("./", 100)
    deep = Path(tree.path)
    for _ in range(110):
        deep /= "d"
        deep.mkdir()
    with pytest.raises(BadFile, match="nested too deep"):
        tree.find("**/*.csv", 100)


@pytest.mark.parametrize(
    ("pattern", "there"),
    [
        ("x/*.csv", "in x/ there is .z, a.txt, y"),
        ("nothing/*.csv", "there is no directory nothing"),
        ("x/no/*.csv", "there is no directory x/no"),
        ("*.csv", "in the directory there is .hidden.txt, [1].txt, a.txt, b.txt, c.log, x"),
    ],
)
def test_where_nothing_matches_it_is_said_what_is_there(tree: Folder, pattern: str, there: str) -> None:
    assert tree.tell(pattern) == there


def test_what_is_there_is_told_in_part(tmp_path: Path) -> None:
    folder = Folders(str(tmp_path)).make()
    for number in range(12):
        write(folder, f"{number:02}\n")
    assert folder.tell("*.csv").startswith("in the directory there is '00\\n', '01\\n', ")
    assert folder.tell("*.csv").endswith("and 2 more")
