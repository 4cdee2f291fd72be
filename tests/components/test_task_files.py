"""Tasks with files of their own: what they fetch and store, and what never leads out of a directory.

Requirements: ASP-1.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import trio

from gspc_trio import (
    Data,
    Executor,
    JobFailed,
    JobSettings,
    Net,
    Program,
    StageLimits,
    each,
    farm,
    optional,
    take,
)
from gspc_trio.components.embed import open_rts
from gspc_trio.components.embedded_job import open_job
from gspc_trio.components.wire.codec import wire_codec
from gspc_trio.compute.folders import PREFIX
from gspc_trio.iml.shell.layer import join_layer
from gspc_trio.nursery.connections.network import Network
from gspc_trio.records.facts import TaskChanged
from gspc_trio.records.lines import decode_record
from tests.components.tasks.files import (
    copy,
    fail_the_first_time,
    hard_link,
    link_a_directory,
    link_out,
    make_a_directory,
    make_a_pipe,
    make_much,
    make_nothing,
    take_the_place_of_the_directory,
    where,
)

pytestmark = [pytest.mark.process, pytest.mark.usefixtures("folders")]

MIB = 1 << 20
HANG_S = 60.0


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    """What a job has for its files."""
    path = tmp_path / "job"
    (path / "corpus").mkdir(parents=True)
    for name in ("a", "b"):
        (path / "corpus" / f"{name}.txt").write_text(f"{name} zebra apple\n" * 100_000)
    return path


async def run(
    net: Net, directory: Path, data_bytes: int = 0, values: Any = None, **settings: Any
) -> dict[str, list[Any]]:
    with trio.fail_after(HANG_S):
        async with open_rts(cores=1, data_bytes=data_bytes) as rts:
            told = JobSettings(directory=str(directory), **settings)
            async with open_job(net, rts=rts, values=values or {}, settings=told) as job:
                return dict((await job.wait()).outputs)


def sort_net() -> Net:
    net = Net("sort")
    names = net.input("names")
    script = "mkdir sub; tr ' ' '\\n' < words.txt | sort > sub/sorted.txt; wc -l < sub/sorted.txt > count"
    net.transition(
        "sort",
        Program(["sh", "-c", script]),
        {"name": names},
        {"made": net.output("sorted")},
        stage_in={"words.txt": "corpus/{name}.txt"},
        stage_out={"sub/sorted.txt": Data("made"), "count": "counts/new/{name}"},
    )
    return net


@pytest.mark.parametrize("data_bytes", [0, 64 * MIB])
async def test_files_come_from_the_host_of_the_job_and_go_there(
    directory: Path, folders: Path, data_bytes: int
) -> None:
    outputs = await run(sort_net(), directory, data_bytes, {"names": ["a", "b"]})
    assert sorted(text[:16] for text in outputs["sorted"]) == [b"a\n" * 8, b"apple\napple\nappl"]
    assert [len(text) for text in outputs["sorted"]] == [14 * 100_000] * 2
    assert sorted(os.listdir(directory)) == ["corpus", "counts"]
    assert {path.name: path.read_text() for path in (directory / "counts" / "new").iterdir()} == {
        "a": "300000\n",
        "b": "300000\n",
    }
    assert os.listdir(folders) == []


def copy_net() -> Net:
    net = Net("copy")
    net.transition(
        "copy",
        copy,
        [net.input("contents")],
        {"copied": net.output("copied")},
        stage_in={"content": Data("contents")},
        stage_out={"copy": Data("copied")},
    )
    return net


@pytest.mark.parametrize("size_bytes", [0, 5, MIB])
@pytest.mark.parametrize("data_bytes", [0, 64 * MIB])
async def test_values_become_files_and_files_values(
    directory: Path, folders: Path, size_bytes: int, data_bytes: int
) -> None:
    content = bytes(range(256)) * (size_bytes // 256) + b"x" * (size_bytes % 256)
    outputs = await run(copy_net(), directory, data_bytes, {"contents": [content]})
    assert outputs == {"copied": [content]}
    assert os.listdir(folders) == []


SPLIT = """
split -l 1 text.txt part-; mkdir -p out/deep; cp corpus/*.txt out; cp text.txt out/deep/.text; ls > out/list
"""
MERGE = "find . -type f | sort; cat parts/*"


def sets_net() -> Net:
    """One task leaves sets of files, another one finds them."""
    net = Net("sets")
    parts, trees, names = net.place("parts"), net.place("trees"), net.input("names")
    net.transition(
        "split",
        Program(["sh", "-c", SPLIT]),
        {"_text": net.input("texts"), "name": names},
        {"parts": each(parts), "tree": trees, "lists": net.output("lists"), "none": net.output("none")},
        stage_in={"text.txt": Data("_text"), "corpus/": "{name}/*.txt", "notes/": optional("notes/{name}/")},
        stage_out={
            "part-*": Data("parts"),
            "out/": Data("tree"),
            "out/*.txt": Data("lists"),
            "log": optional(Data("none")),
            "out/**/.*": "hidden/{name}-{index}",
            "corpus/": "copies/{name}/",
            "*.csv": optional("csv/"),
        },
    )
    net.transition(
        "merge",
        Program(["sh", "-c", MERGE]),
        {"_parts": take(parts, 3), "_tree": trees, "_names": net.input("others")},
        {"stdout": net.output("told")},
        stage_in={"parts/{index:02}": Data("_parts"), "./": Data("_tree"), "all/": "{_names}.txt"},
    )
    return net


@pytest.mark.parametrize("data_bytes", [0, MIB, 64 * MIB])
async def test_sets_of_files_come_and_go(directory: Path, folders: Path, data_bytes: int) -> None:
    """Those of more than 64 KiB lie in the memory layer, if there is one that has room."""
    lines = [letter * 70_000 for letter in "xyz"]
    values = {
        "texts": ["\n".join(lines) + "\n"],
        "names": ["corpus"],
        "others": [["corpus/a", "corpus/b"]],
    }
    outputs = await run(sets_net(), directory, data_bytes, values)
    texts = [(directory / "corpus" / f"{name}.txt").read_bytes() for name in "ab"]
    assert outputs["lists"] == [texts]
    assert outputs["none"] == [None]
    told = outputs["told"][0].split("\n")
    expected = "./a.txt ./all/a.txt ./all/b.txt ./b.txt ./deep/.text ./list ./parts/00 ./parts/01 ./parts/02"
    assert told == [*expected.split(), *lines, ""]
    assert (directory / "hidden" / "corpus-0").read_text() == values["texts"][0]
    assert [(directory / "copies/corpus" / f"{name}.txt").read_bytes() for name in "ab"] == texts
    assert sorted(os.listdir(directory)) == ["copies", "corpus", "hidden"]
    assert os.listdir(folders) == []


async def test_a_range_in_the_layer_becomes_a_file() -> None:
    with trio.fail_after(HANG_S):
        async with open_rts(cores=1, data_bytes=64 * MIB) as rts:
            assert rts.data is not None
            async with join_layer(Network(wire_codec, rts.data.token), rts.data.address) as iml:
                data = await iml.alloc(3000, b"a" * 1000 + b"b" * 1000 + b"c" * 1000)
                placed = await iml.placed(data.range(990, 20))
                async with open_job(copy_net(), rts=rts, values={"contents": [placed]}) as job:
                    outputs = (await job.wait()).outputs
    assert outputs["copied"] == [b"a" * 10 + b"b" * 10]


@pytest.mark.parametrize(
    ("attack", "name", "problem"),
    [
        (link_out, "copy", "copy is a link or a device"),
        (link_a_directory, "sub/passwd", "sub is a link or no directory"),
        (hard_link, "copy", "copy has several names"),
        (make_a_pipe, "copy", "copy is no plain file"),
        (make_a_directory, "copy", "copy is no plain file"),
        (make_nothing, "copy", "it has not made the file copy"),
        (make_much, "copy", "200000 bytes in a file are more than it may have"),
        (take_the_place_of_the_directory, "passwd", "it has not made the file passwd"),
    ],
)
async def test_stage_out_takes_plain_files_of_the_task_alone(
    directory: Path, folders: Path, attack: Callable[..., None], name: str, problem: str
) -> None:
    net = farm(attack, stage_out={name: "stolen"})
    with pytest.raises(JobFailed, match=problem):
        await run(net, directory, values={"items": [b""]}, stage=StageLimits(file_bytes_max=100_000))
    assert not (directory / "stolen").exists()
    assert os.listdir(folders) == []


@pytest.mark.parametrize(
    ("item", "problem"),
    [
        ("../../../etc/passwd", "leads out of its directory"),
        ("a.txt\0", "no name of a file"),
        ("", "leads out of its directory, or has empty parts"),
        ("nothing.txt", "No such file"),
        ("link.txt", "is a link or a device"),
        ("linked/passwd", "linked is a link or no directory"),
        ("pipe", "is no plain file"),
        (".", "leads out"),
        ("large", "are more than it may have"),
    ],
)
async def test_stage_in_takes_plain_files_of_the_jobs_directory_alone(
    directory: Path, item: str, problem: str
) -> None:
    corpus = directory / "corpus"
    (corpus / "link.txt").symlink_to("/etc/passwd")
    (corpus / "linked").symlink_to("/etc")
    os.mkfifo(corpus / "pipe")
    (corpus / "large").write_bytes(bytes(200_000))
    net = farm(make_nothing, stage_in={"in.txt": "corpus/{item}"})
    with pytest.raises(JobFailed, match=problem):
        await run(net, directory, values={"items": [item]}, stage=StageLimits(file_bytes_max=100_000))


async def test_files_go_nowhere_else(directory: Path, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (directory / "out").symlink_to(outside)
    net = farm(copy, stage_in={"content": Data("item")}, stage_out={"copy": "out/x"})
    with pytest.raises(JobFailed, match="out is a link or no directory"):
        await run(net, directory, values={"items": [b"x"]})
    assert os.listdir(outside) == []


async def test_a_file_takes_the_place_of_the_one_before(directory: Path, tmp_path: Path) -> None:
    """Also of a link, which is not followed."""
    outside = tmp_path / "outside"
    outside.write_text("old")
    (directory / "x").symlink_to(outside)
    net = farm(copy, stage_in={"content": Data("item")}, stage_out={"copy": "x"})
    await run(net, directory, values={"items": [b"new" * MIB]})
    assert (directory / "x").read_bytes() == b"new" * MIB
    assert not (directory / "x").is_symlink()
    assert outside.read_text() == "old"
    assert sorted(os.listdir(directory)) == ["corpus", "x"]


async def test_more_files_than_there_may_be_are_refused(directory: Path) -> None:
    net = farm(make_nothing, stage_in={str(number): Data("item") for number in range(4)})
    with pytest.raises(JobFailed, match="it has 4 files to fetch; at most 3 may be"):
        await run(net, directory, values={"items": [b""]}, stage=StageLimits(files_max=3))


async def test_a_value_that_is_no_bytes_becomes_no_file(directory: Path) -> None:
    with pytest.raises(JobFailed, match="its file content: it is neither bytes nor text"):
        await run(copy_net(), directory, values={"contents": [{1: 2}]})
    outputs = await run(copy_net(), directory, values={"contents": ["größer"]})
    assert outputs["copied"] == ["größer".encode()]


async def test_threads_have_no_files(directory: Path) -> None:
    with pytest.raises(JobFailed, match="need compute in processes, not in threads"):
        await run(copy_net(), directory, values={"contents": [b""]}, threads=True)


async def test_a_failed_attempt_leaves_nothing(directory: Path, folders: Path, tmp_path: Path) -> None:
    net = farm(fail_the_first_time, stage_out={"copy": "made"}, attempts=2)
    await run(net, directory, values={"items": [str(tmp_path / "marker")]})
    assert (directory / "made").read_text() == "all of it"
    assert os.listdir(folders) == []


async def test_records_tell_when_a_task_was_staged(directory: Path, tmp_path: Path) -> None:
    path = tmp_path / "records"
    with trio.fail_after(HANG_S):
        async with open_rts(cores=1) as rts:
            settings = JobSettings(directory=str(directory))
            values = {"names": ["a"]}
            async with open_job(
                sort_net(), rts=rts, values=values, settings=settings, records_path=path
            ) as job:
                await job.wait()
    records = [decode_record(line) for line in path.read_text().splitlines()]
    [ended] = [one for one in records if isinstance(one, TaskChanged) and one.state == "finished"]
    in_begin_s, in_end_s, out_begin_s, out_end_s = ended.staged_s
    ended_s = ended.started_s + ended.duration_s
    assert 1e9 < in_begin_s < in_end_s <= ended.started_s < ended_s <= out_begin_s < out_end_s


def test_a_task_without_files_runs_where_the_job_does() -> None:
    with Executor(cores=1) as executor:
        assert executor.submit(where).result(HANG_S) == os.getcwd()


async def test_what_killed_owners_left_is_removed(directory: Path, folders: Path) -> None:
    left = folders / f"{PREFIX}left" / "1" / "deep"
    left.mkdir(parents=True)
    (left / "link").symlink_to(directory)
    left.chmod(0)
    await run(copy_net(), directory, values={"contents": [b"x"]})
    assert os.listdir(folders) == []
    assert (directory / "corpus").is_dir()


KILLED = """
import time
from pathlib import Path
import trio
from gspc_trio import Data, JobSettings, farm, open_job, open_rts

def wait(_):
    Path({begun!r}).touch()
    time.sleep(1000)

async def main():
    async with open_rts(cores=1) as rts:
        net = farm(wait, stage_in={{"content": Data("item")}})
        async with open_job(net, rts=rts, values={{"items": [b"x", b"y"]}}):
            pass

trio.run(main)
"""


def test_a_killed_owner_leaves_no_directory(folders: Path, tmp_path: Path) -> None:
    """Its template removes them, or whoever comes next."""
    begun, script = tmp_path / "begun", tmp_path / "killed.py"
    script.write_text(KILLED.format(begun=str(begun)))
    process = subprocess.Popen([sys.executable, script], env={**os.environ, "TMPDIR": str(folders)})
    try:
        wait_until(begun.exists)
        assert os.listdir(folders)
    finally:
        process.kill()
        process.wait()
    wait_until(lambda: os.listdir(folders) == [])


def wait_until(condition: Callable[[], bool]) -> None:
    end = time.monotonic() + HANG_S
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.01)
