"""Tasks in real compute processes: results, errors, output, limits, large values (RIF-2, RIF-3)."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import trio

from gspc_trio.components.worker.messages import OpenJob
from gspc_trio.components.worker.shell.compute import CpuClaims, ProcessBackend, open_process_backend
from gspc_trio.components.worker.shell.compute_channel import ChannelCompute, Printed
from gspc_trio.components.worker.shell.template_process import LIBRARIES
from gspc_trio.compute.code import function_code, program_code, source_code
from gspc_trio.core.code import Program
from gspc_trio.core.resources import Resource
from gspc_trio.core.task import Reason, TaskOptions
from gspc_trio.protocol.values import loads
from tests.components.tasks import behaviour
from tests.components.worker.shell import support
from tests.components.worker.shell.support import CORE, Recorder, a_job, submission, value_of

pytestmark = pytest.mark.process


@pytest.fixture
async def backend() -> AsyncIterator[ProcessBackend]:
    async with open_process_backend() as opened:
        yield opened


@pytest.fixture
async def recorder() -> Recorder:
    return Recorder()


@pytest.fixture
async def compute(backend: ProcessBackend, recorder: Recorder) -> ChannelCompute:
    return await backend.open(CORE, a_job(), recorder)


async def run_one(
    compute: ChannelCompute, recorder: Recorder, code: bytes, *arguments: Any, **options: Any
) -> Any:
    compute.define(1, code)
    compute.hand([submission(1, 1, *arguments, options=TaskOptions(**options))])
    return (await recorder.wait(1))[0]


async def test_tasks_run_in_order_in_one_other_process(compute: ChannelCompute, recorder: Recorder) -> None:
    compute.define(1, function_code(behaviour.identity))
    compute.define(2, function_code(behaviour.process_id))
    compute.hand([submission(number, 1, (number, "x")) for number in range(1, 600)])
    compute.hand([submission(600, 2)])
    outcomes = await recorder.wait(600)
    assert [outcome.task_id for outcome in outcomes] == list(range(1, 601))
    assert {outcome.reason for outcome in outcomes} == {Reason.FINISHED}
    assert value_of(outcomes[41]) == (42, "x")
    assert value_of(outcomes[-1]) == compute.pid != os.getpid()
    assert outcomes[0].started_s > 1e9
    assert 0 < outcomes[0].duration_s < 60


async def test_code_that_is_not_defined_is_refused_and_nothing_handed(
    compute: ChannelCompute, recorder: Recorder
) -> None:
    compute.define(1, function_code(behaviour.identity))
    with pytest.raises(KeyError, match="task 2 uses code 9, which is not defined"):
        compute.hand([submission(1, 1, "a"), submission(2, 9)])
    compute.hand([submission(3, 1, "b")])
    assert [outcome.task_id for outcome in await recorder.wait(1)] == [3]


async def test_a_callable_by_value_and_named_parameters(compute: ChannelCompute, recorder: Recorder) -> None:
    offset = 100
    code = function_code(lambda first, *, low, high: (first + offset, low, high), ["high", "low"])
    outcome = await run_one(compute, recorder, code, 1, "H", "L")
    assert value_of(outcome) == (101, "L", "H")


async def test_outputs_split_the_returned_mapping(compute: ChannelCompute, recorder: Recorder) -> None:
    code = function_code(behaviour.identity, outputs=[("total", False), ("words", True), (None, False)])
    returned = {"total": 3, "words": ["a", "b"]}
    outcome = await run_one(compute, recorder, code, returned)
    assert [[loads(data) for data in tokens] for tokens in outcome.values] == [[3], ["a", "b"], [returned]]


async def test_what_a_task_has_printed_can_be_read_while_it_runs(
    compute: ChannelCompute, recorder: Recorder, tmp_path: Path
) -> None:
    compute.define(1, function_code(behaviour.speak_and_wait))
    compute.hand([submission(1, 1, str(tmp_path / "go")), submission(2, 1, str(tmp_path))])
    printed = Printed()
    with trio.fail_after(support.PATIENCE_S):
        while not printed.stderr:
            await trio.sleep(0.01)  # nothing in this process tells
            printed = await compute.printed()
    assert printed == (b"step 1\nstep 2\n", b"careful\n", 14, 8)
    assert await compute.printed((7, 8)) == (b"step 2\n", b"", 14, 8)
    (tmp_path / "go").touch()
    first, second = await recorder.wait(2)
    assert (first.stdout, first.stderr) == printed[:2]
    assert (second.stdout, second.stderr) == printed[:2]
    assert await compute.printed() == Printed()
    await compute.kill()
    assert await compute.printed() == Printed()


async def test_what_a_program_has_written_can_be_read_while_it_runs(
    compute: ChannelCompute, recorder: Recorder, tmp_path: Path
) -> None:
    script = "seq -f 'line %.0f' 1 {lines} >&2; echo out; cat {fifo}; echo end"
    os.mkfifo(tmp_path / "fifo")
    compute.define(1, program_code(Program(["sh", "-c", script]), ["lines", "fifo"]))
    compute.hand(
        [submission(number, 1, lines, str(tmp_path / "fifo")) for number, lines in ((1, 3), (2, 10**6))]
    )
    for _ in range(2):
        printed = Printed()
        with trio.fail_after(support.PATIENCE_S):
            while not printed.stdout:
                await trio.sleep(0.01)  # nothing in this process tells
                printed = await compute.printed()
        last = printed.stderr
        assert printed.stdout == b"out\n"
        (tmp_path / "fifo").write_text("")
        await recorder.wait(1)
    assert len(last) == 65536
    assert last.endswith(b"line 1000000\n")
    outcomes = await recorder.wait(2)
    assert outcomes[0].stderr == b"line 1\nline 2\nline 3\n"
    assert [outcome.stdout for outcome in outcomes] == [b"out\nend\n"] * 2
    assert outcomes[1].stderr == last


async def test_a_missing_output_is_a_clear_failure(compute: ChannelCompute, recorder: Recorder) -> None:
    code = function_code(behaviour.identity, outputs=[("total", False)])
    outcome = await run_one(compute, recorder, code, {"sum": 3})
    assert outcome.reason is Reason.FAILED
    assert outcome.error.message == "the returned mapping has no port 'total'; it has 'sum'"


async def test_a_source_file_runs_and_shows_its_lines_in_tracebacks(
    compute: ChannelCompute, recorder: Recorder
) -> None:
    text = "class Bad(Exception):\n    pass\n\ndef main(word):\n    raise Bad(word)\n"
    outcome = await run_one(compute, recorder, source_code("/gone/tool.py", text), "why")
    assert (outcome.reason, outcome.error.kind, outcome.error.message) == (Reason.FAILED, "Bad", "why")
    expected = (
        'Traceback (most recent call last):\n  File "/gone/tool.py", line 5, in main\n    raise Bad(word)\n'
    )
    assert outcome.error.traceback == expected + "tool.Bad: why\n"
    assert str(loads(outcome.error.pickled)) == "why"


async def test_shipped_modules_come_before_the_search_path(
    backend: ProcessBackend, recorder: Recorder
) -> None:
    modules = {
        "shipped": (
            "/gone/shipped.py",
            "from shipped_lib import part\ndef work(x):\n    return part.twice(x)\n",
        ),
        "shipped_lib": ("/gone/shipped_lib/__init__.py", ""),
        "shipped_lib.part": ("/gone/shipped_lib/part.py", "def twice(x):\n    return x * 2\n"),
        behaviour.__name__: ("/gone/support.py", "def identity(x):\n    return 'shipped'\n"),
    }
    compute = await backend.open(CORE, a_job(modules=modules), recorder)
    compute.define(1, function_code(_as_of("shipped", "work")))
    compute.define(2, function_code(behaviour.identity))
    compute.hand([submission(1, 1, 21), submission(2, 2, 1), submission(3, 1, None)])
    outcomes = await recorder.wait(3)
    assert [value_of(outcome) for outcome in outcomes[:2]] == [42, "shipped"]
    assert (
        'File "/gone/shipped_lib/part.py", line 2, in twice\n    return x * 2' in outcomes[2].error.traceback
    )


def _as_of(module: str, name: str) -> Any:
    """A stand-in for a function of a module that only the job server can import."""
    stand_in = type(sys)(module)
    exec(f"def {name}(): pass", stand_in.__dict__)
    sys.modules[module] = stand_in
    return getattr(stand_in, name)


async def test_a_missing_module_is_the_failure_of_the_task(
    compute: ChannelCompute, recorder: Recorder
) -> None:
    outcome = await run_one(compute, recorder, function_code(_as_of("not_shipped", "work")))
    assert (outcome.reason, outcome.error.kind) == (Reason.FAILED, "ModuleNotFoundError")
    assert outcome.error.message == "No module named 'not_shipped'"


async def test_working_directory_and_pinning(
    backend: ProcessBackend, recorder: Recorder, tmp_path: Path
) -> None:
    cpu = min(os.sched_getaffinity(0))
    resource = Resource("r1.core0", "core", cpus=(cpu,), gpus=(2, 3))
    compute = await backend.open(resource, a_job(cwd=str(tmp_path)), recorder)
    compute.define(1, function_code(os.getcwd))
    compute.define(2, function_code(lambda: tuple(os.sched_getaffinity(0))))
    compute.define(3, function_code(lambda: os.environ["CUDA_VISIBLE_DEVICES"]))
    compute.hand([submission(number, number) for number in (1, 2, 3)])
    assert [value_of(outcome) for outcome in await recorder.wait(3)] == [str(tmp_path), (cpu,), "2,3"]


async def test_two_systems_do_not_pin_to_the_same_cpu(backend: ProcessBackend) -> None:
    allowed = tuple(sorted(os.sched_getaffinity(0)))
    core = Resource("r1.core0", "core", cpus=allowed[:1])
    affinity = function_code(lambda: tuple(sorted(os.sched_getaffinity(0))))

    async def where(of: ProcessBackend, job: OpenJob) -> Any:
        told = Recorder()
        return value_of(await run_one(await of.open(core, job, told), told, affinity))

    assert await where(backend, a_job("j1")) == core.cpus
    assert await where(backend, a_job("j2")) == core.cpus, "it is the same system"
    async with open_process_backend() as other:
        assert await where(other, a_job("j1")) == allowed
        assert await where(other, a_job("j2", threads=True)) == allowed
        await backend.aclose()
        assert await where(other, a_job("j3")) == core.cpus, "the CPU was given back"


def test_cpus_are_claimed_all_or_none() -> None:
    one, two = CpuClaims(), CpuClaims()
    assert one.take((1, 2))
    assert one.take((2, 1))
    assert not two.take((3, 2))
    assert two.take((0, 3))
    assert not one.take((3,))
    assert two.take(())
    one.close()
    assert two.take((1, 2))
    two.close()


async def test_output_is_kept_per_attempt_and_bounded(compute: ChannelCompute, recorder: Recorder) -> None:
    def talk(word: str) -> None:
        print(word)
        os.write(2, word.encode())

    compute.define(1, function_code(talk))
    compute.define(2, function_code(lambda: print("x" * 100_000 + "end")))
    compute.define(3, function_code(behaviour.nothing))
    compute.hand([submission(1, 1, "one"), submission(2, 1, "two"), submission(3, 3), submission(4, 2)])
    outcomes = await recorder.wait(4)
    assert [(o.stdout, o.stderr) for o in outcomes[:3]] == [
        (b"one\n", b"one"),
        (b"two\n", b"two"),
        (b"", b""),
    ]
    assert len(outcomes[3].stdout) == 65536
    assert outcomes[3].stdout.endswith(b"xend\n")


async def test_failures_of_every_kind_leave_the_process_usable(
    compute: ChannelCompute, recorder: Recorder
) -> None:
    def fail(what: str) -> None:
        print("before")
        raise {"exit": SystemExit(3), "ctrl-c": KeyboardInterrupt(), "value": ValueError("no\n\nwords")}[what]

    compute.define(1, function_code(fail))
    compute.define(2, function_code(lambda: (number for number in ())))
    compute.define(3, function_code(behaviour.process_id))
    compute.hand([submission(number, 1, what) for number, what in enumerate(("exit", "ctrl-c", "value"), 1)])
    compute.hand([submission(4, 2), submission(5, 3)])
    outcomes = await recorder.wait(5)
    assert [outcome.reason for outcome in outcomes] == [Reason.FAILED] * 4 + [Reason.FINISHED]
    errors = [(o.error.kind, o.error.message) for o in outcomes[:4] if o.error]
    assert errors[:3] == [("SystemExit", "3"), ("KeyboardInterrupt", ""), ("ValueError", "no words")]
    assert errors[3][0] == "BadValue"
    assert "generator cannot be sent to another process" in errors[3][1]
    assert [outcome.stdout for outcome in outcomes[:3]] == [b"before\n"] * 3
    assert value_of(outcomes[4]) == compute.pid


async def test_memory_bytes_stops_a_greedy_task_with_a_clear_text(
    compute: ChannelCompute, recorder: Recorder
) -> None:
    limited = TaskOptions(memory_bytes=50 << 20)
    compute.define(1, function_code(lambda size: len(bytearray(size))))
    compute.hand([submission(1, 1, 200 << 20, options=limited), submission(2, 1, 10 << 20, options=limited)])
    compute.hand([submission(3, 1, 200 << 20)])
    greedy, modest, free = await recorder.wait(3)
    assert greedy.error is not None
    assert greedy.error.kind == "MemoryError"
    assert greedy.error.message == f"the task needed more than its memory_bytes of {50 << 20}"
    assert (value_of(modest), value_of(free)) == (10 << 20, 200 << 20)


async def test_programs_give_status_and_output(
    compute: ChannelCompute, recorder: Recorder, tmp_path: Path
) -> None:
    script = "echo $GREETING {who}; pwd; echo oops >&2; exit {status}"
    program = Program(["sh", "-c", script], {"GREETING": "hello {who}"}, "{place}", check=False)
    code = program_code(program, ["who", "status", "place"])
    outcome = await run_one(compute, recorder, code, "you", 3, str(tmp_path))
    text = f"hello you you\n{tmp_path}\n"
    assert value_of(outcome) == {"exit_status": 3, "stdout": text, "stderr": "oops\n"}
    assert (outcome.stdout, outcome.stderr) == (text.encode(), b"oops\n")


async def test_a_program_that_ends_badly_fails_with_command_status_and_last_line(
    compute: ChannelCompute, recorder: Recorder
) -> None:
    program = Program(["sh", "-c", "echo first >&2; echo last words >&2; exit 7"])
    outcome = await run_one(compute, recorder, program_code(program))
    assert (outcome.reason, outcome.error.kind) == (Reason.FAILED, "exit status")
    line = "sh -c 'echo first >&2; echo last words >&2; exit 7' ended with exit status 7: last words"
    assert (outcome.error.message, outcome.error.traceback) == (line, "")
    assert outcome.stderr == b"first\nlast words\n"


async def test_large_values_go_both_ways(compute: ChannelCompute, recorder: Recorder) -> None:
    large = bytes(range(256)) * (64 << 12)
    assert len(large) == 64 << 20
    outcome = await run_one(compute, recorder, function_code(behaviour.identity), large)
    assert value_of(outcome) == large


async def test_large_code_travels_too(compute: ChannelCompute, recorder: Recorder) -> None:
    table = "x" * 300_000
    outcome = await run_one(compute, recorder, function_code(lambda: len(table)))
    assert value_of(outcome) == 300_000


async def test_results_do_not_wait_for_the_next_long_task(
    compute: ChannelCompute, recorder: Recorder, tmp_path: Path
) -> None:
    path = str(tmp_path / "begun")
    compute.define(1, function_code(behaviour.identity))
    compute.define(2, function_code(behaviour.sleep_after_note))
    compute.hand([submission(1, 1, "quick"), submission(2, 1, "quick"), submission(3, 2, path)])
    assert [outcome.task_id for outcome in await recorder.wait(2)] == [1, 2]
    await compute.kill()


async def test_a_job_changes_its_description_only_for_new_processes(
    backend: ProcessBackend, recorder: Recorder
) -> None:
    for version in ("1", "2"):
        modules = {"shipped_version": ("v.py", f"def get():\n    return {version}\n")}
        compute = await backend.open(CORE, a_job(modules=modules), recorder)
        compute.define(1, function_code(_as_of("shipped_version", "get")))
        compute.hand([submission(int(version), 1)])
        await recorder.wait(int(version))
    assert [value_of(outcome) for outcome in recorder.outcomes] == [1, 2]


LOOK_AT_MODULES = """
import sys
loaded = set(sys.modules)

def main(names):
    import threading
    return [name for name in names if name not in loaded], threading.active_count(), "trio" in loaded
"""


async def test_libraries_of_workflow_files_are_imported_once_for_all_processes(
    backend: ProcessBackend, compute: ChannelCompute, recorder: Recorder
) -> None:
    del compute  # the first one may be there before they are imported
    second = await backend.open(CORE, a_job(), recorder)
    (missing, threads, has_trio) = value_of(
        await run_one(second, recorder, source_code("look.py", LOOK_AT_MODULES), LIBRARIES)
    )
    assert missing == []
    assert threads == 1
    assert not has_trio
    assert len(os.listdir(f"/proc/{backend.template_pid}/task")) == 1
    found = subprocess.run(  # noqa: ASYNC221 - it takes no time
        [
            sys.executable,
            "-X",
            "importtime",
            "-c",
            "from gspc_trio import Workflow, farm, map_reduce, Net, take",
        ],
        stderr=subprocess.PIPE,
        text=True,
        check=True,
    )
    wanted = {line.rpartition("|")[2].strip() for line in found.stderr.splitlines() if "gspc_trio." in line}
    assert wanted <= _brought_by(LIBRARIES)


def _brought_by(names: tuple[str, ...]) -> set[str]:
    """Return the modules of ours that are there when these are imported."""
    code = f"import importlib, sys; [*map(importlib.import_module, {names})]; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return {name for name in done.stdout.split() if name.startswith("gspc_trio")}
