"""``gspc-top``: see resources, queues and task states live."""

from __future__ import annotations

import gc
import os
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Annotated

import trio
from cyclopts import App, Parameter

from gspc_trio.cli.arguments import Flag, MaybeWhole, Port, Speed
from gspc_trio.cli.common import (
    RUN_FILE,
    SERVICE_FILE,
    CommandError,
    UsageError,
    connection_path,
    print_json,
    run_command,
    running_connection,
)
from gspc_trio.components.launcher.http_questions import StudyRefuses, StudyUnreachable
from gspc_trio.components.launcher.shell.http_client import (
    StudyClient,
    find_study,
)
from gspc_trio.components.monitor.reports import GetIo, IoReport
from gspc_trio.components.monitor.shell.store import StoreError
from gspc_trio.core.imports import missing_extra
from gspc_trio.iml.shell.layer import default_iml_file
from gspc_trio.protocol.plain import to_plain
from gspc_trio.records.lines import encode_record
from gspc_trio.tui.live import Follower, LiveSource, connector, layer_connector, service_connector
from gspc_trio.tui.model import Model
from gspc_trio.tui.once import as_lines, snapshot
from gspc_trio.tui.replay import Player, ReplaySource
from gspc_trio.tui.source import CannotAsk
from gspc_trio.tui.study_follower import StudyFollower
from gspc_trio.version import VERSION

app: App = App(name="gspc-top", help="See resources, queues and task states live.", version=VERSION)
for _name in ("--help", "--version"):
    app[_name].group = "Parameters"  # it has no commands: one box is enough

SETTLE_TIMEOUT_S = 10.0
"""Seconds that the run-time system and its jobs may take to tell how they are."""


@app.default
def top(
    *,
    rts: Annotated[Path | None, Parameter(name=["--rts", "--connection-file"])] = None,
    study: Annotated[Path | None, Parameter(name=["--study", "-s"])] = None,
    replay: Annotated[Path | None, Parameter(name=["--replay", "--records"])] = None,
    store: Annotated[Path | None, Parameter(name=["--store"])] = None,
    speed: Speed = 1.0,
    iml: Annotated[Path | None, Parameter(name=["--iml"])] = None,
    coallocation: Path | None = None,
    once: Annotated[bool, Flag] = False,
    json: Annotated[bool, Parameter(name="--json", negative=())] = False,
    read_only: Annotated[bool, Flag] = False,
    light: Annotated[bool, Flag] = False,
    until_job: str | None = None,
    serve: Annotated[bool, Flag] = False,
    port: Port = 0,
    control: Annotated[bool, Flag] = False,
    owner: Annotated[MaybeWhole, Parameter(show=False)] = None,
) -> None:
    """Show a running run-time system and its jobs, or a study, or replay a run.

    Parameters
    ----------
    rts
        Connection file of the run-time system; by default the one of gspc-rts start.
    study
        Directory of a study that runs (output_dir of gspc-launcher): show it instead.
    replay
        Show this file of records (--records FILE of gspc-jobserver run and gspc-launcher) instead of a
        running system, or this directory of metrics (--monitor DIR of gspc-rts start).
    store
        With --replay FILE: directory of the metrics of that time, for the view io.
    speed
        How many seconds of the run a replay shows per second.
    iml
        Connection file of a memory layer; by default the one of gspc-iml start.
    coallocation
        Connection file of a co-allocation service; by default that of gspc-coallocate serve, else of run.
    once
        Print the present state, and exit. With --replay: the state at the end.
    json
        With --once: print one JSON object.
    read_only
        Switch all actions off.
    light
        Use colours for a light background.
    until_job
        Exit when this job has ended.
    serve
        Show it in a browser of this machine: print an address that works once.
    port
        With --serve: port on the loopback interface; 0 for any free port.
    control
        With --serve: allow actions; without it the page is read-only.
    owner
        Number of a descriptor, a pipe: leave when its other end is closed.
    """
    shown = {"--rts": rts, "--replay": replay, "--study": study}
    _check(shown, once=once, json=json, serve=serve, tuned=bool(port or control))
    _check_more(replay, store, speed, both=control and read_only)
    if serve:
        what = _what_to_serve(rts, replay, study, speed=speed, store=store)
        _serve(what, port, light=light, control=control)
        return
    if once:
        _once(rts, replay, json, study)
        return
    owner = 0 if _is_in_browser() else owner  # then standard input is a pipe from the server
    run = partial(run_terminal, rts, replay, study, speed=speed, until_job=until_job, iml=iml, owner=owner)
    sys.exit(run(read_only=read_only, light=light, store=store, coallocation=coallocation))


def _service_files(given: Path | None) -> tuple[Path, ...]:
    """Return where a co-allocation service may have published itself."""
    names = (SERVICE_FILE, RUN_FILE)
    return (given,) if given else tuple(connection_path(None).with_name(name) for name in names)


def _is_in_browser() -> bool:
    """Whether a browser shows it; refuse to show it where there is no terminal either."""
    in_browser = "TEXTUAL_DRIVER" in os.environ
    if not in_browser and not (sys.stdin.isatty() and sys.stderr.isatty()):
        raise CommandError("this is not a terminal: print a snapshot with --once, or --once --json")
    return in_browser


def _check(shown: Mapping[str, Path | None], *, once: bool, json: bool, serve: bool, tuned: bool) -> None:
    """Refuse options that do not go together, and a file of records that is not there."""
    if json and not once:
        raise UsageError("--json prints one snapshot: add --once")
    if once and serve:
        raise UsageError("--once prints a snapshot and --serve shows a page: give only one of them")
    if shown["--replay"] is not None and shown["--rts"] is not None:
        raise UsageError("--replay shows a file and --rts a running system: give only one of them")
    if shown["--study"] is not None and sum(map(bool, shown.values())) > 1:
        raise UsageError("--study shows a study: leave --replay and --rts out")
    if tuned and not serve:
        raise UsageError("--port and --control need --serve")
    if (replay := shown["--replay"]) is not None and not replay.exists():
        raise CommandError(f"there is no record file {replay}")


def _check_more(replay: Path | None, store: Path | None, speed: float, *, both: bool) -> None:
    """Refuse options of a replay without one, and to allow actions and not."""
    if both:
        raise UsageError("--control allows actions, and --read-only does not: give only one of them")
    if store is not None and (replay is None or replay.is_dir()):
        raise UsageError(f"--store {store} is for a replay of a file of records: add --replay FILE")
    if speed != 1.0 and replay is None:
        raise UsageError(f"--speed {speed:g} is for a replay: add --replay FILE")


def _once(rts: Path | None, replay: Path | None, json: bool, study: Path | None) -> None:
    if replay is not None:
        player = _player(replay)
        player.seek(player.length_s)
        model = player.model
        player.close()
    elif study is not None:
        model = Model()
        trio.run(_look_at_study, study, model)
        model.tick(time.time())
    else:
        model = Model()
        trio.run(_look_once, model, running_connection(rts))
        model.tick(time.time())
    if json:
        print_json(to_plain(snapshot(model)))
    else:
        print("\n".join(as_lines(model)))


def _player(replay: Path) -> Player:
    """Return what plays a file of records, or what a directory of metrics tells of hosts.

    Raises:
        CommandError: there are no metrics in this directory.
    """
    if not replay.is_dir():
        return Player(replay)
    from gspc_trio.components.monitor.shell.reports import records_of

    with tempfile.NamedTemporaryFile("w", suffix=".jsonl", encoding="utf-8") as file:
        try:
            file.writelines(f"{encode_record(record)}\n" for record in records_of(replay))
        except StoreError as error:
            raise CommandError(str(error)) from error
        file.flush()
        return Player(Path(file.name))  # it has opened it: the name may go


def _look_into(store: Path) -> Callable[[GetIo, float], IoReport]:
    """Return what asks a store."""
    from gspc_trio.components.monitor.shell.reports import read_io

    def look(asked: GetIo, until_s: float) -> IoReport:
        try:
            return read_io(store, asked, until_s)
        except StoreError as error:
            raise CannotAsk(str(error)) from error

    return look


def _what_to_serve(
    rts: Path | None, replay: Path | None, study: Path | None, *, speed: float, store: Path | None
) -> list[str]:
    """Return the arguments of the terminal in the browser that say what it shows."""
    if study is not None:
        return ["--study", str(_study_client(study).directory.absolute())]
    if replay is not None:
        _player(replay).close()  # a file without records is refused here, and not in the browser
        beside = ["--store", str(store)] if store is not None else []
        return ["--replay", str(replay), "--speed", str(speed), *beside]
    return ["--rts", str(running_connection(rts))]


def _serve(shown: Sequence[str], port: int, *, light: bool, control: bool) -> None:
    try:
        from gspc_trio.tui.serve import TopServer, top_command
    except ModuleNotFoundError as error:
        raise CommandError(missing_extra("--serve", "textual-serve", "serve")) from error
    options = [*([] if control else ["--read-only"]), *(["--light"] if light else [])]
    server = TopServer(top_command([*shown, *options]), port)
    print(f"open {server.address}", flush=True)
    print("it can be opened once, in a browser of this machine; Ctrl+C ends it", flush=True)
    server.run()


async def _look_once(model: Model, connection_file: Path) -> None:
    follower = Follower(connector(connection_file), model)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(follower.run)
        with trio.move_on_after(SETTLE_TIMEOUT_S) as scope:
            await follower.wait_settled()
        nursery.cancel_scope.cancel()
    if scope.cancelled_caught:
        raise CommandError(model.link or f"no answer within {SETTLE_TIMEOUT_S:g} s")


def _study_client(study: Path) -> StudyClient:
    try:
        return StudyClient(find_study(study, study))
    except StudyUnreachable as error:
        raise CommandError(str(error)) from error


async def _look_at_study(study: Path, model: Model) -> None:
    try:
        await StudyFollower(_study_client(study), model).look()
    except (StudyUnreachable, StudyRefuses) as error:
        raise CommandError(str(error)) from error


def run_terminal(
    rts: Path | None,
    replay: Path | None,
    study: Path | None = None,
    *,
    speed: float = 1.0,
    read_only: bool = False,
    light: bool = False,
    until_job: str | None = None,
    iml: Path | None = None,
    coallocation: Path | None = None,
    owner: int | None = None,
    store: Path | None = None,
) -> int:
    """Run the terminal until its user leaves it; return the exit status."""
    from gspc_trio.tui.app import TopApp  # takes a moment: not for those who only want --once

    gc.set_threshold(50_000, 20, 50)  # with 10,000 hosts a collection takes longer than a key may
    theme = "textual-light" if light else "textual-dark"
    if replay is not None:
        player = _player(replay)
        player.speed = speed
        store = replay if replay.is_dir() else store
        replayed = ReplaySource(player, None if store is None else _look_into(store))
        top = TopApp(replayed, theme=theme, until_job=until_job, owner=owner, of_study=player.of_study)
    elif study is not None:
        client = _study_client(study)
        followed = StudyFollower(client, Model())
        source = LiveSource(
            followed, str(study), lambda error: top.crashed(error), "a study is changed with gspc-launcher"
        )
        top = TopApp(source, read_only=read_only, theme=theme, owner=owner, of_study=True)
    else:
        path = running_connection(rts)

        def crashed(error: BaseException) -> None:
            top.crashed(error)

        follower = Follower(
            connector(path),
            Model(),
            layer_connector(iml or default_iml_file()),
            service=service_connector(*_service_files(coallocation)),
        )
        source = LiveSource(follower, str(path), crashed)
        top = TopApp(source, read_only=read_only, theme=theme, until_job=until_job, owner=owner)
    top.run()
    if top.trouble is not None:
        raise top.trouble
    status = top.return_code or 0
    if owner is not None:  # somebody waits, and all is closed: taking the interpreter apart takes a second
        sys.stdout.flush()
        os._exit(status)
    return status


def main() -> None:
    """Run the command ``gspc-top``."""
    run_command(app)


if __name__ == "__main__":
    main()
