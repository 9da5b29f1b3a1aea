"""Sphinx configuration: ``nox -s docs``."""

from __future__ import annotations

import importlib.metadata
import sys
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from sphinx.application import Sphinx

sys.path.insert(0, str(Path(__file__).with_name("extensions")))

project = "aiougds"
author = "The aiougds maintainers"
version = release = importlib.metadata.version("aiougds")

extensions = ["myst_parser", "sphinx.ext.autodoc", "command_line"]
source_suffix = {".md": "markdown", ".rst": "restructuredtext"}
exclude_patterns = ["_build"]
html_theme = "furo"
smartquotes = False  # options begin with two hyphens
html_title = f"aiougds {version}"
autodoc_member_order = "bysource"
autodoc_typehints = "signature"
python_maximum_signature_line_length = 88
autodoc_default_options = {
    "undoc-members": True,
    # What Python's own classes have is not told again.
    "inherited-members": "BaseException, BaseExceptionGroup, dict, tuple, Generic",
    # Of the package's own use, in classes that are public.
    "exclude-members": "abandon, abandon_off_loop, begin, close_error, "
    "close_when_idle, close_window, detach, failed, handle_on, is_stuck, map_on, "
    "mappings_on, memory, ready, reopen_window, serving, tell, "
    "with_traceback, add_note, derive, split, subgroup",
}
myst_heading_anchors = 3
# A name that both interfaces have (Namespace, Registration) is told apart by its page.
suppress_warnings = ["ref.python"]
# Links to other machines are looked at by `nox -s docs -- links` only.
linkcheck_timeout = 20


def without_constructor(
    _app: Sphinx, kind: str, _name: str, of: object, _options: object, *_: object
) -> tuple[str, None] | None:
    """Show no constructor of what others make, as its docstring says."""
    made_by_others = kind == "class" and "ade by" in (of.__doc__ or "")
    return ("", None) if made_by_others else None


def setup(app: Sphinx) -> None:
    app.connect("autodoc-process-signature", without_constructor)
