"""Files of tasks in an object store: S3, as moto serves it, with the driver s3fs."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from collections.abc import Iterator

import pytest

from tests.bridges.support import run_program
from tests.e2e.support import World

pytestmark = pytest.mark.process
MISSING = [name for name in ("s3fs", "moto", "flask") if importlib.util.find_spec(name) is None]
if MISSING:
    pytest.skip(f"needs {', '.join(MISSING)}: pip install s3fs 'moto[server]'", allow_module_level=True)

SERVER = """
import sys
from moto.server import ThreadedMotoServer
server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
server.start()
print(server.get_host_and_port()[1], flush=True)
sys.stdin.read()
server.stop()
"""

PROGRAM = """
import s3fs, trio
from gspc_trio import Data, JobFailed, JobSettings, Net, Program, StageLimits
from gspc_trio.components.embed import open_rts
from gspc_trio.components.embedded_job import open_job

def net(*uris):
    net = Net("store")
    net.transition(
        "copy", Program(["sh", "-c", "cp -r in made; cp -r in/. here; ls in > names"]),
        {"uri": net.input("uris", list(uris))}, {"names": net.output("names")},
        stage_in={"in/": ["{uri}"]}, stage_out={"names": Data("names"), "made/": "s3://bucket/made/"},
    )
    return net

async def run(*uris, rts):
    settings = JobSettings(stage=StageLimits(file_bytes_max=20_000_000))
    async with open_job(net(), rts=rts, values={"uris": list(uris)}, settings=settings) as job:
        return sorted((await job.wait()).outputs["names"])

async def main():
    store = s3fs.S3FileSystem()
    store.mkdir("bucket")
    large = bytes(range(256)) * 60_000
    for name, content in {"a b.txt": b"1", "b.txt": b"22", "deep/c": b"333", "large": large}.items():
        store.pipe(f"bucket/data/{name}", content)
    store.pipe("bucket/too-large", b"x" * 20_000_001)
    async with open_rts(cores=2) as rts:
        uris = "s3://bucket/data/*.txt", "s3://bucket/data/deep/", "s3://bucket/data/large"
        print(await run(*uris, rts=rts))
        for uri in "s3://bucket/none", "s3://nowhere/x", "s3://bucket/too-large":
            try:
                await run(uri, rts=rts)
            except JobFailed as failed:
                print(str(failed).splitlines()[-1].strip())
    store.invalidate_cache()
    print(sorted(store.find("bucket/made")), store.cat("bucket/made/large") == large)

trio.run(main)
"""


@pytest.fixture
def s3(world: World) -> Iterator[None]:
    """A store, and an environment from which drivers know where it is and who asks."""
    command = [sys.executable, "-W", "ignore", "-c", SERVER]
    with subprocess.Popen(command, stdin=-1, stdout=-1, stderr=subprocess.DEVNULL, text=True) as server:
        assert server.stdout is not None
        assert server.stdin is not None
        world.environment |= {
            "AWS_ENDPOINT_URL": f"http://127.0.0.1:{server.stdout.readline().strip()}",
            **dict.fromkeys(("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"), "testing"),
            "AWS_DEFAULT_REGION": "us-east-1",
        }
        yield
        server.stdin.close()


def test_files_come_from_an_object_store_and_go_there(world: World, s3: None) -> None:
    del s3
    printed = run_program(world, PROGRAM).splitlines()
    assert printed == [
        "[b'a b.txt\\nb.txt\\n', b'c\\n', b'large\\n']",
        "staging: s3://bucket/none: there is no such file",
        "staging: s3://nowhere/x: there is no such file",
        "staging: s3://bucket/too-large: 20000001 bytes in a file are more than it may have (20000000)",
        "['bucket/made/a b.txt', 'bucket/made/b.txt', 'bucket/made/c', 'bucket/made/large'] True",
    ]
