"""Jobs of Snakemake on our executor: what Snakemake says of them is what it says anywhere."""

from __future__ import annotations

import os
import re
import signal
import sys
from pathlib import Path

import pytest

from tests.e2e.support import World, completed, wait_until

pytest.importorskip("snakemake_executor_plugin_gspc", reason="the plugin is not installed: make bridges")
pytestmark = pytest.mark.process

WORKFLOW = """
import os

rule all:
    input: "summary.txt", "quoted.txt", "flaky.txt", "here.txt"

rule count:
    output: temp("counts/{sample}.txt")
    params: text="it's {sample}"
    group: "counting"
    threads: 64
    resources: mem_mb=300, runtime=5, made_up=7
    shell: "echo {threads} {params.text:q} $(($(wc -w <<< '{wildcards.sample}') + 1)) > {output:q}"

rule double:
    input: "counts/{sample}.txt"
    output: "doubled/{sample}.txt"
    group: "counting"
    run:
        with open(output[0], "w") as file:
            file.write(open(input[0]).read() * 2)

rule summary:
    input: expand("doubled/{sample}.txt", sample=["a", "b c"])
    output: "summary.txt"
    run:
        shell("cat {input:q} > {output}")

rule quoted:
    output: "quoted.txt"
    params: "a, b; $HOME \\\\ \\"c\\" 'd'"
    shell: "printf '%s' {params[0]:q} > {output}"

rule flaky:
    output: "flaky.txt"
    retries: 1
    resources: mem_mb=lambda wildcards, attempt: 400 * attempt
    shell: "echo {resources.mem_mb} attempt | tee -a tries; test {resources.mem_mb} = 800 && touch {output}"

rule here:
    output: "here.txt"
    run:
        import sys
        with open(output[0], "w") as file:
            print(os.getcwd(), len(os.listdir("/proc/self/fd")) < 20, sys.argv[0], file=file)
        print("what a job prints")

localrules: quoted
"""


def snakemake(world: World, text: str, *options: str, **variables: str) -> tuple[int, str]:
    """Run Snakemake on a workflow; return its exit status, and what it says."""
    (world.folder / "Snakefile").write_text(text)
    done = world.run_program(*command("-j2", *options), anew=True, env=variables)
    return done.returncode, done.stdout + done.stderr


def command(*options: str) -> tuple[str, ...]:
    return sys.executable, "-m", "snakemake", "--executor", "gspc", *options


@pytest.mark.parametrize("options", [(), ("--gspc-spawn",)], ids=["forked", "spawned"])
def test_a_workflow(world: World, options: tuple[str, ...]) -> None:
    status, said = snakemake(world, WORKFLOW, "--cores", "2", *options)
    assert status == 0, said
    found = {path.name: path.read_text() for path in world.folder.glob("*.txt")}
    start = "snakemake" if not options else "__main__.py"
    assert found == {
        "summary.txt": "2 it's a 2\n" * 2 + "2 it's b c 3\n" * 2,
        "quoted.txt": "a, b; $HOME \\ \"c\" 'd'",
        "flaky.txt": "",
        "here.txt": found["here.txt"],
    }
    directory, few_open, name = found["here.txt"].split()
    assert (directory, few_open, name.endswith(start)) == (str(world.folder), "True", True)
    assert not list(world.folder.glob("counts/*")), "temporary files of Snakemake are left"
    assert "Trying to restart job" in said
    assert re.search(r"Job \d+ \(flaky\) ended with exit status 1. The end of .*/flaky/\d+_1.log:", said)
    assert "    400 attempt\n" in said
    assert (world.folder / "tries").read_text() == "400 attempt\n800 attempt\n"
    assert "what a job prints" not in said
    logs = world.folder.glob(".snakemake/auxiliary/gspc_logs/*/*.log")
    assert [log.parent.name for log in logs] == ["flaky"], "logs of jobs that succeeded are left"


FAILING = """
import os, signal, sys

rule all:
    input: "fails", "exits", "dies", "missing", "much", "grows", "fine", "never"

rule fails:
    output: "fails"
    shell: "echo what went wrong >&2; exit 7"

rule exits:
    output: "exits"
    run: os._exit(3)

rule dies:
    output: "dies"
    run:
        open(output[0], "w").write("half")
        os.kill(os.getppid(), signal.SIGKILL)
        signal.pause()

rule missing:
    output: "missing"
    run: os._exit(0)

rule much:
    output: "much"
    resources: mem_mb=10**9
    shell: "touch {output}"

rule grows:
    output: "grows"
    resources: mem_mb=200
    run: bytearray(10**9)

rule node:
    output: "fine"
    resources: node=1
    shell: "touch {output}"

rule nodes:
    output: "never"
    resources: node=2
    shell: "touch {output}"
"""


def test_what_fails(world: World) -> None:
    status, said = snakemake(world, FAILING, "--keep-going", "--latency-wait", "0")
    assert status == 1
    told = dict(re.findall(r"^Job \d+ \((\w+)\) (.*)$", said, re.MULTILINE))
    kinds = {name: re.split(r"\. The end of|:", text)[0] for name, text in told.items()}
    assert kinds == {
        "fails": "ended with exit status 1",
        "exits": "ended with exit status 3",
        "dies": "lost",
        "much": "refused",
        "grows": "ended with exit status 1",
    }, said
    assert "    what went wrong\n" in said
    assert "MemoryError" in said
    assert "completed successfully, but some output files are missing" in said
    assert "asked for core + 1000000000000000 bytes of memory, but no host offers that much" in said
    assert "the job asks for node=2, but there is node=1" in said
    assert sorted(set(re.findall(r"^Error in rule (\w+)", said, re.MULTILINE))) == [
        *("dies", "exits", "fails", "grows", "much", "nodes"),
    ]
    assert "MissingOutputException in rule missing" in said
    assert (world.folder / "fine").exists()
    assert not (world.folder / "dies").exists(), "Snakemake removes what a failed job has made"
    world.wait_nothing_left()


def test_ctrl_c_ends_everything(world: World) -> None:
    (world.folder / "Snakefile").write_text("""
rule all:
    input: "a", "b"

rule sleep:
    output: "{name,[ab]}"
    shell: "setsid sleep 1000 & touch began.{wildcards.name}; wait; touch {output}"
""")
    process = world.start_program(*command("-j2"), anew=True)
    wait_until(lambda: len(list(world.folder.glob("began.*"))) == 2, "the jobs did not begin")
    os.kill(process.pid, signal.SIGINT)
    done = completed(process)
    assert done.returncode == 1
    assert "Terminating processes on user request" in done.stderr
    world.wait_nothing_left()


def test_a_run_time_system_that_runs_and_goes(world: World) -> None:
    rts = world.start_rts("--cores", "2")
    options = ("--gspc-rts", world.connection_file)
    text = f"""
envvars: "SECRET"

rule all:
    input: "one", "two"

rule one:
    output: "one"
    shell: "test \\"$SECRET\\" = 'it is' && touch {{output}}"

rule two:
    input: "one"
    output: "two"
    shell: "kill -9 {rts.pid}; sleep 1000"
"""
    status, said = snakemake(world, text, *options, SECRET="it is")
    assert (world.folder / "one").exists()
    assert (status, "--executor gspc: no job can run any more: " in said) == (1, True), said
    status, said = snakemake(world, text, *options, SECRET="it is")
    assert (status, "WorkflowError:\n--executor gspc: " in said) == (1, True), said
    status, said = snakemake(world, text, *options, "--quiet", "all", SECRET="it is")
    assert (status, said.count("--executor gspc: "), len(said.splitlines())) == (1, 1, 1), said


def test_the_example_of_the_documentation(world: World) -> None:
    page = (Path(__file__).parents[2] / "docs" / "bridges.md").read_text(encoding="utf-8")
    section = page.partition("\n## Snakemake\n")[2].partition("\n## ")[0]
    text, commands, printed = re.findall(r"^```\w+\n(.*?)^```$", section, re.DOTALL | re.MULTILINE)
    (world.folder / "Snakefile").write_text(text)
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    done = world.run_program("sh", "-ec", commands, anew=True, env={"PATH": path})
    assert (done.returncode, done.stdout, done.stderr) == (0, printed, "")


def test_what_cannot_be_is_refused(world: World) -> None:
    status, said = snakemake(world, WORKFLOW, "--shared-fs-usage", "input-output", "persistence")
    assert status == 1
    assert (
        "--executor gspc needs a file system that all hosts share, but --shared-fs-usage is without sources"
        in said
    )
