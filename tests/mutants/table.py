"""All mutants, and the tests nearest to each file."""

from __future__ import annotations

import tomllib
from pathlib import Path

from mutant import ROOT, Mutant

FILES = ("resources", "scheduler", "hosts", "system", "memory")


def _read(name: str) -> list[Mutant]:
    text = (Path(__file__).parent / f"{name}.toml").read_text(encoding="utf-8")
    groups = tomllib.loads(text)["group"]
    return [
        Mutant(rule=group["rule"], file=group["file"], **row) for group in groups for row in group["mutant"]
    ]


MUTANTS = [mutant for name in FILES for mutant in _read(name)]

NEAREST = {
    "components/rm/": ("core/test_rm_*.py", "core/test_job_weights.py"),
    "components/rif/fence.py": ("core/test_rif_*.py",),
    "components/rif/at_work.py": ("core/test_rif_*.py",),
    "components/rif/shell/": ("components/test_rif_*.py", "components/test_orphans.py"),
    "components/rif/": ("core/test_rif_*.py",),
    "core/allocator.py": ("core/test_allocator.py",),
    "components/job/scheduler/": ("core/test_scheduler_*.py",),
    "components/worker/machine.py": ("core/test_worker_*.py", "core/test_rif_host.py"),
    "components/worker/phases.py": ("core/test_worker_*.py", "core/test_rif_host.py"),
    "components/worker/verdict.py": ("core/test_worker_*.py", "core/test_rif_*.py"),
    "components/rts/shell/": ("components/test_rts_*.py",),
    "components/rts/": ("core/test_rts_*.py",),
    "iml/shell/": ("components/test_iml_*.py",),
    "iml/": ("core/test_iml_*.py", "components/test_iml_*.py"),
    "components/rif/host.py": ("core/test_rif_host.py",),
    "policies/": ("policies/test_*.py", "core/test_scheduler_*.py"),
    "components/job/journal.py": ("workflow/test_journal*.py", "components/test_job_journal.py"),
    "components/job/machine.py": ("workflow/test_job*.py", "components/test_job_*.py"),
    "workflow/": ("workflow/test_*.py",),
    "components/job/shell/takeover.py": ("components/test_takeover.py",),
    "components/job/shell/journal": ("components/test_job_journal.py", "workflow/test_journal*.py"),
    "components/job/shell/scheduler.py": ("components/test_scheduler_sending.py",),
    "nursery/scopes/collector.py": ("components/test_rif_*.py", "components/test_orphans.py"),
    "components/job/": ("components/test_job_*.py", "components/test_takeover.py"),
    "protocol/session.py": ("protocol/test_session*.py",),
    "protocol/handshake.py": ("protocol/test_handshake*.py",),
    "protocol/": ("protocol/test_*.py",),
    "nursery/": ("nursery/test_*.py",),
}
"""Beginning of a file's name -> tests; the first that fits counts."""


def nearest_tests(mutant: Mutant) -> list[str]:
    """Return the tests nearest to a mutant, below ``tests``."""
    patterns = next(tests for begin, tests in NEAREST.items() if mutant.file.startswith(begin))
    root = ROOT / "tests"
    return [str(path.relative_to(root)) for pattern in patterns for path in sorted(root.glob(pattern))]


SAMPLE = (
    "an ancestor stays taken when what is below it is freed",
    "the first of a queue is taken though an ancestor is held",
    "credit is used up only while grants are few",
    "a demand that crossed a grant is met twice",
    "every fourth release is overheard",
    "a recall is noted and not sent",
    "what a dead job holds is free at once",
    "the demand of a dead job stays",
    "memory does not come back with its grant",
    "every twentieth outcome is lost",
    "a failed task is tried again under the number of the attempt before",
    "a grant is forgotten and not given back",
    "an empty grant that is to leave is kept",
    "the use of a grant is not noted",
    "a revocation is confirmed before its work has ended",
    "the work of a job that is over goes on",
    "what shares fate counts as failed",
    "only the tail of what was handed over is taken back",
    "the resource manager is not told that a RIF is lost",
    "a job that has taken over keeps the orphan",
    "who goes on overlooks that a RIF has nothing more",
    "whoever listens is believed",
    "what was under way is not made ready again",
    "a result is injected twice",
)
"""Those that ``make test`` looks for, where they were found before."""
