"""Where tasks of tests keep their files."""

from __future__ import annotations

import tempfile
from pathlib import Path

import pytest


@pytest.fixture
def folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Have directories of tasks made here."""
    path = tmp_path / "folders"
    path.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(path))
    return path
