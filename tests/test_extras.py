"""Packages that only extras install: what needs one that is missing names the extra."""

from __future__ import annotations

import sys
import tempfile
import tomllib
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
import trio

from gspc_trio.cli.monitor.commands import _export_parquet
from gspc_trio.cli.pictures import _svg
from gspc_trio.cli.rts import _metrics_served
from gspc_trio.cli.top import _serve
from gspc_trio.components.job.shell.settings import JobSettings, is_traced
from gspc_trio.components.monitor.shell.store import Answer
from gspc_trio.components.provision.shell.dask_jobs import DaskCluster
from gspc_trio.components.provision.shell.ray_jobs import RayCluster
from gspc_trio.compute.uri_transfers import _Order
from gspc_trio.nursery.connections.certificates import Authority
from gspc_trio.workflow.formats.drawing import drawing_of
from gspc_trio.workflow.net import Net

PROJECT = tomllib.loads(Path(__file__).parents[1].joinpath("pyproject.toml").read_text())["project"]
OF_THE_PROJECT = {"all", "test", "style", "site", "bench", "notebook"}
"""Extras that nothing looks for: the sum of the others, what works on the project, a kernel of Jupyter."""

TOO_LARGE_FOR_ALL = {"parquet", "ray"}


async def serve_metrics() -> None:
    async with _metrics_served(Path("rts.json"), "127.0.0.1", 9100):
        pass


def fetch() -> None:
    channel: Any = None
    with tempfile.TemporaryFile() as target:
        _Order(channel, "s3://bucket/key", "h", (), ".", 1)._fetch(target.fileno())


NEEDS: dict[str, tuple[str, str, str, Callable[[], Any]]] = {
    "joblib": ("joblib", "joblib", "gspc_trio.joblib", lambda: import_module("gspc_trio.joblib")),
    "dask": ("dask", "dask", "gspc_trio.dask", lambda: import_module("gspc_trio.dask")),
    "dask, a site": ("distributed", "distributed", "dask://h:8786", lambda: DaskCluster("dask://h:8786")),
    "ray": ("ray", "ray", "ray://h:10001", lambda: RayCluster("ray://h:10001")),
    "tls": (
        "cryptography",
        "cryptography",
        "an encrypted connection (--tls, sites)",
        lambda: Authority(Path("certificates")),
    ),
    "serve": ("textual_serve", "textual-serve", "--serve", lambda: _serve([], 0, light=False, control=False)),
    "draw": ("networkx", "networkx", ".svg", lambda: _svg(drawing_of(Net("net")))),
    "metrics": ("prometheus_client", "prometheus-client", "--metrics", lambda: trio.run(serve_metrics)),
    "parquet": (
        "pyarrow",
        "pyarrow",
        "--parquet",
        lambda: _export_parquet(Path("io.parquet"), Answer(("host",), [("a",)])),
    ),
    "uri": ("fsspec", "fsspec", "a URI", fetch),
    "otel": (
        "opentelemetry",
        "opentelemetry-exporter-otlp-proto-http",
        "sending spans",
        lambda: is_traced(JobSettings(otel=True), {}),
    ),
}
"""Extra, and a word where it has several uses -> missing module, its package, what needs it, a use of it."""


class Missing:
    """Finds no module of a package, whatever is installed."""

    def __init__(self, package: str) -> None:
        self.package = package

    def find_spec(self, name: str, *_: object) -> None:
        if name.partition(".")[0] == self.package:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)


@pytest.mark.parametrize("use", NEEDS)
def test_what_needs_a_missing_package_names_the_extra(use: str, monkeypatch: pytest.MonkeyPatch) -> None:
    module, package, what, call = NEEDS[use]
    monkeypatch.setenv("PATH", "")  # no Graphviz, which would draw as well
    ours = ("gspc_trio.integrations.", "gspc_trio.joblib", "gspc_trio.dask", "gspc_trio.tui.serve")
    loaded = [name for name in sys.modules if name.startswith(ours) or name.split(".")[0] == module]
    for name in loaded:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setattr(sys, "meta_path", [Missing(module), *sys.meta_path])
    extra = use.split(",")[0]
    with pytest.raises(Exception, match=r"pip install") as caught:  # each in the words of its layer
        call()
    text = f'{what} needs the package {package}: pip install "gspc-trio[{extra}]"'
    assert str(caught.value).startswith(text)


def test_each_extra_is_needed_and_all_has_them() -> None:
    extras = PROJECT["optional-dependencies"]
    offered = set(extras) - OF_THE_PROJECT
    assert offered == {use.split(",")[0] for use in NEEDS}
    (everything,) = extras["all"]
    named = set(everything.removeprefix("gspc-trio[").removesuffix("]").split(","))
    assert named - OF_THE_PROJECT == offered - TOO_LARGE_FOR_ALL
    page = Path(__file__).parents[1].joinpath("docs/install.md").read_text()
    assert [extra for extra in extras if f"| `{extra}` |" not in page] == []
