"""A job server that is killed goes on where it was, with real processes."""

from __future__ import annotations

import json
import os
import resource
import signal
import subprocess
from collections import Counter
from itertools import chain
from pathlib import Path

from gspc_trio.components.job.journal import Outcomes
from gspc_trio.components.job.journal_bytes import MAGIC, decode_record
from gspc_trio.protocol.values import is_reference
from gspc_trio.records.journal_frames import Frames
from tests.e2e.support import MARKING, World, one_line, wait_until

EXAMPLES = Path(__file__).parents[2] / "examples"


def traces(folder: Path) -> Counter[str]:
    """How often each task was begun, by the files that the tasks make."""
    return Counter(path.name.partition(".")[0] for path in folder.iterdir())


def test_killed_again_and_again_a_job_comes_to_its_end(world: World) -> None:
    marks = world.folder / "marks"
    marks.mkdir()
    flow = world.workflow(MARKING)
    journal = str(world.folder / "journal")
    given = ("--set", f"folder={marks}", "--set", "n=300", "--set", "seconds=0.005", "--journal", journal)
    process = world.start("jobserver", "run", flow, *given, "--cores", "2")
    for least in (60, 120, 180):

        def begun(least: int = least, process: subprocess.Popen[str] = process) -> bool:
            assert process.poll() is None, process.communicate()
            return len(traces(marks)) >= least

        wait_until(begun, f"{least} tasks begin")
        os.kill(process.pid, signal.SIGKILL)
        process.wait()
        process = world.start("jobserver", "resume", journal, "--cores", "2", "--json")
    out, err = process.communicate()
    assert process.returncode == 0, err
    result = json.loads(out)
    assert sorted(result["outputs"]["results"]) == list(range(300))
    assert result["tasks"]["finished"] == 300
    again = sum(traces(marks).values()) - 300
    assert again <= 3 * 40, f"{again} tasks ran again: only what was under way may"
    done = world.run("jobserver", "resume", journal, "--json")
    assert json.loads(done.stdout)["outputs"] == result["outputs"], "a job that is over has its result still"
    assert sum(traces(marks).values()) - 300 == again


DIVIDING = """<defun name="dividing">
  <in name="by" type="long" place="by"/><out name="result" type="long" place="result"/>
  <net>
    <place name="by" type="long"/><place name="result" type="long"/>
    <transition name="divide">
      <defun>
        <in name="by" type="long"/><out name="result" type="long"/>
        <expression>${result} := 10L div ${by}</expression>
      </defun>
      <connect-in port="by" place="by"/><connect-out port="result" place="result"/>
    </transition>
  </net>
</defun>
"""


def test_a_run_that_has_failed_is_resumed_with_all_that_does_not_depend_on_it(world: World) -> None:
    file, journal = world.folder / "dividing.xpnet", str(world.folder / "journal")
    file.write_text(DIVIDING)
    given = ("--set", "by=0L", "--set", "by=5L", "--set", "by=2L", "--journal", journal)
    failed = world.run("jobserver", "run", str(file), *given)
    assert (failed.returncode, failed.stdout) == (1, "")
    for goes_on, printed in (((), []), (("--keep-going",), ["result: 2L", "result: 5L"])):
        done = world.run("jobserver", "resume", journal, *goes_on)
        assert done.returncode == 1
        assert sorted(done.stdout.splitlines()[:2]) == printed
        assert "10L div ${by}: division by zero (${by} = 0L)" in done.stderr


def test_activities_go_on_after_the_job_server_was_killed(world: World) -> None:
    marks = world.folder / "marks"
    marks.mkdir()
    net = (EXAMPLES / "xpnet" / "pictures.xpnet").read_text()
    flow, journal = world.folder / "pictures.xpnet", str(world.folder / "journal")
    code = "rendered = row * row"
    assert code in net
    trace = f"import time, uuid; open({str(marks)!r} + '/' + uuid.uuid4().hex, 'x').close(); time.sleep(0.02)"
    flow.write_text(net.replace(code, f"{trace}; {code}"))
    pictures = [part for number in range(10) for part in ("--set", f"picture={number}L")]
    process = world.start("jobserver", "run", str(flow), *pictures, "--journal", journal, "--cores", "2")

    def begun() -> bool:
        assert process.poll() is None, process.communicate()
        return len(list(marks.iterdir())) >= 10

    wait_until(begun, "ten tasks begin")
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    done = world.run("jobserver", "resume", journal, "--json")
    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout)
    whole = sorted(sum(row * row for row in range(number, number + 4)) for number in range(10))
    assert sorted(result["outputs"]["size"]) == whole
    assert result["tasks"]["finished"] == 40
    again = len(list(marks.iterdir())) - 40
    assert again < 40, "what had finished is not done again"


def test_a_run_that_was_interrupted_can_be_resumed(world: World) -> None:
    marks = world.folder / "marks"
    marks.mkdir()
    flow, journal = world.workflow(MARKING), str(world.folder / "journal")
    given = ("--set", f"folder={marks}", "--set", "n=100", "--journal", journal)
    process = world.start("jobserver", "run", flow, *given, "--cores", "2")
    wait_until(lambda: len(traces(marks)) >= 40, "tasks begin")
    os.kill(process.pid, signal.SIGINT)
    process.communicate()
    done = world.run("jobserver", "resume", journal, "--json")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["tasks"]["finished"] == 100
    assert sum(traces(marks).values()) < 140


def test_tasks_whose_workers_live_are_taken_over(world: World) -> None:
    """Nothing that was under way runs again, nor does what waited at a worker."""
    world.start_rts("--cores", "2")
    marks = world.folder / "marks"
    marks.mkdir()
    flow, journal = world.workflow(MARKING), str(world.folder / "journal")
    connection = str(world.folder / "runtime" / "gspc-trio" / "rts.json")
    given = ("--set", f"folder={marks}", "--set", "n=8", "--set", "seconds=1", "--rts", connection)
    process = world.start("jobserver", "run", flow, *given, "--journal", journal)
    wait_until(lambda: len(traces(marks)) >= 4, "the second tasks run")

    def finished() -> int:
        number: int = world.run_json("jobserver", "status", "j1")["tasks"].get("finished", 0)
        return number

    wait_until(lambda: finished() >= 2, "the results of the first ones are there")
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    done = world.run("jobserver", "resume", journal, "--rts", connection, "--json")
    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout)
    assert sorted(result["outputs"]["results"]) == list(range(8))
    assert result["tasks"]["finished"] == 8
    assert sum(traces(marks).values()) == 8, "no task was begun twice"
    assert world.run_json("jobserver", "list") == [], "the earlier job is gone"
    assert world.run("rts", "stop").returncode == 0


def test_another_workflow_file_or_version_is_refused(world: World) -> None:
    marks = world.folder / "marks"
    marks.mkdir()
    flow, journal = world.workflow(MARKING), str(world.folder / "journal")
    done = world.run(
        "jobserver", "run", flow, "--set", f"folder={marks}", "--set", "n=2", "--journal", journal
    )
    assert done.returncode == 0, done.stderr
    done = world.run("jobserver", "run", flow, "--set", f"folder={marks}", "--journal", journal)
    assert (done.returncode, "gspc-jobserver resume" in one_line(done.stderr)) == (1, True)
    Path(flow).write_text(MARKING + "# something else\n")
    done = world.run("jobserver", "resume", journal)
    assert (done.returncode, "has changed since" in one_line(done.stderr)) == (1, True)


def test_a_full_disk_ends_the_run_with_one_line_and_loses_nothing(world: World) -> None:
    marks = world.folder / "marks"
    marks.mkdir()
    flow, journal = world.workflow(MARKING), str(world.folder / "journal")
    given = ("--set", f"folder={marks}", "--set", "n=400", "--set", "seconds=0.001", "--journal", journal)

    limit_bytes = 14_000 + 400 * len(str(marks))  # enough for the tasks, not for their results

    def allow_little() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (limit_bytes, limit_bytes))

    process = world.start("jobserver", "run", flow, *given, "--cores", "2", preexec_fn=allow_little)
    _, err = process.communicate()
    assert process.returncode == 1
    assert "cannot be written" in one_line(err)
    done = world.run("jobserver", "resume", journal, "--json")
    assert done.returncode == 0, done.stderr
    assert sorted(json.loads(done.stdout)["outputs"]["results"]) == list(range(400))


MENDED = """
import os
from gspc_trio import Net, Workflow

def note(folder, name, item):
    with open(os.path.join(folder, f"{name}{item}.{os.getpid()}"), "x"):
        pass

def prepare(job):
    folder, item = job
    note(folder, "prepare", item)
    return folder, item + 1

def check(job):
    folder, item = job
    note(folder, "check", item)
    if item > 10:
        raise ValueError("too many")
    return item

def workflow(folder: str, n: int = 20):
    net = Net("mended")
    prepared = net.place("prepared")
    net.transition("prepare", prepare, {"job": net.input("jobs")}, prepared)
    net.transition("check", check, {"job": prepared}, net.output("results"))
    return Workflow(net, {"jobs": [(folder, item) for item in range(n)]})
"""


def test_after_the_code_is_mended_only_what_it_concerns_runs_again(world: World) -> None:
    """Killed on the way it goes on, with the new code."""
    marks = world.folder / "marks"
    marks.mkdir()
    flow, journal = world.workflow(MENDED), str(world.folder / "journal")
    done = world.run(
        *("jobserver", "run", flow, "--set", f"folder={marks}"), "--journal", journal, "--keep-going"
    )
    assert (done.returncode, "too many" in done.stderr) == (1, True)
    slower = MENDED.replace("    if item > 10:\n        raise ValueError", "    time.sleep(0.05)\n    str")
    Path(flow).write_text(slower.replace("import os\n", "import os, time\n"))
    done = world.run("jobserver", "resume", journal)
    assert "gspc-jobserver resume --changed" in one_line(done.stderr)
    done = world.run("jobserver", "resume", journal, "--set", "n=20")
    assert (done.returncode, "--set goes with --changed" in one_line(done.stderr)) == (2, True)
    listed = world.run_json("jobserver", "resume", journal, "--changed", "--dry-run")
    assert [(one["name"], one["kept"], one["ready"]) for one in listed["transitions"]] == [
        ("prepare", 20, 0),
        ("check", 0, 20),
    ]
    assert sum(traces(marks).values()) == 40, "nothing ran"
    process = world.start("jobserver", "resume", journal, "--changed", "--cores", "1")
    wait_until(lambda: sum(traces(marks).values()) >= 46, "tasks begin")
    os.kill(process.pid, signal.SIGKILL)
    _, err = process.communicate()
    assert "check            0       0       10      20  its code has changed" in err
    result = world.run_json("jobserver", "resume", journal)
    assert sorted(result["outputs"]["results"]) == list(range(1, 21))
    assert result["tasks"]["finished"] == 40
    began = traces(marks)
    assert all(began[f"prepare{item}"] == 1 for item in range(20)), "those were kept"
    assert 40 <= sum(began[f"check{item}"] for item in range(1, 21)) < 60


def test_a_net_with_memory_goes_on_after_the_job_server_was_killed(world: World) -> None:
    marks, layer = world.folder / "marks", str(world.folder / "iml.json")
    marks.mkdir()
    net = (EXAMPLES / "xpnet" / "upper.xpnet").read_text()
    line = "            made[:] ="
    assert line in net
    body = f"""
            import pathlib, tempfile, time
            marks = pathlib.Path({str(marks)!r})
            text = bytes(given).decode().strip()
            tempfile.mkstemp(dir=marks, prefix=text + ".")
            while text == "r" and not (marks / "gate").exists():
                time.sleep(0.01)
"""
    file, text = world.folder / "upper.xpnet", world.folder / "text"
    file.write_text(net.replace(line, body.strip("\n") + "\n" + line))
    text.write_text("q u i c k   b r o w n   f o x   ")
    world.start_memory("--connection-file", layer)
    assert world.run("iml", "publish", "text", str(text), "--iml", layer).returncode == 0
    assert world.run("iml", "allocate", "capitals", "32", "--iml", layer).returncode == 0
    ranges = [
        f"{port}=Struct [handle := Struct [name := {name}], offset := 0UL, size := 32UL]"
        for port, name in (("text", '"text"'), ("target", '"capitals"'))
    ]
    given = ("--set", "block=2UL", "--set", ranges[0], "--set", ranges[1], "--cores", "1")
    journal = str(world.folder / "journal")
    process = world.start("jobserver", "run", str(file), *given, "--journal", journal, "--iml", layer)
    wait_until(lambda: traces(marks)["r"], "the task before the gate begins")
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    before = traces(marks)
    (marks / "gate").touch()
    refused = world.run("jobserver", "resume", journal)
    assert refused.returncode != 0
    assert "needs a memory layer: say --iml FILE" in one_line(refused.stderr)
    done = world.run("jobserver", "resume", journal, "--iml", layer)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("letters: 13UL\n")
    assert world.run("iml", "read", "capitals", "--iml", layer).stdout == text.read_text().upper()
    again = traces(marks) - before
    assert "q" in before
    assert not {"q", "u", "i"} & again.keys(), "what had finished was done again"
    assert world.run("iml", "stop", "--connection-file", layer).returncode == 0


LARGE = """
import time
from collections.abc import Callable
from pathlib import Path

from gspc_trio import Net, Workflow


def make(folder, number):
    Path(folder, f"make{number}.{time.time_ns()}").touch()
    return bytes([number]) * 1_000_000


def pack(folder, data):
    while data[0] > 1 and not Path(folder, "gate").exists():
        time.sleep(0.02)
    Path(folder, f"pack.{data[0]}").touch()
    return {"number": data[0], "parts": [data, data[:2]]}


def measure(packed):
    return [packed["number"], *map(len, packed["parts"])]


def workflow(folder: str):
    net = Net("large")
    made, packed = net.place("made"), net.place("packed")
    numbers, where = net.input("numbers", list(range(5))), net.input("where", [folder])
    net.transition("make", make, {"number": numbers}, made, reads={"folder": where})
    net.transition("pack", pack, {"data": made}, packed, reads={"folder": where})
    net.transition("measure", measure, {"packed": packed}, net.output("sizes"))
    return Workflow(net)
"""


def large_results(journal: Path) -> int:
    """How many there are: those that the layer had no room for are in the journal itself."""
    count = 0
    for file in journal.glob("journal.*"):
        for record in map(decode_record, Frames(file.read_bytes(), MAGIC)):
            if isinstance(record, Outcomes):
                tokens = [token for _, values in record.rows for token in chain(*values)]
                count += sum(is_reference(token) or len(token) > 1_000_000 for token in tokens)
    return count


def test_large_results_in_a_memory_layer_outlive_the_job_server_and_the_layer(world: World) -> None:
    marks, journal = world.folder / "marks", str(world.folder / "journal")
    marks.mkdir()
    layer = str(world.folder / "iml.json")
    server = world.start("iml", "start", "--memory", "4MiB", "--spill", "64MiB", "--connection-file", layer)
    wait_until(Path(layer).exists, "the memory layer comes up")
    given = ("--set", f"folder={marks}", "--journal", journal, "--iml", layer, "--cores", "1")
    process = world.start("jobserver", "run", world.workflow(LARGE), *given)

    def all_durable() -> Counter[str]:
        began = traces(marks)
        return began if 4 <= began.total() == large_results(Path(journal)) else Counter()

    durable = wait_until(all_durable, "what has finished is durable")
    os.kill(process.pid, signal.SIGKILL)
    server.kill()
    assert list(Path(journal).glob("value.*")), "the layer has had room for some"
    process.wait()
    server.wait()
    (marks / "gate").touch()
    done = world.run("jobserver", "resume", journal, "--json", "--cores", "1")
    assert done.returncode == 0, done.stderr
    assert sorted(json.loads(done.stdout)["outputs"]["sizes"]) == [[n, 1_000_000, 2] for n in range(5)]
    assert not [name for name in traces(marks) - durable if name.startswith("make") and name in durable]
