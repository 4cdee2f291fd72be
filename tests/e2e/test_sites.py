"""Sites as a user meets them, with batch jobs that are plain processes of this host."""

from __future__ import annotations

import json

from tests.e2e.support import SLEEPERS, World


def test_a_job_finds_its_workers_at_a_site_and_leaves_nothing(world: World):
    sites = world.folder / "sites.toml"
    shared = world.folder / "shared"
    shared.mkdir()
    sites.write_text(f'[here]\nprovider = "local"\ncores_per_node = 1\nslots = 1\nshared = "{shared}"\n')
    flow = world.workflow(SLEEPERS)
    done = world.run("jobserver", "run", flow, "--sites", str(sites), "--set=n=20", "--json")
    assert done.returncode == 0, done.stderr
    assert len(json.loads(done.stdout)["outputs"]["results"]) == 20
    assert list(shared.iterdir()) == []

    sites.write_text('[here]\nprovider = "local"\ncores_per_nod = 1\n')
    done = world.run("jobserver", "run", flow, "--sites", str(sites))
    assert done.returncode == 2
    words = (
        f"--sites {sites}: site here: there is no setting 'cores_per_nod' (did you mean 'cores_per_node'?)"
    )
    assert done.stderr == f"gspc-jobserver: {words}\n"
