"""The preloaded library counts what strace sees, call for call."""

import os
import re
import resource
import shutil
import subprocess
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from time import monotonic_ns

import pytest

from gspc_trio.compute.io.area import CALLS, FLAGS, SIZES, SOURCE, VARIABLE, Area
from gspc_trio.workflow.formats.in_tasks.native import CompileError, c_library, compiler_command

PROGRAM = Path(__file__).parent / "io_program.c"
READS = {"read", "pread64", "readv", "preadv", "preadv2"}
WRITES = {"write", "pwrite64", "writev", "pwritev", "pwritev2"}
LINE = re.compile(r"^(?:(\d+) +)?(?:<\.\.\. )?(\w+)(?:\((\d+)<(.*?)>| resumed).* = (-?\d+)")


@pytest.fixture(scope="module")
def tools(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """The library, and the program."""
    try:
        words = compiler_command("CC", "cc", "C")
    except CompileError as error:
        pytest.skip(str(error))
    program = tmp_path_factory.mktemp("io") / "program"
    subprocess.run([*words, "-w", "-O1", "-pthread", "-o", str(program), str(PROGRAM)], check=True)
    return c_library(Path(SOURCE).read_text(encoding="utf-8"), FLAGS), program


@pytest.fixture
def area(tmp_path: Path) -> Iterator[tuple[Area, str]]:
    path = tmp_path / "area"
    with path.open("w+b") as file:
        made = Area.make(file.fileno())
        yield made, str(path)
        made.close()


def run(tools: tuple[Path, Path], path: str, folder: Path, *words: str, trace: Path | None = None) -> None:
    library, program = tools
    folder.mkdir()
    environment = {**os.environ, VARIABLE: path, "LD_PRELOAD": str(library)}
    before: list[str] = []
    if trace is not None:
        calls = ",".join(sorted(READS | WRITES))
        before = ["strace", "-f", "-y", "-e", f"trace={calls}", "-o", str(trace)]
        before += [f"-E{name}={environment.pop(name)}" for name in (VARIABLE, "LD_PRELOAD")]
    command = [*before, str(program), *words]
    subprocess.run(command, cwd=folder, env=environment, check=True)


def range_of(size: int) -> str:
    most = [100, *(n << 10 for n in (1, 10, 100, 1024, 4096, 10240, 102400, 1 << 20))]
    return SIZES[sum(size > one for one in most)]


def seen_by_strace(trace: Path, folder: Path) -> Counter[str]:
    """What the library should say of files in this folder."""
    found: Counter[str] = Counter()
    begun: dict[tuple[str, str], str] = {}
    for line in trace.read_text().splitlines():
        if "<unfinished" in line and (match := re.match(r"(\d+) +(\w+)\(\d+<(.*?)>", line)):
            begun[match[1], match[2]] = match[3]
            continue
        match = LINE.match(line)
        if match is None:
            continue
        path = match[4] or begun.pop((match[1], match[2]), "")
        if Path(path).parent != folder or int(match[5]) < 0:
            continue
        direction = "read" if match[2] in READS else "write"
        found[f"file_{direction}_bytes"] += int(match[5])
        found[f"file_{direction}_to_{range_of(int(match[5]))}"] += 1
    return found


def counted(area: Area) -> dict[str, int]:
    sums = area.sums()
    return dict(zip(CALLS, map(sum, zip(sums.even, sums.odd, strict=True)), strict=True))


@pytest.mark.skipif(shutil.which("strace") is None, reason="strace is not installed")
def test_it_counts_what_strace_sees(tools: tuple[Path, Path], area: tuple[Area, str], tmp_path: Path) -> None:
    folder, trace = tmp_path / "files", tmp_path / "trace"
    run(tools, area[1], folder, trace=trace)
    expected = seen_by_strace(trace, folder)
    found = counted(area[0])
    assert expected["file_read_bytes"] > 100_000
    assert expected["file_write_to_10KiB"] > 5
    sizes = {name: amount for name, amount in found.items() if "_to_" in name or "bytes" in name}
    assert {name: amount for name, amount in sizes.items() if amount} == dict(expected)
    for direction in ("read", "write"):
        operations = sum(amount for name, amount in found.items() if f"{direction}_to_" in name)
        patterns = sum(found[f"file_{direction}_{name}"] for name in ("consecutive", "forward", "random"))
        assert patterns == operations
    # "first" in the process itself, in its fork, and in the program that a fork became.
    assert (found["file_read_files"], found["file_write_files"]) == (3, 2)
    others = area[0].sums().others
    assert others == (40, 40)
    assert [pid for pid, _ in area[0].slots() if pid and _is_alive(pid)] == []


def _is_alive(pid: int) -> bool:
    return os.path.exists(f"/proc/{pid}")


def test_ten_thousand_open_files(tools: tuple[Path, Path], area: tuple[Area, str], tmp_path: Path) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    count = 10_000
    if hard != resource.RLIM_INFINITY and hard < count + 100:
        pytest.skip(f"only {hard} files may be open")
    resource.setrlimit(resource.RLIMIT_NOFILE, (count + 100, hard))
    try:
        run(tools, area[1], tmp_path / "files", "many", str(count))
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    found = counted(area[0])
    assert (found["file_write_files"], found["file_write_to_100"]) == (count, count)
    assert (found["file_write_bytes"], found["file_write_consecutive"]) == (sum(range(50)) * 200, count)


def test_a_task_counts_its_files_anew_and_an_operation_is_of_the_frame_in_which_it_ends(
    tools: tuple[Path, Path], area: tuple[Area, str], tmp_path: Path
) -> None:
    one, path = area
    for frame in range(2):
        one.next_task()
        before = one.sums()
        one.set_clock((10_000_000 + 5 * frame) * 10**9 - monotonic_ns())  # the frame has just begun
        run(tools, path, tmp_path / f"files{frame}", "many", "3")
        after = one.sums()
        grown = [
            sum(now - then for now, then in zip(new, old, strict=True))
            for new, old in ((after.even, before.even), (after.odd, before.odd))
        ]
        assert [bool(each) for each in grown] == [frame == 0, frame == 1]
    assert counted(one)["file_write_files"] == 6
