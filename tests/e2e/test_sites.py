"""Sites as a user meets them, with batch jobs that are plain processes of this host."""

from __future__ import annotations

import json

import pytest

from tests.e2e.support import SLEEPERS, World, wait_until

FILES = """
from gspc_trio import Net, Program, Workflow

def workflow(n: int = 3):
    net = Net("files")
    program = Program(["sh", "-c", "stat -c %h in.txt > out.txt; pwd >> out.txt"])
    stage_out = {"out.txt": "out/{item}.txt"}
    net.transition(
        "count", program, {"item": net.input("items")}, net.output("done"),
        stage_in={"in.txt": "in.txt"}, stage_out=stage_out,
    )
    return Workflow(net, {"items": range(n)})
"""


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


@pytest.mark.parametrize(("staging", "links_min"), [("swift", 2), ("wrapper", 1)])
def test_a_site_says_how_files_get_to_its_tasks(world: World, staging: str, links_min: int):
    """In a site directory the input has a name of its own beside that in the directory of each task."""
    sites, shared = world.folder / "sites.toml", world.folder / "shared"
    shared.mkdir()
    site = f'[here]\nprovider = "local"\ncores_per_node = 1\nslots = 1\nshared = "{shared}"\n'
    sites.write_text(f'{site}staging = "{staging}"\n')
    (world.folder / "in.txt").write_text("input")
    done = world.run("jobserver", "run", world.workflow(FILES), "--sites", str(sites))
    assert done.returncode == 0, done.stderr
    for number in range(3):
        links, directory = (world.folder / "out" / f"{number}.txt").read_text().split()
        assert int(links) >= links_min
        assert directory.startswith(f"{shared}/site-") == (staging == "swift")
    wait_until(lambda: not list(shared.iterdir()), "the job that removes the site directory has run")
