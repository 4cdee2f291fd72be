from __future__ import annotations

import json
import os
import signal
from inspect import signature
from pathlib import Path

import pytest

from gspc_trio.cli.common import CommandError, UsageError
from gspc_trio.cli.common import run_command as run_app
from gspc_trio.cli.each.command import app as each_app
from gspc_trio.cli.each.command import each
from gspc_trio.cli.each.runner import ListOptions, _journal, plain_options
from gspc_trio.cli.jobserver import app as jobserver
from gspc_trio.compute.commands import CommandLine, run_line
from tests.e2e.support import HANG_S, open_world, wait_until

pytestmark = pytest.mark.process


def test_a_command_is_run_with_or_without_a_shell() -> None:
    ended = run_line(CommandLine(1, "echo a; echo b >&2; exit 3", None, None, 1))
    assert ended[:4] == (3, "exit status 3", b"a\n", b"b\n")
    assert run_line(CommandLine(1, "true", ["true"], None, 1))[:4] == (0, "", b"", b"")
    unknown = run_line(CommandLine(1, "no-such-program", ["no-such-program"], None, 1))
    assert unknown[:2] == (127, "exit status 127")
    assert b"not found" in unknown.stderr
    assert run_line(CommandLine(1, "kill -9 $$", None, None, 1))[:2] == (-9, "signal SIGKILL")
    for writes in ("sleep 1000", "while echo; do :; done >&2"):
        slow = run_line(CommandLine(1, "sleep 1000 & " + writes, None, 0.2, 1))
        assert slow[:2] == (None, "timeout after 0.2 s")


@pytest.mark.parametrize("line", [[], ["gzip"], ["-"], ["gzip {}", "-"], ["gzip {}", "list"], ["", ""]])
def test_a_command_line_without_options_is_read_as_any_other(line: list[str]) -> None:
    def fields(template: str = "", file: Path | None = None, **others: object) -> dict[str, object]:
        return {"template": template, "file": file, **others}

    plain = plain_options(line)
    assert plain is not None
    _, bound, _ = each_app.parse_args(["each", *line], exit_on_error=False, print_error=False)
    assert plain._asdict() == ListOptions()._asdict() | fields(*bound.args, **bound.kwargs)


def test_defaults_are_those_of_the_command_and_options_are_left_to_it() -> None:
    defaults = {name: one.default for name, one in signature(each).parameters.items()}
    assert ListOptions()._asdict() | {"template_process": None} == defaults
    assert (
        plain_options(["true", "-j2"]) is plain_options(["--null"]) is plain_options(["a", "b", "c"]) is None
    )


def test_a_command_is_tried_until_it_succeeds(tmp_path: Path) -> None:
    line = f"echo x >> {tmp_path}/tries; test $(wc -l < {tmp_path}/tries) = 2"
    assert run_line(CommandLine(1, line, None, None, 5)).status == 0
    assert (tmp_path / "tries").read_text() == "x\nx\n"


async def test_a_list_runs_and_goes_on_where_it_was(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    items, journal, go = tmp_path / "items", tmp_path / "journal", tmp_path / "go on"
    items.write_text("".join(f"{number}\n\n" for number in range(20)))
    template = f"echo {{}}; test {{}} != 7 -o -e '{go}'"
    assert await each(template, items, jobs=2, keep_order=True, resume=journal) == 1
    told = capfd.readouterr()
    assert told.out == "".join(f"{number}\n" for number in range(20))
    failed = f"  command 8: exit status 1: echo 7; test 7 != 7 -o -e '{go}'\n"
    assert told.err == f"gspc-jobserver: 1 of 20 commands failed:\n{failed}"
    assert sum(json.loads(line)["status"] for line in journal.read_text().splitlines()) == 1
    go.touch()
    assert await each(template, items, jobs=2, resume=journal) == 0
    told = capfd.readouterr()
    assert told.out == "7\n"
    assert told.err == "gspc-jobserver: left out what was done before: 19 of 20 commands\n"
    assert await each(template, items, dry_run=True, resume=journal) == 0
    assert capfd.readouterr().out == ""


async def test_after_a_failure_no_command_begins_whatever_it_has_printed(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    commands = tmp_path / "commands"
    commands.write_text("echo 1\necho 2; false\n" + "echo more\n" * 10)
    for keep_order in (False, True):
        assert await each(arg_file=commands, jobs=1, halt="soon", keep_order=keep_order) == 1
        assert capfd.readouterr().out == "1\n2\n"


@pytest.mark.parametrize("keep_order", [False, True])
async def test_it_halts_after_failures(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], keep_order: bool
) -> None:
    commands = tmp_path / "commands"
    commands.write_text("sleep 1000\nfalse\n" + "sleep 1000\n" * 100_000)
    assert await each(arg_file=commands, jobs=2, halt="now", keep_order=keep_order) == 1
    told = "1 of 1 commands failed, and no more were begun:\n  command 2: exit status 1: false\n"
    assert capfd.readouterr() == ("", f"gspc-jobserver: {told}")


async def test_what_makes_no_sense_is_said(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="--halt later: it is never, soon or now"):
        await each("true", halt="later")
    with pytest.raises(UsageError, match="give the list once"):
        await each("true", tmp_path, arg_file=tmp_path)
    for no_file in (tmp_path, Path(os.devnull)):
        with pytest.raises(CommandError, match=r"--resume .*: this is no plain file"):
            await each("true", Path(os.devnull), resume=no_file)
    items = tmp_path / "list"
    items.write_text("1\n")
    with pytest.raises(CommandError, match=r"--resume .*list: this is another file, no journal"):
        await each("true", items, resume=items)
    assert items.read_text() == "1\n"


def test_what_fails_elsewhere_is_not_said_of_the_journal(tmp_path: Path) -> None:
    with pytest.raises(BrokenPipeError), _journal(tmp_path / "journal"):
        raise BrokenPipeError


async def test_commands_are_shown_as_the_bytes_that_they_are(
    tmp_path: Path, capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    items = tmp_path / "items"
    items.write_bytes(b"a\xff\n")
    assert await each("echo {}", items, dry_run=True) == 0
    assert capfdbinary.readouterr().out == b"echo 'a\xff'\n"


def test_ctrl_c_leaves_nothing_and_says_how_far_it_was(tmp_path: Path) -> None:
    with open_world(tmp_path) as world:
        (tmp_path / "commands").write_text("touch begun; sleep 1000\n" * 3)
        process = world.start("jobserver", "each", "-j", "2", "--arg-file", "commands")
        wait_until((tmp_path / "begun").exists, "the commands run")
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=HANG_S)
        told = "gspc-jobserver: interrupted: 0 commands had ended, none of them had failed\n"
        assert (process.returncode, out, err) == (130, "", told)


def test_the_command_alone_is_that_of_the_whole_application(capsys: pytest.CaptureFixture[str]) -> None:
    told = []
    for app in (each_app, jobserver):
        with pytest.raises(SystemExit) as ended:
            run_app(app, ["each", "--help"])
        told.append((ended.value.code, capsys.readouterr()))
    assert told[0] == told[1]
    assert "--keep-order" in told[0][1].out
