"""The report of a recorded run: one HTML page that needs no network."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from html import escape
from statistics import median, quantiles

from gspc_trio.components.monitor.reports import IoReport
from gspc_trio.core.task import TaskState
from gspc_trio.reports.charts import colours_of, lane_svg, lanes, there_cores, used_cores, utilisation_svg
from gspc_trio.reports.io import HEADS, duration_rows, event_rows, size_rows, sum_rows, volume_svg
from gspc_trio.reports.run import RecordedAttempt, RecordedJob, RecordedRun, critical_path
from gspc_trio.tui.text import printable, size

SLOWEST_MAX = 20
"""Slowest tasks that are listed."""

FAILURES_MAX = 50
"""Failures that are listed, the first ones."""

PATH_MAX = 100
"""Tasks of a critical path that are listed, the longest ones."""

NAMES_MAX = 50
"""Names of tasks that are listed, those that computed most."""

_STYLE = """
:root{color-scheme:light dark;--ink:#1c2024;--dim:#5d6670;--line:#d9dee3;--back:#fff;--there:#e4e8ec;
--used:#2a6f97;--bad:#c1121f;--c1:#2a6f97;--c2:#e07a1f;--c3:#3a8f5c;--c4:#7b5ea7;--c5:#b58900;--c6:#cc5a8e;
--c7:#3fa7a3;--c8:#8d6e4a;--c0:#8a929a}
@media(prefers-color-scheme:dark){:root{--ink:#e6e9ec;--dim:#9aa4ae;--line:#353c43;--back:#16191c;
--there:#2a3036;--used:#5aa9d6;--bad:#ff6b6b;--c1:#5aa9d6;--c2:#f0a35c;--c3:#6cc08b;--c4:#a98fd0;--c5:#d9b44a}}
*{box-sizing:border-box}
body{font:15px/1.5 system-ui,sans-serif;color:var(--ink);background:var(--back);max-width:1100px;
margin:0 auto;padding:1rem}
h1{font-size:1.5rem;margin:.5rem 0}
h2{font-size:1.15rem;margin:2rem 0 .5rem;border-bottom:1px solid var(--line)}
p.dim,.dim{color:var(--dim)}.wide{overflow-x:auto}
table{border-collapse:collapse;width:100%}
th,td{text-align:left;padding:.2rem .6rem .2rem 0;vertical-align:top}
th{color:var(--dim);font-weight:500}tr+tr td{border-top:1px solid var(--line)}
td.number,th.number{text-align:right;white-space:nowrap;font-variant-numeric:tabular-nums}
svg.use{width:100%;height:110px;display:block;background:var(--back)}
svg .there{fill:var(--there)}svg .used{fill:var(--used)}
.lanes{display:grid;grid-template-columns:minmax(5rem,max-content) 1fr;gap:2px .6rem;align-items:center}
.lanes span{font-size:.8rem;color:var(--dim);white-space:nowrap}
svg.lane{width:100%;height:14px;background:var(--there)}
svg .failed{fill:var(--bad)}svg .cancelled{fill:var(--dim)}.c0{fill:var(--c0);color:var(--c0)}
.axis{display:flex;justify-content:space-between;color:var(--dim);font-size:.8rem}
.key b{display:inline-block;width:.8em;height:.8em;margin-right:.3em;background:currentColor}
.key span{margin-right:1em;overflow-wrap:anywhere}.key i{font-style:normal;color:var(--ink)}
pre{white-space:pre-wrap;overflow-wrap:anywhere;background:var(--there);padding:.5rem;margin:.3rem 0}
.bad{color:var(--bad)}
""" + "".join(f".c{number}{{fill:var(--c{number});color:var(--c{number})}}" for number in range(1, 9))

_Cell = str | int | float


def report_page(
    run: RecordedRun, title: str, clock: Callable[[float], str], io: IoReport | None = None
) -> str:
    """Return the report of a run as a page of HTML.

    Args:
        run: what was recorded.
        title: of the page.
        clock: writes a time, seconds since 1970, for people.
        io: what was read and written meanwhile; None: nobody knows.
    """
    sections = (
        _summary(run, clock),
        _utilisation(run),
        _lanes(run),
        _failures(run),
        _by_name(run),
        _slowest(run),
        *(_critical(run, job) for job in run.jobs.values()),
        _data(run),
        *((_read_and_written(io, clock),) if io is not None else ()),
    )
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width,initial-scale=1">'
        f"<title>{escape(title)}</title><style>{_STYLE}</style></head><body>"
        f"<h1>{escape(title)}</h1>{''.join(sections)}"
        f'<p class="dim">Written by gspc-trio {escape(run.version)}.</p></body></html>\n'
    )


def _summary(run: RecordedRun, clock: Callable[[float], str]) -> str:
    rows = [
        (
            job.name or job.job, job.state, seconds(job.end_s - job.begin_s), job.tasks,
            job.counts.get(TaskState.FINISHED, 0), job.counts.get(TaskState.FAILED, 0),
            job.counts.get(TaskState.CANCELLED, 0), job.detail,
        )
        for job in run.jobs.values()
    ]  # fmt: skip
    computed_s = sum(attempt.compute_s for attempt in run.attempts)
    hosts = {run.host(attempt.resource_id) for attempt in run.attempts}
    told = (
        f"From {clock(run.begin_s)} to {clock(run.end_s)}, {seconds(run.end_s - run.begin_s)}: "
        f"{seconds(computed_s)} of compute by {len({it.resource_id for it in run.attempts})} workers on "
        f"{len(hosts)} {'host' if len(hosts) == 1 else 'hosts'}."
    )
    if run.lost:
        told += f" Compute processes that were lost: {len(run.lost)}."
    heads = ("job", "state", "time", "tasks", "finished", "failed", "cancelled", "")
    return _section("Summary", f"<p>{escape(told)}</p>{_table(heads, rows)}")


def _utilisation(run: RecordedRun) -> str:
    most = round(max(*there_cores(run), *used_cores(run)), 1)
    return _section(
        "Utilisation over time",
        f"{utilisation_svg(run)}{_axis(run)}"
        f'<p class="dim">Dark: resources that computed; light: those that were there, at most {most:g}.</p>',
    )


def _axis(run: RecordedRun) -> str:
    length_s = run.end_s - run.begin_s
    marks = "".join(f"<span>{seconds(length_s * quarter / 4)}</span>" for quarter in range(5))
    return f'<div class="axis">{marks}</div>'


def _lanes(run: RecordedRun) -> str:
    colours = colours_of(run)
    drawn = lanes(run)
    rows = "".join(
        f"<span>{escape(resource_id)}</span>{lane_svg(run, attempts, colours)}"
        for resource_id, attempts in drawn.items()
    )
    named = [(name or "task", number) for name, number in colours.items() if number]
    if len(named) < len(colours):
        named.append(("others", 0))
    key = "".join(f'<span class="c{number}"><b></b><i>{escape(name)}</i></span>' for name, number in named)
    left_out = len({attempt.resource_id for attempt in run.attempts}) - len(drawn)
    more = f'<p class="dim">{left_out} more workers, which computed less.</p>' if left_out else ""
    what = f'<p class="key">{key}<span class="bad"><b></b><i>failed</i></span></p>'
    return _section("Workers", f'{what}<div class="lanes">{rows}<span></span>{_axis(run)}</div>{more}')


def _failures(run: RecordedRun) -> str:
    bad = [it for it in run.attempts if it.state in (TaskState.FAILED, TaskState.READY)]
    if not bad:
        return _section("Failures", "<p>No attempt failed.</p>")
    bad.sort(key=lambda it: it.state is not TaskState.FAILED)
    items = "".join(_failure(run, attempt) for attempt in bad[:FAILURES_MAX])
    more = f'<p class="dim">{len(bad) - FAILURES_MAX} more.</p>' if len(bad) > FAILURES_MAX else ""
    return _section("Failures", items + more)


def _failure(run: RecordedRun, attempt: RecordedAttempt) -> str:
    again = " It was tried again." if attempt.state is TaskState.READY else ""
    where = f"attempt {attempt.number}, on {attempt.resource_id} of {run.host(attempt.resource_id)}"
    took_s = attempt.compute_s if attempt.begin_s else attempt.over_s - (attempt.sent_s or attempt.over_s)
    output = f"<pre>{escape(printable(attempt.output))}</pre>" if attempt.output else ""
    return (
        f'<p><b class="bad">{escape(attempt.name or "task")} {attempt.task_id}</b>, {escape(where)}, '
        f"after {seconds(took_s)}: {escape(printable(attempt.detail).rstrip('.'))}.{again}</p>{output}"
    )


def _by_name(run: RecordedRun) -> str:
    found: dict[str, list[RecordedAttempt]] = {}
    for attempt in run.attempts:
        found.setdefault(attempt.name, []).append(attempt)
    total_s = {name: sum(it.compute_s for it in attempts) for name, attempts in found.items()}
    rows = []
    for name in sorted(found, key=lambda name: (-total_s[name], name))[:NAMES_MAX]:
        times_s = [it.compute_s for it in found[name] if it.state is TaskState.FINISHED]
        bad = sum(it.state in (TaskState.FAILED, TaskState.READY) for it in found[name])
        waited_s = median(it.waited_s for it in found[name])
        high_s = quantiles(times_s, n=20)[-1] if len(times_s) > 1 else max(times_s, default=0.0)
        rows.append(
            (
                name or "task", len(times_s), bad, seconds(total_s[name]),
                seconds(median(times_s) if times_s else 0.0), seconds(min(high_s, max(times_s, default=0.0))),
                seconds(max(times_s, default=0.0)), seconds(waited_s),
            )
        )  # fmt: skip
    heads = ("name", "finished", "failed attempts", "compute", "median", "95 %", "longest", "median wait")
    left_out = len(found) - len(rows)
    more = f'<p class="dim">{left_out} more names, which computed less.</p>' if left_out else ""
    return _section("Tasks by name", _table(heads, rows) + more)


def _slowest(run: RecordedRun) -> str:
    slowest = sorted(run.attempts, key=lambda it: -it.compute_s)[:SLOWEST_MAX]
    rows = [(*_attempt(it), it.resource_id) for it in slowest if it.begin_s]
    return _section("Slowest tasks", _table(("task", "compute", "waited", "worker"), rows))


def _attempt(attempt: RecordedAttempt) -> tuple[str, str, str]:
    name = f"{attempt.name or 'task'} {attempt.task_id}"
    return name, seconds(attempt.compute_s), seconds(attempt.waited_s)


def _critical(run: RecordedRun, job: RecordedJob) -> str:
    path = critical_path(run, job.job)
    if not path:
        return ""
    compute_s = sum(it.compute_s for it in path)
    took_s = path[-1].over_s - job.begin_s
    told_path = f"{len(path)} tasks, one after another" if len(path) > 1 else "1 task"
    told = f"The end of the job waited for {told_path}: {seconds(compute_s)} of compute in {seconds(took_s)}."
    if not any(name[0] == job.job for name in run.flows):
        told = "These records do not say which task took which result: this is the task that ended last."
    shown = set(sorted(path, key=lambda it: -it.compute_s)[:PATH_MAX])
    rows = [(*_attempt(it), it.resource_id, seconds(it.over_s - job.begin_s)) for it in path if it in shown]
    heads = ("task", "compute", "waited", "worker", "ended at")
    more = (
        "" if len(path) <= PATH_MAX else f'<p class="dim">{len(path) - PATH_MAX} shorter ones left out.</p>'
    )
    title = "Critical path" if len(run.jobs) == 1 else f"Critical path of {job.name or job.job}"
    return _section(title, f"<p>{escape(told)}</p>{_table(heads, rows)}{more}")


def _data(run: RecordedRun) -> str:
    staged = [it for it in run.attempts if it.in_s or it.out_s]
    if not run.moved and not staged:
        return _section("Data", "<p>No task fetched data from another host, and none staged files.</p>")
    moved_bytes = sum(moved[0] for moved in run.moved.values())
    stage_s = sum(it.in_end_s - it.in_s + it.out_end_s - it.out_s for it in staged)
    told = (
        f"{len(staged)} attempts staged data, for {seconds(stage_s)} together. "
        f"{size(moved_bytes)} came from other hosts; all else was on the host of the task."
    )
    rows = [
        (source, target, size(moved[0]), seconds(moved[1]), moved[2])
        for (source, target), moved in sorted(run.moved.items(), key=lambda it: -it[1][0])
    ]
    heads = ("from host", "to host", "data", "time", "tasks")
    return _section("Data by locality", f"<p>{escape(told)}</p>{_table(heads, rows) if rows else ''}")


def _read_and_written(told: IoReport, clock: Callable[[float], str]) -> str:
    """Return what was read and written, and what happened."""
    if not told.sums:
        body = "<p>Nothing was kept of this time.</p>"
    else:
        body = volume_svg(told) + _table(HEADS, list(sum_rows(told)))
    for what, rows in (("bytes", size_rows(told.sums)), ("time", duration_rows(told.sums))):
        if rows:
            body += _table((f"{what} of a call", "reads", "writes"), rows)
    events = event_rows(told, clock)
    if events:
        body += _table(("when", "event", "of", ""), events)
    return _section("Read and written", body)


def _section(title: str, body: str) -> str:
    return f"<section><h2>{escape(title)}</h2>{body}</section>"


def _table(heads: Sequence[str], rows: Iterable[Sequence[_Cell]]) -> str:
    rows = list(rows)
    numbers = [bool(rows) and all(_is_number(row[place]) for row in rows) for place in range(len(heads))]
    kinds = ['class="number"' if number else "" for number in numbers]

    def cells(tag: str, row: Sequence[_Cell]) -> Iterator[str]:
        for kind, cell in zip(kinds, row, strict=True):
            yield (
                f"<{tag} {kind}>{escape(str(cell))}</{tag}>"
                if kind
                else f"<{tag}>{escape(str(cell))}</{tag}>"
            )

    lines = "".join(f"<tr>{''.join(cells('td', row))}</tr>" for row in rows)
    return f'<div class="wide"><table><tr>{"".join(cells("th", heads))}</tr>{lines}</table></div>'


def _is_number(cell: _Cell) -> bool:
    return isinstance(cell, int | float) or cell[:1].isdigit()


def seconds(number: float) -> str:
    """Return a time for people: ``0.35 ms``, ``12.3 s``, ``4 min 10 s``, ``2 h 5 min``."""
    if number < 0.1:
        return "0 s" if number <= 0 else f"{1e3 * number:.2f} ms"
    if number < 60:
        return f"{number:.2f} s"
    minutes, rest = divmod(round(number), 60)
    if minutes < 60:
        return f"{minutes} min {rest} s"
    return f"{minutes // 60} h {minutes % 60} min"
