"""What the tests of the command line share."""

from __future__ import annotations

from pathlib import Path

import pytest
from helpers.command_line import CommandLine


@pytest.fixture
def aiougds(tmp_path: Path) -> CommandLine:
    """Run commands in a folder of the test's own."""
    return CommandLine(tmp_path)
