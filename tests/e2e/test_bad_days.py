"""Bad days, with real processes: each says one clear thing, and nothing is left (the ``world`` fixture
looks).
"""

from __future__ import annotations

import json
import secrets
import signal
import socket
from functools import partial

import pytest
import trio
from msgspec.structs import replace

from gspc_trio.components.wire.codec import wire_codec
from gspc_trio.nursery.connections.connection_file import ConnectionInfo, write_connection_file
from gspc_trio.nursery.connections.network import Network
from gspc_trio.nursery.connections.rpc import Peer
from gspc_trio.nursery.connections.websocket import AcceptPolicy, PendingConnections, serve_stream
from tests.e2e.support import HANG_S, SLEEPERS, World, free_port, one_line, wait_until


def failing(body: str, more: str = "") -> str:
    return f"""
import os, sys, time, subprocess
from gspc_trio import Net, Program, Workflow, farm

def work(item):
{body}

def workflow():
    return Workflow(farm(work, name="failing"{more}), {{"items": [1, 2, 3]}})
"""


# A task's own fault -----------------------------------------------------------------------------------------


def test_a_task_that_raises_stops_the_job_and_tells_its_story(world: World) -> None:
    body = "    print('before it fell'); print('a warning', file=sys.stderr)\n    return 1 / (item - 2)"
    done = world.run("jobserver", "run", world.workflow(failing(body)), "--cores", "1")
    assert done.returncode == 1
    assert "ZeroDivisionError: division by zero" in done.stderr
    assert "in work" in done.stderr
    assert "return 1 / (item - 2)" in done.stderr
    assert "before it fell" in done.stderr
    assert "a warning" in done.stderr
    assert "attempt 1" in done.stderr
    assert "core" in done.stderr
    assert socket.gethostname() in done.stderr
    assert "gspc_trio/" not in done.stderr, "the traceback shows our frames"


def test_keep_going_finishes_what_does_not_depend_on_the_failure(world: World) -> None:
    path = world.workflow(failing("    return 10 // (item - 2)"))
    done = world.run("jobserver", "run", path, "--keep-going", "--json")
    assert done.returncode == 1
    data = json.loads(done.stdout)
    assert data["tasks"]["finished"] == 2
    assert data["tasks"]["failed"] == 1
    assert sorted(data["outputs"]["results"]) == [-10, 10]


def test_names_that_are_no_unicode_are_shown_with_escapes(world: World) -> None:
    path = world.workflow(failing("    return os.fsdecode(b'caf\\xe9') if item < 3 else open('\\ud800')"))
    done = world.run("jobserver", "run", path, "--keep-going")
    assert done.returncode == 1
    assert done.stdout == "results: caf\\udce9\n" * 2
    assert "UnicodeEncodeError: 'utf-8' codec can't encode character '\\ud800'" in done.stderr
    assert "lost" not in done.stderr
    done = world.run("jobserver", "run", world.workflow(failing("    raise ValueError('\\ud800')")))
    assert "ValueError: \\ud800" in done.stderr


def test_a_task_with_attempts_is_tried_again(world: World) -> None:
    trace = world.folder / "tries"
    body = f"    with open({str(trace)!r}, 'a') as file: file.write('x')\n"
    body += f"    return 1 / (os.path.getsize({str(trace)!r}) - 1)"
    path = world.workflow(failing(body, ", attempts=3").replace("[1, 2, 3]", "[1]"))
    data = world.run_json("jobserver", "run", path)
    assert data["tasks"]["finished"] == 1
    assert trace.read_text() == "xx"


def test_a_task_that_exceeds_its_time_fails(world: World) -> None:
    done = world.run("jobserver", "run", world.workflow(failing("    time.sleep(3600)", ", timeout_s=0.2")))
    assert done.returncode == 1
    assert "timeout" in done.stderr
    assert "0.2" in done.stderr


def test_a_task_that_kills_its_process_fails_clearly_when_its_attempts_are_used_up(world: World) -> None:
    done = world.run("jobserver", "run", world.workflow(failing("    os._exit(7)")), "--cores", "1")
    assert done.returncode == 1
    assert "lost" in done.stderr
    assert "attempt 3" in done.stderr


def test_a_program_that_fails_shows_its_error_output(world: World) -> None:
    text = """
from gspc_trio import Program, Workflow, farm

def workflow():
    program = Program(["sh", "-c", "echo so it goes >&2; exit 3"])
    return Workflow(farm(program, name="program"), {"items": [1]})
"""
    done = world.run("jobserver", "run", world.workflow(text))
    assert done.returncode == 1
    assert "exit status 3" in done.stderr
    assert "so it goes" in done.stderr


# Requests that cannot be met --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("requires", "said"),
    [
        ("'quantum'", "quantum"),
        ("[Requirement('core')] * 64", "64"),
        ("'core', memory_bytes=10**18", "memory"),
    ],
)
def test_a_request_that_can_never_be_met_fails_at_once(world: World, requires: str, said: str) -> None:
    text = f"""
from gspc_trio import Requirement, Workflow, farm

def same(item):
    return item

def workflow():
    return Workflow(farm(same, name="impossible", requires={requires}), {{"items": [1]}})
"""
    done = world.run("jobserver", "run", world.workflow(text), "--cores", "2")
    assert done.returncode == 1
    assert said in done.stderr
    assert "core" in done.stderr, "it says what there is"


def test_a_net_that_is_stuck_says_which_tokens_are_missing(world: World) -> None:
    text = """
from gspc_trio import Net, Workflow

def join(left, right):
    return left + right

def workflow():
    net = Net("stuck")
    left, right = net.input("left"), net.input("right")
    net.transition("join", run=join, inputs={"left": left, "right": right}, outputs=net.output("sum"))
    return Workflow(net, {"left": [1, 2], "right": [3]})
"""
    done = world.run("jobserver", "run", world.workflow(text))
    assert done.returncode == 1
    assert "the workflow is stuck" in done.stderr
    assert "join" in done.stderr
    assert "right" in done.stderr


# The user's mistakes ----------------------------------------------------------------------------------------


def test_mistakes_get_one_clear_line(world: World) -> None:
    flow = world.workflow(SLEEPERS)
    for arguments, said in [
        (("run", "nowhere.py"), "no workflow file nowhere.py"),
        (("run", world.workflow("def nothing(): pass", "empty")), "no function workflow()"),
        (("run", world.workflow("def workflow(:", "broken")), "SyntaxError"),
        (("run", flow, "--rts", "missing.json"), "missing.json"),
        (("run", flow, "--records", "no/such/folder/records"), "no/such/folder"),
        (("list",), "gspc-rts start"),
    ]:
        done = world.run("jobserver", *arguments)
        assert done.returncode == 1, (arguments, done.stderr)
        assert said in one_line(done.stderr), arguments


def test_no_rts_and_unsafe_files_get_one_clear_line(world: World) -> None:
    world.start_rts("--connection-file", "rts.json", "--cores", "1")
    path = world.folder / "rts.json"
    good = path.read_text()
    path.chmod(0o644)
    done = world.run("rts", "status", "--connection-file", "rts.json")
    assert done.returncode == 1
    assert "chmod" in one_line(done.stderr)
    path.chmod(0o600)

    data = json.loads(good)
    data["token"] = "ab" * 32 if len(data["token"]) == 64 else data["token"][::-1]
    wrong = world.folder / "wrong.json"
    wrong.touch(mode=0o600)
    wrong.write_text(json.dumps(data))
    done = world.run("rts", "status", "--connection-file", "wrong.json")
    assert done.returncode == 1
    assert "token" in one_line(done.stderr)

    done = world.run("rts", "start", "--connection-file", "rts.json")
    assert done.returncode == 1
    assert "runs already" in one_line(done.stderr)

    port = json.loads(good)["address"].rpartition(":")[2].strip("/")
    done = world.run("rts", "start", "--connection-file", "other.json", "--port", port)
    assert done.returncode == 1
    assert "is taken" in one_line(done.stderr)

    world.stop_rts("--connection-file", "rts.json")
    data["address"] = f"ws://127.0.0.1:{free_port()}"
    wrong.write_text(json.dumps(data))
    done = world.run("rts", "status", "--connection-file", "wrong.json")
    assert done.returncode == 1
    assert "gspc-rts start" in one_line(done.stderr)


async def test_a_run_time_system_of_another_version_gets_one_clear_line(world: World) -> None:
    token = secrets.token_bytes(32)
    network = Network(wire_codec, token)
    identity = replace(network.identity("rts", "of tomorrow", dialer=False), version_min=99, version_max=99)

    async def never(peer: Peer) -> None:
        raise AssertionError(f"{peer} was let in")

    async def serve(stream: trio.SocketStream) -> None:
        policy = AcceptPolicy(PendingConnections(1))
        await serve_stream(stream, identity, network.codec, never, policy, remote="the command")

    async with trio.open_nursery() as nursery:
        listeners = await nursery.start(partial(trio.serve_tcp, serve, 0, host="127.0.0.1"))
        port = listeners[0].socket.getsockname()[1]
        path = world.folder / "tomorrow.json"
        write_connection_file(path, ConnectionInfo.create(f"ws://127.0.0.1:{port}", token, "99.0"))
        arguments = ("rts", "status", "--connection-file", str(path))
        done = await trio.to_thread.run_sync(partial(world.run, *arguments))
        nursery.cancel_scope.cancel()
    assert done.returncode == 1
    assert "version 99" in one_line(done.stderr)


def test_a_job_server_that_was_stopped_for_too_long_says_so(world: World) -> None:
    world.start_rts("--cores", "1")
    job = world.start("jobserver", "run", world.workflow(SLEEPERS), "--rts", world.connection_file)
    wait_until(lambda: world.held_cores() == 1, "the job to run")
    job.send_signal(signal.SIGSTOP)
    wait_until(lambda: world.status()["jobs"] == [], "the job to be signed off")
    job.send_signal(signal.SIGCONT)
    _, err = job.communicate(timeout=HANG_S)
    assert job.returncode == 1
    assert "this job server was signed off by the other side, which has heard nothing of this process" in err
    world.stop_rts()
