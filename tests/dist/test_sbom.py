"""The bill of materials that goes into a wheel, as the build makes it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tomllib
from importlib.metadata import metadata
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.once

ROOT = Path(__file__).parents[2]
PYPROJECT = ROOT / "pyproject.toml"


def made(folder: Path, epoch: str | None, version: str = "1.2.3") -> bytes:
    """Make it in a process of its own, as Meson does."""
    env = {k: v for k, v in os.environ.items() if k != "SOURCE_DATE_EPOCH"}
    if epoch is not None:
        env["SOURCE_DATE_EPOCH"] = epoch
    out = folder / "bill.json"
    command = [sys.executable, str(ROOT / "native" / "_sbom.py"), str(PYPROJECT)]
    subprocess.run([*command, version, str(out)], env=env, check=True)
    return out.read_bytes()


def test_the_same_sources_give_the_same_bill(tmp_path: Path) -> None:
    first = made(tmp_path, "1796000000")
    assert made(tmp_path, "1796000000") == first
    later = json.loads(made(tmp_path, "1796000001"))
    bill = json.loads(first)
    assert bill["metadata"]["timestamp"] == "2026-11-30T00:53:20Z"
    assert later["metadata"]["timestamp"] == "2026-11-30T00:53:21Z"
    assert later["serialNumber"] != bill["serialNumber"]
    # A time that nobody gave would differ from build to build.
    assert "timestamp" not in json.loads(made(tmp_path, None))["metadata"]


def licences(components: list[dict[str, Any]]) -> dict[str, str]:
    return {
        f"{one['name']} {one['version']}": one["licenses"][0]["expression"]
        for one in components
    }


def test_what_others_wrote_is_named_with_its_licence(tmp_path: Path) -> None:
    bill = json.loads(made(tmp_path, None))
    whole = bill["metadata"]["component"]
    cffi, shtab = metadata("cffi"), metadata("shtab")
    assert licences([whole]) == {"aiougds 1.2.3": "MIT AND MIT-0 AND MPL-2.0"}
    assert licences(whole["components"]) == {
        f"cffi {cffi['Version']}": cffi["License-Expression"],
        f"shtab {shtab['Version']}": shtab["License"],
    }
    for one in (whole, *whole["components"]):
        assert one["purl"] == f"pkg:pypi/{one['name']}@{one['version']}"


def test_what_it_needs_is_required_and_not_included(tmp_path: Path) -> None:
    bill = json.loads(made(tmp_path, None))
    needed = {one["name"]: one for one in bill["components"]}
    listed = tomllib.loads(PYPROJECT.read_text())["project"]["dependencies"]
    assert [
        name + one["versionRange"].removeprefix("vers:pypi/")
        for name, one in needed.items()
    ] == listed
    (edge,) = bill["dependencies"]
    assert edge["dependsOn"] == [one["bom-ref"] for one in needed.values()]
    assert all(one["isExternal"] for one in needed.values())
