"""How Sphinx makes the site from docs/: make site. What it adds to the pages is in pages.py."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))

project = html_title = "gspc-trio"
extensions = ["myst_parser", "pages", "names"]
exclude_patterns = ["site"]
root_doc = "index"

myst_heading_anchors = 4  # links to headings are written as git hosts name them
myst_links_external_new_tab = False

html_theme = "furo"
html_static_path = ["site.css"]
html_css_files = ["site.css"]
html_search_scorer = str(Path(__file__).with_name("scorer.js"))
html_copy_source = html_show_sourcelink = html_show_copyright = False
html_use_index = False  # an index of Python objects, of which Sphinx knows none: docs/api.md tells them
html_domain_indices = False
html_theme_options: dict[str, Any] = {"navigation_with_keys": True}
pygments_style, pygments_dark_style = "friendly", "monokai"
