"""Tasks that make files, and what is not to be taken for one."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any


def copy(content: Any = None) -> None:
    del content
    assert Path.cwd().name.isdigit()
    Path("copy").write_bytes(Path("content").read_bytes())


def link_out(_: Any) -> None:
    os.symlink("/etc/passwd", "copy")


def link_a_directory(_: Any) -> None:
    os.symlink("/etc", "sub")


def hard_link(_: Any) -> None:
    Path("other").write_text("secret")
    os.link("other", "copy")


def make_a_pipe(_: Any) -> None:
    os.mkfifo("copy")


def make_a_directory(_: Any) -> None:
    os.mkdir("copy")


def make_nothing(_: Any) -> None:
    pass


def make_much(_: Any) -> None:
    os.truncate(os.open("copy", os.O_CREAT | os.O_WRONLY), 200_000)


def take_the_place_of_the_directory(_: Any) -> None:
    """Whatever has the name of the directory afterwards, it is not where files are taken from."""
    here = os.getcwd()
    os.rename(here, here + "-old")
    os.symlink("/etc", here)


def fail_the_first_time(marker: str) -> None:
    Path("copy").write_text("half of it")
    if not Path(marker).exists():
        Path(marker).touch()
        raise OSError("not this time")
    Path("copy").write_text("all of it")


def where() -> str:
    return os.getcwd()
