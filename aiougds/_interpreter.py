"""Only in the main interpreter: cffi and the C module keep state of the process.

Loaded in a subinterpreter they crash it, sooner or later, on some versions of Python;
on others they answer with words that name neither this package nor a way out.
"""

from __future__ import annotations

from importlib import import_module


def _is_main() -> bool:
    for name in ("_interpreters", "_xxsubinterpreters"):
        try:
            module = import_module(name)
        except ImportError:
            continue
        current, main = module.get_current(), module.get_main()
        return bool(current == main)
    return True  # an interpreter that cannot make any others


if not _is_main():
    raise ImportError(
        "aiougds works in the main interpreter only, and this is a subinterpreter: "
        "import it in the main one, and use threads or processes instead",
        name="aiougds",
    )
