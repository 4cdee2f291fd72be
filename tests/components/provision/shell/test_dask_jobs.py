"""The program that runs jobs of a Dask cluster: what needs no cluster."""

from __future__ import annotations

import sys
from importlib import import_module
from types import ModuleType, SimpleNamespace

import pytest


def test_a_node_that_cannot_be_run_does_not_fail_its_task_of_which_dask_prints_the_ticket(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    library = ModuleType("distributed")
    vars(library)["get_worker"] = lambda: SimpleNamespace(get_current_task=lambda: "key")
    monkeypatch.setitem(sys.modules, "distributed", library)
    monkeypatch.setattr(sys, "executable", "/nowhere/python")
    name = "gspc_trio.components.provision.shell.dask_jobs"
    monkeypatch.delitem(sys.modules, name, raising=False)
    assert import_module(name).run_node(b"secret", 0) == 1
    said = capfd.readouterr().err
    assert "cannot run a RIF here" in said
    assert "secret" not in said
    del sys.modules[name]  # it was imported with the stub
