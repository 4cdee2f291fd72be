"""The description in the metadata of wheel and source distribution: README.md, with links that work anywhere.

A package index shows the description without the files of the repository, so a relative link would lead
nowhere. With ``Source`` among ``[project.urls]``, relative links become absolute. Without it, the path of the
file takes the place of the link; the file is in the source distribution.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

RELATIVE_LINK = re.compile(r"\[([^\]]+)\]\((?!\w+:|#)([^)]+)\)")


def description(readme: str, source_url: str) -> str:
    """Return the text of README.md without relative links.

    Args:
        readme: the text.
        source_url: where the files of the repository can be seen, or "".
    """
    if source_url:
        return RELATIVE_LINK.sub(rf"[\1]({source_url.rstrip('/')}/\2)", readme)
    return RELATIVE_LINK.sub(
        lambda link: link[1] if link[1] == link[2] else f"{link[1]} (`{link[2]}`)", readme
    )


def get_metadata_hook() -> type:
    """Return the hook, which Hatchling looks for by this name."""
    from hatchling.metadata.plugin.interface import MetadataHookInterface  # there only while building

    class Description(MetadataHookInterface):
        """Sets the description."""

        def update(self, metadata: dict[str, Any]) -> None:
            """Set the description."""
            source_url = metadata.get("urls", {}).get("Source", "")
            text = description((Path(self.root) / "README.md").read_text(encoding="utf-8"), source_url)
            metadata["readme"] = {"content-type": "text/markdown", "text": text}

    return Description
