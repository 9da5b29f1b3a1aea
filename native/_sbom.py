# SPDX-License-Identifier: MIT
"""Write what a wheel consists of and needs: ``_sbom.py PYPROJECT VERSION OUT``.

A bill of materials as PEP 770 has it, in CycloneDX 1.7. It is made when the wheel is
built, for part of what is in it is cffi's, of the version that is there then. The
same sources and tools give the same file; its time is SOURCE_DATE_EPOCH, or none.
"""

from __future__ import annotations

import json
import os
import re
import sys
import tomllib
import uuid
from datetime import UTC, datetime
from importlib.metadata import metadata
from pathlib import Path

Entry = dict[str, object]

GENERATOR = re.compile(r"shtab==(?P<version>[\w.]+)")
NAME = re.compile(r"[A-Za-z0-9._-]+")
MODULE = "aiougds/_native.abi3.so"
COMPLETIONS = "share/{bash-completion,zsh,fish}"


def component(name: str, version: str, licence: str) -> Entry:
    purl = f"pkg:pypi/{name}@{version}"
    return {
        "type": "library",
        "bom-ref": purl,
        "name": name,
        "version": version,
        "licenses": [{"expression": licence}],
        "purl": purl,
    }


def included(project: Entry) -> list[Entry]:
    """Return what others wrote and the wheel has a part of."""
    cffi = metadata("cffi")
    licence = cffi.get("License-Expression") or cffi.get("License") or "NOASSERTION"
    headers = f"its headers and what it generates, compiled into {MODULE}"
    groups = project["dependency-groups"]
    assert isinstance(groups, dict)
    (shtab,) = (found for one in groups["generated"] if (found := GENERATOR.match(one)))
    functions = f"its shell functions, in the completions below {COMPLETIONS}"
    return [
        component("cffi", cffi["Version"], licence) | {"description": headers},
        component("shtab", shtab["version"], "MPL-2.0") | {"description": functions},
    ]


def required(project: Entry) -> list[Entry]:
    """Return what has to be there when it runs, and is not in the wheel."""
    about = project["project"]
    assert isinstance(about, dict)
    found: list[Entry] = []
    for one in about["dependencies"]:
        name = NAME.match(one)
        assert name is not None
        found.append(
            {
                "type": "library",
                "bom-ref": f"required:{name[0]}",
                "name": name[0],
                "isExternal": True,
                "versionRange": f"vers:pypi/{one[name.end() :].replace(',', '|')}",
                "purl": f"pkg:pypi/{name[0]}",
            }
        )
    return found


def bill(project: Entry, version: str, epoch: str | None) -> Entry:
    about = project["project"]
    assert isinstance(about, dict)
    whole = component(about["name"], version, about["license"])
    needs = required(project)
    top: Entry = {"component": whole | {"components": included(project)}}
    if epoch:
        when = datetime.fromtimestamp(int(epoch), UTC)
        top = {"timestamp": when.isoformat().replace("+00:00", "Z"), **top}
    wants = [one["bom-ref"] for one in needs]
    found: Entry = {
        "$schema": "http://cyclonedx.org/schema/bom-1.7.schema.json",
        "bomFormat": "CycloneDX",
        "specVersion": "1.7",
        "version": 1,
        "metadata": top,
        "components": needs,
        "dependencies": [{"ref": whole["bom-ref"], "dependsOn": wants}],
        "compositions": [{"aggregate": "complete", "assemblies": [whole["bom-ref"]]}],
    }
    serial = uuid.uuid5(uuid.NAMESPACE_URL, json.dumps(found, sort_keys=True))
    return {**found, "serialNumber": f"urn:uuid:{serial}"}


if __name__ == "__main__":
    pyproject, version, out = sys.argv[1:]
    project = tomllib.loads(Path(pyproject).read_text())
    made = bill(project, version, os.environ.get("SOURCE_DATE_EPOCH"))
    Path(out).write_text(json.dumps(made, indent=1) + "\n")
