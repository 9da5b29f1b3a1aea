"""Tests with the real LMCache and vLLM, in environments of their own (`nox -s ...`).

Where a program is not installed its tests are not collected: they are no part of the
default run, and nothing of them is skipped in it.
"""

from __future__ import annotations

from importlib.util import find_spec

_NEEDS = {"lmcache": "test_lmcache*.py", "vllm": "test_vllm*.py"}

collect_ignore_glob = [
    pattern for name, pattern in _NEEDS.items() if find_spec(name) is None
]
