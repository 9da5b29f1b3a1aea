"""Tests with the real LMCache and vLLM, in environments of their own (`nox -s ...`).

Where a program is not installed its tests are not collected: they are no part of the
default run, and nothing of them is skipped in it.
"""

from __future__ import annotations

from importlib.util import find_spec

_NEEDS = {
    "test_lmcache*.py": ("lmcache",),
    "test_vllm_end_to_end.py": ("lmcache", "vllm"),
    "test_vllm_tier.py": ("vllm",),
}

collect_ignore_glob = [
    pattern
    for pattern, names in _NEEDS.items()
    if any(find_spec(name) is None for name in names)
]
