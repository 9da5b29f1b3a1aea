"""Sphinx configuration: ``nox -s docs``."""

from __future__ import annotations

import importlib.metadata

project = "aiougds"
author = "The aiougds maintainers"
version = release = importlib.metadata.version("aiougds")

extensions = ["myst_parser", "sphinx.ext.autodoc"]
source_suffix = {".md": "markdown"}
exclude_patterns = ["_build"]
html_theme = "furo"
html_title = f"aiougds {version}"
autodoc_member_order = "bysource"
autodoc_typehints = "description"
myst_heading_anchors = 3
# A name that both interfaces have (Namespace, Registration) is told apart by its page.
suppress_warnings = ["ref.python"]
