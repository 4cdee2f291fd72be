"""Routes of the HTTP interface of a launcher (MEL-7): who may ask for what, and what the answer is.

Whoever has the token of the interface may look. The server of the study, by its secret, sees what is its own,
and asks for clients. Nothing is read or written here.
"""

from __future__ import annotations

import hmac
import json
import re
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from heapq import nsmallest
from itertools import islice
from typing import TypeAlias
from urllib.parse import parse_qsl

from msgspec import Struct

from gspc_trio.components.launcher.events import (
    CancelClient,
    RequestRefused,
    ServerMessage,
    ServerPing,
    StudyDone,
    SubmitClients,
)
from gspc_trio.core.similar import did_you_mean
from gspc_trio.records.facts import Record, StudyChanged, StudyClientChanged, StudyJobChanged, StudyRecord
from gspc_trio.records.study import CLIENT_STATES, JOB_STATES, StudyProgress

EVENTS_KEPT = 10_000
"""Last records that are kept for those who ask what has happened."""

EVENTS_MAX = 1_000
"""Records in one answer."""

JOBS_MAX = 1_000
"""Jobs in one answer."""

WAIT_S_MAX = 30.0
"""So long an answer may wait for news."""

LINES_MAX = 10_000
"""Lines of output in one answer."""

_NUMBER = re.compile(r"[0-9]{1,15}")
_ID_MAX = 1 << 53


class HttpRequest(Struct, frozen=True):
    """A whole request.

    Attributes:
        method: in upper case.
        target: path and query, as it was sent.
        headers: name in lower case -> value.
        body: what was sent with it.
    """

    method: str
    target: str
    headers: Mapping[str, str]
    body: bytes = b""


class HttpAnswer(Struct, frozen=True):
    """An answer: its status, what it says as JSON, and more headers."""

    status: int
    body: dict[str, object]
    headers: tuple[tuple[str, str], ...] = ()


class AskLauncher(Struct, frozen=True):
    """The server with this number says something to its launcher, as over a connection.

    Attributes:
        incarnation: of the server.
        body: what it says; a request has the number 0.
    """

    incarnation: int
    body: ServerMessage


class ReadOutput(Struct, frozen=True):
    """The last lines of a file of the study are asked for.

    Attributes:
        file: its name, in the directory of the study.
        lines: how many.
        about: what else the answer says.
    """

    file: str
    lines: int
    about: dict[str, object]


class AwaitEvents(Struct, frozen=True):
    """Records after this number are asked for; the answer waits for one, for so many seconds."""

    after: int
    wait_s: float
    incarnation: int | None


class GetSnapshot(Struct, frozen=True):
    """Records are asked for that stand for all that is known."""


HttpPlan: TypeAlias = HttpAnswer | AskLauncher | ReadOutput | AwaitEvents | GetSnapshot


class HttpRefusal(Exception):
    """A request is refused with this status, and this is why, for people."""

    def __init__(self, status: int, reason: str, *headers: tuple[str, str]) -> None:
        super().__init__(reason)
        self.answer: HttpAnswer = HttpAnswer(status, {"error": reason}, headers)


class KeptView(Struct, frozen=True):
    """What is kept of a view of a study.

    Attributes:
        last: number of the last record.
        records: the last of them.
        progress: records that make the state of the study.
    """

    last: int
    records: list[StudyRecord]
    progress: list[StudyRecord]


class StudyView:
    """All that is told of a study.

    Attributes:
        progress: the fold of its records.
        last: number of the last record; the first has 1.
    """

    def __init__(self) -> None:
        self.progress: StudyProgress = StudyProgress()
        self.last: int = 0
        self._records: deque[StudyRecord] = deque(maxlen=EVENTS_KEPT)

    def apply(self, record: StudyRecord) -> None:
        """Take in a record."""
        self.progress.apply(record)
        self._records.append(record)
        self.last += 1

    def events(self, after: int, incarnation: int | None) -> tuple[list[tuple[int, Record]], int, int]:
        """Return records with their numbers, the number to ask with next, and how many were forgotten.

        Args:
            after: number of the last record that is known already.
            incarnation: only records of this server and its clients; None: all.
        """
        first = self.last - len(self._records) + 1
        begin = max(after + 1, first)
        kept = enumerate(islice(self._records, begin - first, None), begin)
        wanted = ((number, one) for number, one in kept if incarnation in (None, one.incarnation))
        found: list[tuple[int, Record]] = list(islice(wanted, EVENTS_MAX))
        then = found[-1][0] if len(found) == EVENTS_MAX else max(after, self.last)
        return found, then, max(0, first - after - 1)

    def kept(self) -> KeptView:
        """Return what another view needs to be as this one."""
        return KeptView(self.last, [*self._records], self.progress.snapshot())

    def restore(self, kept: KeptView) -> None:
        """Be as a view was that has returned this; it is new."""
        for record in kept.progress:
            self.progress.apply(record)
        self._records.extend(kept.records)
        self.last = kept.last

    def changed(self) -> StudyChanged:
        """Return the last word on the study."""
        return self.progress.changed or StudyChanged(0.0, "", "idle", 0)


class HttpRouter:
    """Decides what to do with requests.

    Args:
        view: of the study.
        token: that lets its owner look.
        incarnation_of: secret -> the server that has it, or None; in constant time.
        hosts: values of the header Host by which the interface may be called.
        interval_s: seconds between two signs of life of a server.
    """

    def __init__(
        self,
        view: StudyView,
        token: str,
        incarnation_of: Callable[[bytes], int | None],
        hosts: Iterable[str],
        interval_s: float,
    ) -> None:
        self._view = view
        self._token = token.encode()
        self._incarnation_of = incarnation_of
        self._hosts = frozenset(host.lower() for host in hosts)
        self._interval_s = interval_s

    def plan(self, request: HttpRequest, now: float) -> HttpPlan:
        """Return the answer, or what has to be done for it.

        Args:
            request: that has come.
            now: time on the clock of the records, seconds.
        """
        try:
            return self._plan(request, now)
        except HttpRefusal as refusal:
            return refusal.answer

    def _plan(self, request: HttpRequest, now: float) -> HttpPlan:
        host = request.headers.get("host", "")
        if host.lower() not in self._hosts:
            raise HttpRefusal(421, f"this is not {host or 'a host without a name'}: call {min(self._hosts)}")
        caller = self._caller(request.headers.get("authorization", ""))
        path, _, query = request.target.partition("?")
        words = path.strip("/").split("/")
        method = request.method
        match words:
            case ["ping" | "done" as word]:
                _allow(method, "POST")
                return AskLauncher(self._server(caller), ServerPing() if word == "ping" else StudyDone())
            case ["jobs"] if method == "POST":
                return AskLauncher(self._server(caller), _clients_wanted(request.body))
            case ["jobs", name] if method == "DELETE":
                return AskLauncher(self._server(caller), CancelClient(0, _number(name, "a client id")))
        self._look(caller)
        match words:
            case ["status"]:
                _allow(method, "GET")
                return HttpAnswer(200, describe_study(self._view.progress, self._interval_s, now))
            case ["jobs"]:
                _allow(method, "GET", "POST")
                return self._jobs(_query(query, "state", "before", "after", "limit"), caller, now)
            case ["jobs", name]:
                _allow(method, "GET", "DELETE")
                job = self._job(name, caller)
                return HttpAnswer(200, describe_job(self._view.progress, job, now))
            case ["jobs", name, "log"]:
                _allow(method, "GET")
                return self._log(_query(query, "stream", "tail", "client"), self._job(name, caller))
            case ["events"]:
                _allow(method, "GET")
                return self._events(_query(query, "after", "wait_s", "snapshot"), caller)
        there = "/status, /jobs, /jobs/UID, /jobs/UID/log, /events, /ping, /done"
        raise HttpRefusal(404, f"there is no {path[:100]!r}; there are: {there}")

    # Who asks -----------------------------------------------------------------------------------------------

    def _caller(self, authorization: str) -> int | None:
        """Return the server that asks, or None: whoever has the token of the interface."""
        scheme, _, given = authorization.partition(" ")
        told = given.strip().encode("latin-1", "replace")  # as it came
        may_look = hmac.compare_digest(told, self._token)
        try:
            incarnation = self._incarnation_of(bytes.fromhex(given.strip()))
        except ValueError:
            incarnation = None
        if scheme.lower() != "bearer" or not told or not (may_look or incarnation is not None):
            words = "say Authorization: Bearer TOKEN, with the token in the file of this study"
            raise HttpRefusal(401, words, ("www-authenticate", "Bearer"))
        return incarnation

    def _server(self, caller: int | None) -> int:
        if caller is None:
            words = "only the server of the study may do this, with the secret in its GSPC_SERVER_FILE"
            raise HttpRefusal(401, words, ("www-authenticate", "Bearer"))
        return caller

    def _look(self, caller: int | None) -> None:
        """Refuse a server that is over."""
        present = self._view.changed().incarnation
        if caller is not None and caller < present:
            raise HttpRefusal(409, f"server {caller} is over: server {present} has taken over")

    # What is asked for --------------------------------------------------------------------------------------

    def _jobs(self, query: dict[str, str], caller: int | None, now: float) -> HttpAnswer:
        progress, state = self._view.progress, query.get("state", "")
        known = dict.fromkeys((*CLIENT_STATES, *JOB_STATES))
        if state and state not in known:
            near = did_you_mean(state, known)
            raise HttpRefusal(400, f"there is no state {state!r}{near}; there are: {', '.join(known)}")
        before = _number(query["before"], "before") if "before" in query else _ID_MAX
        most = min(_number(query.get("limit", str(JOBS_MAX)), "limit"), JOBS_MAX)
        after = _number(query["after"], "after") if "after" in query else -1
        found = self._fitting(state, before, caller) if after < 0 else iter(())
        jobs = list(islice(found, most + 1))
        rest = most + 1 - len(jobs)
        waiting = nsmallest(rest, self._waiting(after)) if state in ("", "postponed") else []
        page: list[dict[str, object]] = [describe_job(progress, job, now) for job in jobs[:most]]
        page += [_describe_postponed(progress.clients[one], now) for one in waiting[: most - len(page)]]
        then = ""
        if len(jobs) + len(waiting) > most > 0:
            then = f"after={waiting[-2]}" if len(waiting) > 1 else f"before={jobs[most - 1].uid}"
        return HttpAnswer(200, {"jobs": page, "more": bool(then), "next": then})

    def _fitting(self, state: str, before: int, caller: int | None) -> Iterator[StudyJobChanged]:
        progress = self._view.progress
        for job in progress.every_job():
            if job.uid < before and caller in (None, job.incarnation):
                states = {job.state, *(client.state for client in progress.clients_of(job))}
                if not state or state in states:
                    yield job

    def _waiting(self, after: int) -> Iterator[int]:
        """Yield the ids above this one of the clients that wait for a place."""
        clients = self._view.progress.clients
        return (one for one, client in clients.items() if one > after and client.uid is None)

    def _job(self, name: str, caller: int | None) -> StudyJobChanged:
        uid = _number(name, "the number of a job (UID)")
        job = self._view.progress.job(uid)
        if job is None or caller not in (None, job.incarnation):
            raise HttpRefusal(404, f"there is no job {uid}")
        return job

    def _log(self, query: dict[str, str], job: StudyJobChanged) -> ReadOutput:
        stream = query.get("stream", "out")
        if stream not in ("out", "err"):
            raise HttpRefusal(400, f"stream: there is no {stream!r}; there are: out, err")
        lines = min(_number(query.get("tail", "100"), "tail"), LINES_MAX)
        about: dict[str, object] = {"uid": job.uid, "stream": stream}
        of = "server"
        if job.client_ids:
            client = _number(query["client"], "client") if "client" in query else job.client_ids[0]
            if client not in job.client_ids:
                raise HttpRefusal(404, f"job {job.uid} has no client {client}")
            about["client_id"], of = client, f"client.{client}"
        elif "client" in query:
            raise HttpRefusal(404, f"job {job.uid} is the server, and has no clients")
        return ReadOutput(f"job.{job.uid}.{of}.{stream}", lines, about)

    def _events(self, query: dict[str, str], caller: int | None) -> AwaitEvents | GetSnapshot:
        if "snapshot" in query:
            if caller is not None:
                raise HttpRefusal(401, "a snapshot of all is for the owner of the token of the interface")
            return GetSnapshot()
        wait_s = _number(query.get("wait_s", "0"), "wait_s")
        after = _number(query.get("after", "0"), "after")
        return AwaitEvents(after, min(float(wait_s), WAIT_S_MAX), caller)


# Answers ----------------------------------------------------------------------------------------------------


def describe_study(progress: StudyProgress, interval_s: float, now: float) -> dict[str, object]:
    """Return what is known of a study.

    Args:
        progress: of the study.
        interval_s: seconds between two signs of life of a server.
        now: on the clock of the records, seconds.
    """
    changed = progress.changed or StudyChanged(0.0, "", "idle", 0)
    server = progress.server_job()
    heard_at_s = changed.heard_at_s
    clients = progress.by_state()
    return {
        "study": changed.study,
        "state": changed.state,
        "detail": changed.detail,
        "incarnation": changed.incarnation,
        "restarts": changed.incarnation,
        "server": None if server is None else describe_job(progress, server, now),
        "heard_ago_s": None if heard_at_s is None else round(max(0.0, now - heard_at_s), 3),
        "word": changed.word,
        "ping_interval_s": interval_s,
        "clients": clients,
        "postponed": clients.get("postponed", 0),
        "jobs": len(progress.jobs),
        "job_limit": changed.job_limit,
        "refusals": changed.refusals,
        "stale": changed.stale,
    }


def describe_job(progress: StudyProgress, job: StudyJobChanged, now: float) -> dict[str, object]:
    """Return what is known of a job."""
    told: dict[str, object] = {
        "uid": job.uid,
        "name": job.name,
        "job_id": job.job_id,
        "kind": "clients" if job.client_ids else "server",
        "incarnation": job.incarnation,
        "state": job.state,
        "detail": job.detail,
        "since_s": round(max(0.0, now - job.at_s), 3),
    }
    if job.client_ids:
        told["clients"] = [
            {"client_id": client.client_id, "state": client.state, "detail": client.detail}
            for client in progress.clients_of(job)
        ]
    return told


def _describe_postponed(client: StudyClientChanged, now: float) -> dict[str, object]:
    return {
        "uid": None,
        "kind": "clients",
        "incarnation": client.incarnation,
        "state": "postponed",
        "since_s": round(max(0.0, now - client.at_s), 3),
        "clients": [{"client_id": client.client_id, "state": "postponed", "detail": ""}],
    }


def answer_of_launcher(asked: ServerMessage, refused: RequestRefused | None) -> HttpAnswer:
    """Return the answer to a server, of which the launcher has heard.

    Args:
        asked: what the server has said.
        refused: why nothing was changed; None: it was taken.
    """
    if refused is not None:
        status = 404 if isinstance(asked, CancelClient) else 429 if refused.is_full else 409
        return HttpAnswer(status, {"error": refused.reason})
    match asked:
        case SubmitClients():
            return HttpAnswer(202, {"client_ids": list(asked.client_ids), "state": "postponed"})
        case CancelClient():
            return HttpAnswer(202, {"client_id": asked.client_id})
        case _:
            return HttpAnswer(200, {})


# Requests ---------------------------------------------------------------------------------------------------


def _allow(method: str, *allowed: str) -> None:
    if method not in allowed:
        words = f"this is for {' and '.join(allowed)}, not for {method[:20]}"
        raise HttpRefusal(405, words, ("allow", ", ".join(allowed)))


def _number(text: str, what: str) -> int:
    if not _NUMBER.fullmatch(text):
        raise HttpRefusal(400, f"{text[:40]!r} is not {what}: it has to be a whole number")
    return int(text)


def _query(text: str, *names: str) -> dict[str, str]:
    try:
        pairs = parse_qsl(text, keep_blank_values=True, strict_parsing=bool(text), max_num_fields=10)
    except ValueError as error:
        raise HttpRefusal(400, f"the query cannot be read: {error}") from None
    for name, _ in pairs:
        if name not in names:
            near = did_you_mean(name, names) or f"; there are: {', '.join(names)}"
            raise HttpRefusal(400, f"there is no {name[:40]!r} to ask with{near}")
    return dict(pairs)


def _is_argument(one: object) -> bool:
    """Return whether this can be an argument of a program."""
    return isinstance(one, str) and not re.search("[\0\ud800-\udfff]", one)


def _clients_wanted(body: bytes) -> SubmitClients:
    """Return what a body of JSON asks for."""
    try:
        told: object = json.loads(body)
    except (ValueError, RecursionError) as error:
        raise HttpRefusal(400, f"the body is no JSON: {error}") from None
    form = 'the body is an object like {"client_ids": [1, 2], "command": ["program", "argument"]}'
    if not isinstance(told, dict) or told.keys() != {"client_ids", "command"}:
        raise HttpRefusal(400, form)
    ids, command = told["client_ids"], told["command"]
    if not isinstance(ids, list) or not all(type(one) is int and 0 <= one <= _ID_MAX for one in ids):
        raise HttpRefusal(400, f"client_ids: {str(ids)[:60]} is no list of whole numbers; {form}")
    if not isinstance(command, list) or not all(map(_is_argument, command)):
        raise HttpRefusal(400, f"command: {str(command)[:60]} is no list of texts; {form}")
    return SubmitClients(0, tuple(ids), tuple(command))
