"""The routes of the HTTP interface (MEL-7), without any network."""

from __future__ import annotations

import json

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from gspc_trio.components.launcher.events import (
    CancelClient,
    CommandExited,
    ConnectionShutdown,
    LauncherAction,
    LauncherEvent,
    RequestRefused,
    ServerPing,
    StudyDone,
    SubmitClients,
    Submitted,
)
from gspc_trio.components.launcher.http_routes import (
    EVENTS_KEPT,
    AskLauncher,
    AwaitEvents,
    GetSnapshot,
    HttpAnswer,
    HttpPlan,
    HttpRequest,
    HttpRouter,
    ReadOutput,
    StudyView,
    answer_of_launcher,
)
from gspc_trio.components.launcher.jobs import POSTPONED_MAX
from gspc_trio.records.facts import StudyChanged, StudyClientChanged, StudyJobChanged
from tests.components.launcher.support import Study

TOKEN, FIRST, SECOND = "a token", b"\x01" * 32, b"\x02" * 32
HOST = "127.0.0.1:8000"


class World(Study):
    """A router over a study; the secrets of its first two servers are known."""

    def __init__(self) -> None:
        super().__init__(records=True)
        self.view = StudyView()
        keys = {FIRST: 0, SECOND: 1}
        self.router = HttpRouter(self.view, TOKEN, keys.get, (HOST, "localhost:8000"), 5.0)

    def tell(self, event: LauncherEvent) -> list[LauncherAction]:
        actions = super().tell(event)
        others = []
        for action in actions:
            if isinstance(action, StudyChanged | StudyJobChanged | StudyClientChanged):
                self.view.apply(action)
            else:
                others.append(action)
        return others

    def ask(
        self, request: str, body: bytes = b"", *, token: str | bytes = TOKEN, host: str = HOST
    ) -> HttpPlan:
        method, target = request.split()
        text = token if isinstance(token, str) else token.hex()
        headers = {"host": host, "authorization": f"Bearer {text}"}
        return self.router.plan(HttpRequest(method, target, headers, body), self.now)

    def get(self, target: str, *, token: str | bytes = TOKEN) -> dict[str, object]:
        """Return what the answer says."""
        answer = self.ask(f"GET {target}", token=token)
        assert isinstance(answer, HttpAnswer)
        assert answer.status == 200, answer
        return answer.body

    def refused(self, request: str, body: bytes = b"", *, token: str | bytes = TOKEN) -> tuple[int, str]:
        """Return status and reason of a refusal."""
        answer = self.ask(request, body, token=token)
        assert isinstance(answer, HttpAnswer), answer
        return answer.status, str(answer.body["error"])


def busy() -> World:
    """Return a study whose clients 1 and 2 share a job that is queued, 3 has one, and 4 waits."""
    world = World()
    world.serving()
    world.want(1, 2)
    world.tell(Submitted(1, "72"))
    world.want(3)
    world.want(4)
    return world


def test_the_status_tells_server_and_clients() -> None:
    world = busy()
    world.now = 2.0
    assert world.get("/status") == {
        "study": "s",
        "state": "serving",
        "detail": "",
        "incarnation": 0,
        "restarts": 0,
        "server": {
            "uid": 0,
            "name": "s-0",
            "job_id": "10",
            "kind": "server",
            "incarnation": 0,
            "state": "running",
            "detail": "",
            "since_s": 2.0,
        },
        "heard_ago_s": 2.0,
        "word": "submit",
        "ping_interval_s": 5.0,
        "clients": {"postponed": 1, "submitted": 1, "queued": 2},
        "postponed": 1,
        "jobs": 3,
        "job_limit": 3,
        "refusals": 0,
        "stale": "",
    }


def test_a_study_that_has_not_begun_has_a_status() -> None:
    told = World().get("/status")
    assert (told["state"], told["server"], told["heard_ago_s"]) == ("idle", None, None)


BUSY = busy()


def states(told: dict[str, object]) -> list[tuple[object, object]]:
    jobs = told["jobs"]
    assert isinstance(jobs, list)
    return [(job["uid"], job["state"]) for job in jobs]


@pytest.mark.parametrize("limit", [1, 2, 3, 4, 5, 6, 7, 100])
def test_all_that_runs_and_waits_is_on_some_page_once(limit: int) -> None:
    world = busy()
    for client_id in (8, 5, 7):
        world.want(client_id)
    found, then, pages = [], "", 0
    while pages == 0 or then:
        told = world.get(f"/jobs?limit={limit}&{then}".rstrip("&"))
        found += ids(told)
        then, pages = str(told["next"]), pages + 1
        assert told["more"] is bool(then)
    assert found == [2, 1, 0, "client 4", "client 5", "client 7", "client 8"]
    assert pages == -(-7 // limit)


def ids(told: dict[str, object]) -> list[object]:
    jobs = told["jobs"]
    assert isinstance(jobs, list)
    return [
        job["uid"] if job["uid"] is not None else f"client {job['clients'][0]['client_id']}" for job in jobs
    ]


def test_jobs_are_listed_all_or_those_in_a_state() -> None:
    world = busy()
    world.tell(CommandExited(1, 3, client_id=2))
    assert states(world.get("/jobs")) == [
        (2, "submitted"),
        (1, "queued"),
        (0, "running"),
        (None, "postponed"),
    ]
    assert states(world.get("/jobs?state=queued")) == [(1, "queued")]
    assert states(world.get("/jobs?state=failed")) == [(1, "queued")]
    assert states(world.get("/jobs?state=postponed")) == [(None, "postponed")]
    assert states(world.get("/jobs?state=cancelled")) == []
    first = world.get("/jobs?limit=1")
    assert (states(first), first["more"]) == ([(2, "submitted")], True)
    assert states(world.get("/jobs?before=2"))[:1] == [(1, "queued")]
    assert world.get("/jobs/1")["clients"] == [
        {"client_id": 1, "state": "queued", "detail": "slurm job 72 is queued"},
        {"client_id": 2, "state": "failed", "detail": "exit status 3"},
    ]


def test_output_is_that_of_the_server_or_of_a_client() -> None:
    world = busy()
    assert world.ask("GET /jobs/0/log") == ReadOutput("job.0.server.out", 100, {"uid": 0, "stream": "out"})
    assert world.ask("GET /jobs/1/log?stream=err&tail=5&client=2") == ReadOutput(
        "job.1.client.2.err", 5, {"uid": 1, "stream": "err", "client_id": 2}
    )
    assert world.refused("GET /jobs/1/log?client=7") == (404, "job 1 has no client 7")
    assert world.refused("GET /jobs/0/log?client=7") == (404, "job 0 is the server, and has no clients")
    assert world.refused("GET /jobs/1/log?stream=both")[0] == 400
    assert world.refused("GET /jobs/1/log?tail=-1")[0] == 400


def test_what_is_not_there_or_not_understood_is_refused_with_a_reason() -> None:
    world = busy()
    assert world.refused("GET /job") == (
        404,
        "there is no '/job'; there are: /status, /jobs, /jobs/UID, /jobs/UID/log, /events, /ping, /done",
    )
    assert world.refused("GET /jobs/9") == (404, "there is no job 9")
    assert world.refused("GET /jobs/x") == (
        400,
        "'x' is not the number of a job (UID): it has to be a whole number",
    )
    status, reason = world.refused("GET /jobs?state=runing")
    assert status == 400
    assert reason.startswith("there is no state 'runing' (did you mean 'running'?)")
    assert world.refused("GET /jobs?stat=running")[0] == 400
    assert world.refused("PUT /status") == (405, "this is for GET, not for PUT")
    assert world.refused("GET /ping") == (405, "this is for POST, not for GET")


def test_only_who_knows_a_secret_gets_in() -> None:
    world = busy()
    for wrong in ("", "another", TOKEN + "x", b"\x09" * 32):
        for request in ("GET /status", "GET /nothing", "POST /jobs", "DELETE /jobs/1"):
            status, reason = world.refused(request, token=wrong)
            assert (status, "Bearer TOKEN" in reason) == (401, True)
    headers = {"host": HOST, "authorization": f"Basic {TOKEN}"}
    answer = world.router.plan(HttpRequest("GET", "/status", headers), 0.0)
    assert isinstance(answer, HttpAnswer)
    assert (answer.status, answer.headers) == (401, (("www-authenticate", "Bearer"),))


@pytest.mark.parametrize("host", ["evil.example:8000", "127.0.0.1", "127.0.0.1:80", ""])
def test_a_page_elsewhere_that_calls_this_host_by_its_own_name_is_refused(host: str) -> None:
    answer = busy().ask("GET /status", host=host)
    assert isinstance(answer, HttpAnswer)
    assert answer.status == 421
    assert isinstance(busy().ask("GET /jobs/0/log", host="LOCALHOST:8000"), ReadOutput)


def test_the_token_of_the_interface_changes_nothing() -> None:
    world = busy()
    for request in ("POST /jobs", "DELETE /jobs/1", "POST /ping", "POST /done"):
        status, reason = world.refused(request)
        assert (status, "only the server of the study" in reason) == (401, True)


def test_the_server_asks_for_clients_and_ends_the_study() -> None:
    world, body = busy(), b'{"client_ids": [7, 8], "command": ["solve", "--fast"]}'
    assert world.ask("POST /jobs", body, token=FIRST) == AskLauncher(
        0, SubmitClients(0, (7, 8), ("solve", "--fast"))
    )
    assert world.ask("DELETE /jobs/7", token=FIRST) == AskLauncher(0, CancelClient(0, 7))
    assert world.ask("POST /ping", token=FIRST) == AskLauncher(0, ServerPing())
    assert world.ask("POST /done", token=FIRST) == AskLauncher(0, StudyDone())


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{",
        b"[" * 100_000,
        b"[]",
        b'{"client_ids": [1]}',
        b'{"client_ids": [1], "command": ["a"], "more": 1}',
        b'{"client_ids": 1, "command": ["a"]}',
        b'{"client_ids": [true], "command": ["a"]}',
        b'{"client_ids": [-1], "command": ["a"]}',
        b'{"client_ids": [1.5], "command": ["a"]}',
        b'{"client_ids": [1e400], "command": ["a"]}',
        b'{"client_ids": [1], "command": "a b"}',
        b'{"client_ids": [1], "command": [1]}',
        b'{"client_ids": [1], "command": ["a\\u0000b"]}',
        b'{"client_ids": [1], "command": ["\\ud800"]}',
        b"\xff\xfe",
    ],
)
def test_a_body_of_another_form_is_refused_with_the_form(body: bytes) -> None:
    assert busy().refused("POST /jobs", body, token=FIRST)[0] == 400


@settings(max_examples=300)
@given(
    st.sampled_from(["GET", "POST", "DELETE", "HEAD", "*"]),
    st.text(st.characters(max_codepoint=255)) | st.from_regex(r"/jobs(/[0-9x]+)?(/log)?([?][a-z_&=0-9%]*)?"),
    st.binary(max_size=60) | st.just(b'{"client_ids": [1], "command": ["\\ud800"]}'),
    st.sampled_from([TOKEN, FIRST.hex(), ""]),
)
@example("GET", "//[", b"", TOKEN)
@example("GET", "/status\u00e9?%ff", b"", TOKEN)
def test_whatever_is_asked_has_an_answer(method: str, target: str, body: bytes, token: str) -> None:
    headers = {"host": HOST, "authorization": f"Bearer {token}"}
    plan = BUSY.router.plan(HttpRequest(method, target, headers, body), BUSY.now)
    if isinstance(plan, HttpAnswer):
        assert plan.status in (200, 400, 401, 404, 405)
        json.dumps(plan.body).encode()
    if isinstance(plan, AskLauncher) and isinstance(plan.body, SubmitClients):
        assert all(word.encode() is not None for word in plan.body.command)


def test_a_server_sees_what_is_its_own_and_one_that_is_over_is_told_so() -> None:
    world = busy()
    world.tell(ConnectionShutdown(1))
    told = "server 0 is over: server 1 has taken over"
    assert world.refused("GET /jobs", token=FIRST) == (409, told)
    assert world.refused("GET /events", token=FIRST) == (409, told)
    assert world.ask("POST /ping", token=FIRST) == AskLauncher(0, ServerPing())  # the launcher says the same
    assert states(world.get("/jobs", token=SECOND)) == []
    assert world.refused("GET /jobs/1", token=SECOND) == (404, "there is no job 1")
    assert states(world.get("/jobs"))  # for people
    found, _, _ = world.view.events(0, 1)
    assert [type(record) for _, record in found] == [StudyChanged]


def test_events_are_numbered_and_those_that_were_forgotten_are_counted() -> None:
    world = busy()
    assert world.ask("GET /events?after=3&wait_s=99") == AwaitEvents(3, 30.0, None)
    assert world.ask("GET /events", token=FIRST) == AwaitEvents(0, 0.0, 0)
    assert world.ask("GET /events?snapshot=1") == GetSnapshot()
    found, then, missed = world.view.events(0, None)
    assert [number for number, _ in found] == list(range(1, world.view.last + 1))
    assert (then, missed) == (world.view.last, 0)
    assert world.view.events(then, None) == ([], then, 0)
    last = StudyChanged(0.0, "s", "serving", 0)
    for _ in range(EVENTS_KEPT):
        world.view.apply(last)
    found, then, missed = world.view.events(3, None)
    assert missed == world.view.last - EVENTS_KEPT - 3
    assert (found[0][0], len(found), then) == (missed + 4, 1000, missed + 3 + 1000)


def test_what_the_launcher_refuses_has_a_status_of_its_own() -> None:
    wanted, cancel = SubmitClients(1, (1,), ("a",)), CancelClient(1, 1)
    assert answer_of_launcher(wanted, None).status == 202
    assert answer_of_launcher(wanted, RequestRefused(1, "it runs")).status == 409
    assert answer_of_launcher(wanted, RequestRefused(1, "full", is_full=True)).status == 429
    assert answer_of_launcher(cancel, None).status == 202
    assert answer_of_launcher(cancel, RequestRefused(1, "there is none")).status == 404
    assert answer_of_launcher(StudyDone(), None) == HttpAnswer(200, {})
    assert POSTPONED_MAX >= 10_000
