"""All mutants, and the tests nearest to each file."""

from __future__ import annotations

import tomllib
from pathlib import Path

from tests.mutants.mutant import ROOT, Mutant

FILES = (
    "resources",
    "scheduler",
    "hosts",
    "system",
    "memory",
    "studies",
    "sites",
    "locations",
    "queues",
    "plans",
    "managers",
    "ranges",
    "coallocation",
    "each",
)


def _read(name: str) -> list[Mutant]:
    text = (Path(__file__).parent / f"{name}.toml").read_text(encoding="utf-8")
    groups = tomllib.loads(text)["group"]
    return [
        Mutant(rule=group["rule"], file=group["file"], **row) for group in groups for row in group["mutant"]
    ]


MUTANTS = [mutant for name in FILES for mutant in _read(name)]

NEAREST = {
    "components/rm/": ("components/rm/test_*.py", "components/rts/test_job_weights.py"),
    "components/rif/shell/": (
        "components/rif/shell/test_*.py",
        "components/rts/shell/test_rif_records.py",
        "components/worker/shell/test_worker.py",
    ),
    "components/rif/host.py": ("components/rif/test_host.py",),
    "components/rif/": ("components/rif/test_*.py",),
    "core/allocator.py": ("core/test_allocator.py",),
    "core/machine.py": ("nursery/scopes/test_drive.py", "components/job/scheduler/test_runs.py"),
    "components/monitor/": ("components/monitor/test_reaction.py",),
    "components/managers/": ("components/managers/test_[cpw]*.py",),
    "components/coallocation/agents/": ("components/coallocation/agents/test_*.py",),
    "components/coallocation/shell/": ("components/coallocation/shell/test_single.py",),
    "components/coallocation/": (
        "components/coallocation/test_running.py",
        "components/coallocation/test_flow.py",
        "components/coallocation/test_host.py",
        "components/coallocation/test_journal.py",
    ),
    "components/job/locations/": ("components/job/locations/test_*.py",),
    "components/job/scheduler/choices.py": ("components/job/scheduler/test_variants.py",),
    "components/job/scheduler/changes.py": ("components/job/scheduler/test_variants.py",),
    "components/job/scheduler/plans.py": ("components/job/scheduler/test_plans.py",),
    "components/job/scheduler/wishes.py": ("components/job/scheduler/test_plans.py",),
    "components/job/scheduler/ending.py": (
        "components/job/scheduler/test_restricted.py",
        "components/job/scheduler/test_ending*.py",
    ),
    "components/job/scheduler/evacuation.py": (
        "components/job/scheduler/test_evacuation.py",
        "components/job/scheduler/test_restricted.py",
    ),
    "components/job/scheduler/status.py": ("components/job/test_ranged.py",),
    "components/job/scheduler/": ("components/job/scheduler/test_*.py",),
    "components/worker/machine.py": ("components/worker/test_*.py", "components/rif/test_host.py"),
    "components/worker/phases.py": ("components/worker/test_*.py", "components/rif/test_host.py"),
    "components/worker/verdict.py": ("components/worker/test_*.py", "components/rif/test_*.py"),
    "components/launcher/": ("components/launcher/test_machine.py", "components/launcher/test_model.py"),
    "components/provision/site.py": ("components/provision/test_site.py",),
    "components/provision/site": ("components/provision/test_sites*.py",),
    "components/rts/shell/": ("components/rts/shell/test_*.py",),
    "components/rts/": ("components/rts/test_*.py",),
    "components/job/ranges.py": ("components/job/test_ranges.py", "components/job/test_ranged.py"),
    "components/job/ranged.py": ("components/job/test_ranged.py",),
    "workflow/bulk/": ("components/job/test_ranged.py", "workflow/test_stocked_place.py"),
    "workflow/marking.py": ("workflow/test_stocked_place.py", "workflow/test_*.py"),
    "compute/ranges.py": ("compute/test_item_rows.py",),
    "compute/results/stream.py": ("compute/test_stream.py",),
    "compute/data.py": ("compute/test_stream.py",),
    "iml/shell/": ("iml/shell/test_*.py",),
    "iml/": ("iml/test_*.py", "iml/shell/test_*.py"),
    "policies/variants.py": ("policies/test_variants.py", "components/job/scheduler/test_variants.py"),
    "policies/plans/": ("policies/plans/test_*.py", "components/job/scheduler/test_plans.py"),
    "policies/": ("policies/test_*.py", "components/job/scheduler/test_*.py"),
    "components/job/journal.py": ("components/job/test_journal*.py", "components/job/shell/test_journal.py"),
    "components/job/reuse.py": ("components/job/test_reuse.py",),
    "components/job/task_key.py": ("components/job/test_reuse.py",),
    "components/job/machine.py": ("components/job/test_*.py", "components/job/shell/test_*.py"),
    "workflow/": ("workflow/test_*.py", "components/job/test_*.py"),
    "components/job/shell/journal": (
        "components/job/shell/test_journal.py",
        "components/job/shell/test_takeover.py",
        "components/job/test_journal*.py",
    ),
    "components/job/shell/scheduler.py": ("components/job/shell/test_scheduler_sending.py",),
    "executor/direct.py": ("executor/bulk/test_simulated_calls.py", "simulation/test_direct_calls.py"),
    "compute/direct.py": ("executor/bulk/test_simulated_calls.py", "simulation/test_direct_calls.py"),
    "executor/": ("executor/bulk/test_simulated_calls.py", "simulation/test_separate_calls.py"),
    "nursery/scopes/collector.py": ("components/rif/shell/test_*.py",),
    "components/job/": ("components/job/test_*.py", "components/job/shell/test_*.py"),
    "protocol/session.py": ("protocol/test_session*.py",),
    "protocol/handshake.py": ("protocol/test_session*.py",),
    "protocol/": ("protocol/test_*.py",),
    "nursery/": ("nursery/*/test_*.py",),
    "cli/each/": ("cli/test_each_dispatch.py",),
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
"""Those that ``make simulate`` looks for, where they were found before."""
