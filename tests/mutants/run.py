#!/usr/bin/env python3
"""Look for every mutant with the tests nearest to it and by simulating; write what was found where.

Run as ``make mutants``. It takes hours; ``--only WORDS`` looks for some of them, and keeps what is known of
the others.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import resource
import signal
import subprocess
import sys
import time
import traceback
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from datetime import date
from functools import cache
from hashlib import blake2b
from io import StringIO
from pathlib import Path
from queue import Queue
from typing import Any

from tests.mutants.mutant import LINES_MAX, PACKAGE, ROOT, Mutant, probe, read, statement_of
from tests.mutants.report import FOUND, is_found, write_page
from tests.mutants.table import MUTANTS, nearest_tests

SEED_CPU_S = 15.0
"""What simulates one seed for longer hangs; most take a third of a second, few more than five."""

TESTS_CPU_S, TESTS_S = 300.0, 3600.0
"""What tests for longer hangs: at work, or waiting."""

DAY_S = 24 * 3600.0

MEMORY_BYTES = 3 << 30


def main() -> int:
    """Run the command line."""
    parser = argparse.ArgumentParser(prog="make mutants", description=__doc__)
    parser.add_argument("--only", default="", help="mutants whose name or file has these words in it")
    parser.add_argument("--seeds", type=int, default=2000, help="at how many seeds to look")
    parser.add_argument("--tries", type=int, default=200, help="how many of those that reach it to run")
    parser.add_argument("--workers", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--judges", default="simulation,tests", help="who looks for them")
    parser.add_argument("--again", action="store_true", help="only those that simulating has not found yet")
    parser.add_argument("--unfound", action="store_true", help="only those that nobody has found yet")
    parser.add_argument("--new", action="store_true", help="only those of which nothing is known")
    parser.add_argument(
        "--reached", type=Path, help="file that keeps what each seed reaches, for another run"
    )
    parser.add_argument("--found", type=Path, default=FOUND, help="file that keeps what is found")
    parser.add_argument("--judge", action="store_true", help=argparse.SUPPRESS)
    chosen = parser.parse_args()
    if chosen.judge:
        _be_judge()
        return 0
    known: dict[str, dict[str, Any]] = json.loads(chosen.found.read_text()) if chosen.found.exists() else {}
    mutants = [one for one in MUTANTS if chosen.only in one.name or chosen.only in one.file]
    if chosen.again:
        mutants = [one for one in mutants if known.get(one.name, {}).get("seed") is None]
    if chosen.unfound:
        mutants = [one for one in mutants if not is_found(known.get(one.name, {}))]
    if chosen.new:
        mutants = [one for one in mutants if one.name not in known]
    judges = chosen.judges.split(",")
    court = _Judges(chosen.workers)
    seeds = _reached(court, chosen.seeds, chosen.workers, chosen.reached) if "simulation" in judges else {}
    begun_s = time.monotonic()
    with ThreadPoolExecutor(chosen.workers) as pool:
        looks = {
            pool.submit(_look_for, court, one, judges, seeds, chosen.tries, known.get(one.name, {})): one
            for one in mutants
        }
        for number, look in enumerate(as_completed(looks)):
            mutant = looks[look]
            if look.exception() is not None:
                print(f"{mutant.name}: {look.exception()!r}", file=sys.stderr)
                continue
            known[mutant.name] = {**known.get(mutant.name, {}), **look.result()}
            passed_s = time.monotonic() - begun_s
            print(
                f"{number + 1} of {len(mutants)}, {passed_s:.0f} s: {mutant.name}: {look.result()}",
                flush=True,
            )
            in_order = {one.name: known[one.name] for one in MUTANTS if one.name in known}
            chosen.found.write_text(json.dumps(in_order, indent=1) + "\n")
    court.close()
    if chosen.found == FOUND:
        write_page(MUTANTS, known)
    return 0


# What seeds reach -------------------------------------------------------------------------------------------


@cache
def _files() -> list[str]:
    """Return the files that mutants change."""
    return sorted({one.file for one in MUTANTS})


def _place(mutant: Mutant) -> int:
    """Return the number of the statement that a mutant changes, as :func:`probe` gives it."""
    return _files().index(mutant.file) * LINES_MAX + statement_of(mutant)


def _reached(court: _Judges, number: int, workers: int, keep: Path | None) -> dict[int, dict[str, Any]]:
    """Return of each seed what it reaches, and the fingerprint of its events: without any mutant."""
    sources = "".join(read(path) for path in sorted(PACKAGE.rglob("*.py")))
    wanted = sorted({_place(one) for one in MUTANTS})
    key = blake2b(f"{wanted} {sources}".encode(), digest_size=16).hexdigest()
    kept = json.loads(keep.read_text()) if keep is not None and keep.exists() else {}
    found = {int(seed): row for seed, row in kept.get("seeds", {}).items()} if kept.get("key") == key else {}
    missing = [seed for seed in range(number) if seed not in found]
    shares = [missing[first::workers] for first in range(workers)]
    with ThreadPoolExecutor(workers) as pool:
        for lines in pool.map(
            lambda share: court.ask("reached", json.dumps([share, wanted]), DAY_S)[0], shares
        ):
            found.update({row["seed"]: row for row in lines})
    if keep is not None:
        keep.write_text(json.dumps({"key": key, "seeds": found}))
    return {seed: found[seed] for seed in range(number) if seed in found}


def _tell_reached(seeds: list[int], wanted: list[int]) -> None:
    reached = probe(_files())
    from gspc_trio.testing.hunt import quiet
    from gspc_trio.testing.simulation import simulate

    quiet()
    for seed in seeds:
        reached.clear()
        report = simulate(seed)
        if report.broken:
            print(f"seed {seed} is broken without a mutant: {report.broken}", file=sys.stderr, flush=True)
            continue
        told = sorted(reached.intersection(wanted))
        row = {"seed": seed, "digest": report.digest, "reached": told, "size": len(reached)}
        print(json.dumps(row), flush=True)


# One mutant -------------------------------------------------------------------------------------------------


def _look_for(
    court: _Judges,
    mutant: Mutant,
    judges: Sequence[str],
    seeds: dict[int, dict[str, Any]],
    tries: int,
    known: dict[str, Any],
) -> dict[str, Any]:
    found: dict[str, Any] = {"date": date.today().isoformat()}
    if "simulation" in judges:
        where = _place(mutant)
        reaching = {seed: row["digest"] for seed, row in seeds.items() if where in row["reached"]}
        first = known.get("seed")
        # What has found it before comes first, then those in which most happens.
        order = sorted(reaching, key=lambda seed: (seed != first, -seeds[seed]["size"]))[:tries]
        found |= {"seeds": len(seeds), "reaching": len(reaching)}
        found |= _simulate(court, mutant, {seed: reaching[seed] for seed in order})
    if "tests" in judges:
        lines, status = court.ask("tests", mutant.name, TESTS_S)
        if status > 0:
            raise RuntimeError(f"nobody could judge {mutant.name}")
        found["test"] = "they hang" if status else lines[0]["failed"]
    return found


def _simulate(court: _Judges, mutant: Mutant, seeds: dict[int, str]) -> dict[str, Any]:
    lines, status = court.ask("simulation", json.dumps([mutant.name, seeds]), DAY_S)
    broken = [row for row in lines if row.get("broken")]
    changed = sum(1 for row in lines if row.get("changed"))
    found: dict[str, Any] = {"seed": None, "broken": "", "tried": len(seeds), "changed": changed}
    if broken:
        found |= {"seed": broken[0]["seed"], "broken": broken[0]["broken"][:120]}
    elif status:
        begun = [row["begins"] for row in lines if "begins" in row]
        if not begun:
            raise RuntimeError(f"nobody could judge {mutant.name}")
        found |= {"seed": begun[-1], "broken": "it hangs" if status == -signal.SIGVTALRM else f"{status}"}
    return found


class _Judges:
    """Processes that judge one mutant after the other, each in a child of its own.

    Args:
        number: of them, that may work at one time.
    """

    def __init__(self, number: int) -> None:
        command = [sys.executable, "-m", "tests.mutants.run", "--judge"]
        environment = {**os.environ, "PYTHONHASHSEED": "0"}
        self._idle: Queue[subprocess.Popen[str]] = Queue()
        for _ in range(number):
            pipe = subprocess.PIPE
            judge = subprocess.Popen(command, cwd=ROOT, stdin=pipe, stdout=pipe, text=True, env=environment)
            self._idle.put(judge)

    def ask(self, judge: str, what: str, time_s: float) -> tuple[list[dict[str, Any]], int]:
        """Return what a judge has said, and how it ended: by a status, or by a signal (below 0)."""
        process = self._idle.get()
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(json.dumps([judge, what, time_s]) + "\n")
        process.stdin.flush()
        said: list[dict[str, Any]] = []
        for line in process.stdout:
            row = json.loads(line) if line.startswith("{") else {}
            if "ended" in row:
                break
            said.append(row)
        else:
            raise RuntimeError(f"the judge of {judge} {what} is gone")
        self._idle.put(process)
        return said, row["ended"]

    def close(self) -> None:
        """Let them end."""
        while not self._idle.empty():
            process = self._idle.get()
            assert process.stdin is not None
            process.stdin.close()
            process.wait()


def _be_judge() -> None:
    """Judge what comes on standard input; what most need is loaded once."""
    import hypothesis  # noqa: F401
    import pytest  # noqa: F401

    import gspc_trio.testing.simulation  # noqa: F401

    for line in sys.stdin:
        judge, what, time_s = json.loads(line)
        child = os.fork()
        if not child:
            status = 1
            try:
                os.setsid()
                _judge(judge, what)
                status = 0
            except BaseException:
                traceback.print_exc()
            finally:
                sys.stdout.flush()
                os._exit(status)
        until_s = time.monotonic() + time_s
        while not (ended := os.waitpid(child, os.WNOHANG))[0]:
            if time.monotonic() > until_s:
                os.killpg(child, signal.SIGKILL)
            time.sleep(0.02)
        print(json.dumps({"ended": os.waitstatus_to_exitcode(ended[1])}), flush=True)


def _judge(judge: str, what: str) -> None:
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))
    if judge == "reached":
        _tell_reached(*json.loads(what))
    elif judge == "tests":
        _tell_tests(_named(what))
    else:
        name, seeds = json.loads(what)
        _tell_simulation(_named(name), {int(seed): digest for seed, digest in seeds.items()})


def _named(name: str) -> Mutant:
    return next(one for one in MUTANTS if one.name == name)


def _tell_simulation(mutant: Mutant, seeds: dict[int, str]) -> None:
    import gspc_trio.testing.simulation as simulation
    from gspc_trio.testing.hunt import quiet

    quiet()
    mutant.apply()
    for seed, digest in seeds.items():
        print(json.dumps({"begins": seed}), flush=True)
        signal.setitimer(signal.ITIMER_VIRTUAL, SEED_CPU_S)  # whose signal ends the process
        report = simulation.simulate(seed)
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        row = {"seed": seed, "broken": report.broken, "changed": report.digest != digest}
        print(json.dumps(row), flush=True)
        if report.broken:
            return


class _First:
    """Notes which test fails first."""

    def __init__(self) -> None:
        self.failed = ""

    def pytest_runtest_logreport(self, report: Any) -> None:
        if report.failed and not self.failed:
            self.failed = report.nodeid.removeprefix("tests/")

    def pytest_collectreport(self, report: Any) -> None:
        self.pytest_runtest_logreport(report)


def _tell_tests(mutant: Mutant) -> None:
    import pytest
    from hypothesis import Phase, settings

    # The first example that fails will do, and the same ones are looked at each time.
    phases = (Phase.explicit, Phase.generate)
    settings.register_profile("mutants", phases=phases, derandomize=True, database=None)
    settings.load_profile("mutants")
    mutant.apply()
    signal.setitimer(signal.ITIMER_VIRTUAL, TESTS_CPU_S)
    first, quiet = _First(), StringIO()
    options = [
        "-x",
        "-q",
        "--assert=plain",
        "-p",
        "no:cacheprovider",
        "-p",
        "no:xdist",
        "--rootdir",
        str(ROOT),
    ]
    tests = [str(ROOT / "tests" / name) for name in nearest_tests(mutant)]
    with contextlib.redirect_stdout(quiet), contextlib.redirect_stderr(quiet):
        status = pytest.main([*options, *tests], plugins=[first])
    if status not in (pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED):
        raise RuntimeError(f"{mutant.name}: {status!r}: {quiet.getvalue()[-1000:]}")
    print(json.dumps({"failed": first.failed}), flush=True)


if __name__ == "__main__":
    sys.exit(main())
