"""What a package index shows has no link that leads nowhere."""

from __future__ import annotations

import importlib.util
import re
from types import ModuleType

from tests.docs.test_snippets import ROOT


def hook() -> ModuleType:
    """Return hatch_build.py as a module."""
    specification = importlib.util.spec_from_file_location("gspc_hatch_build", ROOT / "hatch_build.py")
    assert specification is not None
    assert specification.loader is not None
    module = importlib.util.module_from_spec(specification)
    specification.loader.exec_module(module)
    return module


def targets(text: str) -> list[str]:
    return re.findall(r"\]\(([^)]+)\)", text)


def test_links_to_files_become_their_paths_where_no_address_is_known() -> None:
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    assert any("://" not in target for target in targets(readme))
    shown = hook().description(readme, "")
    assert [target for target in targets(shown) if "://" not in target] == []
    assert "`docs/install.md`" in shown


def test_links_to_files_become_absolute_where_the_address_is_known() -> None:
    shown = hook().description(
        "[a](docs/a.md#b), [trio](https://trio.example), [c](#c)", "https://example.org/x/"
    )
    assert targets(shown) == ["https://example.org/x/docs/a.md#b", "https://trio.example", "#c"]
