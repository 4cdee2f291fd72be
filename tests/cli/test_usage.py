"""Command lines that cannot be meant so: exit status 2, one line, and the argument by its name."""

from __future__ import annotations

import importlib
import shlex
import sys
from collections.abc import Iterator
from typing import get_args

import pytest
from cyclopts import App
from cyclopts.argument import Argument

from gspc_trio.cli.arguments import WHOLE
from gspc_trio.cli.common import run_command
from gspc_trio.cli.iml import app as iml
from gspc_trio.cli.jobserver import app as jobserver
from gspc_trio.cli.launcher import app as launcher
from gspc_trio.cli.monitor.commands import app as monitor
from gspc_trio.cli.rts import app as rts
from gspc_trio.cli.top import app as top

importlib.import_module("gspc_trio.cli.monitor.task_io")

FLOW = """
from gspc_trio import farm, Workflow

def same(item):
    return item

def workflow(n: int = 1):
    return Workflow(farm(same), {"items": [n]})
"""

WRONG = [
    (jobserver, "nonsense", "nonsense"),
    (jobserver, "run", "WORKFLOW is missing"),
    (jobserver, "run flow.py more", "more: this argument is one too many"),
    (jobserver, "run flow.py --cores 1.5", "--cores 1.5: this is no whole number"),
    (jobserver, "run flow.py --priority 0.5", "--priority 0.5"),
    (jobserver, "run flow.py --cache c --cache-size 0", "--cache-size 0"),
    (jobserver, "log j1 1.5", "TASK 1.5"),
    (jobserver, "run flow.py --format nope", "--format nope: there is no such format"),
    (rts, "bootstrap a --nodes 1.5", "--nodes 1.5"),
    (rts, "site add a", "--provider is missing"),
    (rts, "start --sharing pessimistic", "--sharing pessimistic: this is for several managers"),
    (monitor, "io --by hots --store .", "--by hots: there are job, task, host, frame (did you mean 'host'?)"),
    (rts, "site add a --provider slurm --max-nodes 1.5", "--max-nodes 1.5"),
    (rts, "teardown", "RIF-IDS is missing"),
    (launcher, "cancel 1.5", "CLIENT_IDS 1.5"),
    (launcher, "log --tail -1", "--tail -1"),
    (launcher, "log --stream both", "--stream"),
    (top, "--speed 2", "--speed 2"),
    (top, "--serve --control --read-only", "--read-only"),
    (jobserver, "run flow.py --nonsense", "--nonsense: there is no such option\n"),
    (
        jobserver,
        "run flow.py --tighntess=2",
        "--tighntess: there is no such option (did you mean --tightness?)",
    ),
    (jobserver, "run flow.py --tightness 1", "--tightness is for --plan move"),
    (jobserver, "run flow.py --plan heft --tightness 1", "--tightness is for --plan move"),
    (jobserver, "run flow.py --plan move --tightness nan", "--tightness nan: tightness is a finite number"),
    (jobserver, "run flow.py --cores -1", "--cores -1"),
    (jobserver, "run flow.py --cache c --cache-size much", "--cache-size much"),
    (jobserver, "run flow.py --cache c --cache-size 0", "--cache-size 0"),
    (jobserver, "run flow.py --cache c --cache-files smell", "--cache-files"),
    (jobserver, "run flow.py --cores many", "--cores"),
    (jobserver, "run flow.py --cores 100000", "--cores 100000"),
    (jobserver, "run flow.py --weight 0", "--weight 0"),
    (jobserver, "run flow.py --weight nan", "--weight nan"),
    (jobserver, f"run flow.py --priority {10**20}", f"--priority {10**20}"),
    (jobserver, "run flow.py --set n", "--set n"),
    (jobserver, "run flow.py --set m=3", "--set"),
    (jobserver, "run flow.py --set n=many", "--set"),
    (jobserver, "run flow.py --rts x --cores 2", "--cores"),
    (jobserver, "run flow.py --task-output loud", "--task-output"),
    (jobserver, "resume x --cores -1", "--cores -1"),
    (jobserver, "run flow.py --cache ''", "--cache '': a directory"),
    (jobserver, "run flow.py --journal=", "--journal '': a directory"),
    (jobserver, "resume ''", "JOURNAL"),
    (jobserver, "cache clear ''", "DIRECTORY"),
    (rts, "start --state ''", "--state"),
    (jobserver, "log j1 -- -3", "TASK -3"),
    (launcher, "", "--config-name"),
    (launcher, "--json", "--json"),
    (launcher, "--nonsense", "--nonsense"),
    (rts, "start --cores -1", "--cores -1"),
    (rts, "start --port 99999", "--port 99999: a TCP port is a number from 0 to 65535"),
    (rts, "start --listen 0.0.0.0", "--listen 0.0.0.0"),
    (rts, "start --listen there", "--listen there"),
    (rts, "start --listen no:address/", "--listen no:address/"),
    (rts, "start --placement best", "--placement best"),
    (rts, "start --memory 4Foo", "--memory 4Foo"),
    (rts, "start --spill much", "--spill much"),
    (rts, "start --host a --host a", "--host a a: hosts named twice: a"),
    (rts, "bootstrap a a", "HOSTS a a"),
    (rts, "bootstrap a --cores -1", "--cores -1"),
    (rts, "bootstrap a --nodes 0", "--nodes 0: a block has at least one node"),
    (rts, "bootstrap a --set memory", "--set memory"),
    (rts, "bootstrap a --set memory=x", "--set memory=x"),
    (rts, "add r1 fpga", "RESOURCES fpga"),
    (rts, "remove r1 r1.core0 --policy later", "--policy"),
    (top, "--speed 0", "--speed 0"),
    (top, "--speed nan", "--speed nan"),
    (top, "--json", "--once"),
    (top, "--control", "--serve"),
    (top, "--once --serve", "--serve"),
    (top, "--port -1 --serve", "--port -1"),
    (top, "--replay x --rts y", "--replay"),
    (top, "--store x", "--store x is for a replay"),
    (top, "--study x --replay y --serve", "--replay"),
    (iml, "start --memory x", "--memory x"),
    (iml, "start --memory 999TiB", "--memory"),
    (iml, "start --spill x", "--spill x"),
    (iml, "start --port 99999", "--port 99999"),
    (iml, "start --listen 0.0.0.0", "--listen 0.0.0.0"),
]


@pytest.mark.parametrize(("app", "line", "named"), WRONG, ids=[f"{app.name[0]} {it}" for app, it, _ in WRONG])
def test_nonsense_is_told_in_one_line_that_names_the_argument(
    app: App,
    line: str,
    named: str,
    tmp_path_factory: pytest.TempPathFactory,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    folder = tmp_path_factory.mktemp("usage")
    monkeypatch.chdir(folder)
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(folder))
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.delitem(sys.modules, "flow", raising=False)
    (folder / "flow.py").write_text(FLOW)
    with pytest.raises(SystemExit) as ended:
        run_command(app, shlex.split(line))
    sys.modules.pop("flow", None)
    out, err = capsys.readouterr()
    assert ended.value.code == 2, err
    assert not out
    assert named in err
    assert err.startswith(f"{app.name[0]}: ")
    assert len(err.splitlines()) == 1
    assert [
        path.name for path in folder.iterdir() if path.suffix != ".py" and path.name != "__pycache__"
    ] == []


def whole_numbers(app: App, line: str) -> Iterator[tuple[str, Argument]]:
    """Yield each argument of a command and those below it that is a whole number, with where it is."""
    for argument in app.assemble_argument_collection() if app.default_command is not None else ():
        if int in (argument.hint, *get_args(argument.hint)):
            yield f"{line} {argument.name}", argument
    for name in app:
        if not name.startswith("-"):
            yield from whole_numbers(app[name], f"{line} {name}")


def test_no_whole_number_of_any_command_may_be_a_fraction() -> None:
    found = [one for app in (iml, jobserver, launcher, rts, top) for one in whole_numbers(app, app.name[0])]
    assert len(found) > 20
    assert [where for where, argument in found if argument.parameter.converter is not WHOLE.converter] == []


@pytest.mark.parametrize("app", [iml, jobserver, launcher, rts, top], ids=lambda app: str(app.name[0]))
def test_the_help_has_no_box_twice(app: App, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        run_command(app, ["--help"])
    assert not ended.value.code
    titles = [line.strip("╭─╮ ") for line in capsys.readouterr().out.splitlines() if line.startswith("╭")]
    assert titles == (["Commands", "Arguments", "Parameters"] if app is launcher else titles[:1])
