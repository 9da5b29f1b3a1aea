"""A subinterpreter is refused in clear words, and harms nobody."""

from __future__ import annotations

from loops.child import check_quiet, run_script

SCRIPT = """
try:
    import _interpreters as inner
    kinds = ["isolated", "legacy"]
    create, run = inner.create, inner.exec
except ImportError:
    import _xxsubinterpreters as inner
    kinds = [True, False]
    create, run = (lambda kind: inner.create(isolated=kind)), inner.run_string

CODE = f'''
import os, sys
# Not through what rebuilds the package when it is installed for development.
sys.meta_path[:] = [f for f in sys.meta_path if "editable" not in type(f).__module__]
sys.path.insert(0, {os.path.dirname(os.path.dirname(aiougds.__file__))!r})
for _ in range(2):
    try:
        import aiougds
    except ImportError as error:
        assert error.name == "aiougds", error
        assert "main interpreter" in str(error), error
        os.write(1, b"refused ")
    else:
        os.write(1, b"imported ")
'''

def read_and_write(ns, data):
    ns.write(data, offset=0)
    memory = bytearray(BLOCK)
    assert ns.read(memory, offset=0) == BLOCK
    assert memory == data

with blocking.open("emu:?size=1MiB") as ns:
    for kind in kinds:
        read_and_write(ns, os.urandom(BLOCK))
        other = create(kind)
        failed = run(other, CODE)
        assert failed is None, failed
        read_and_write(ns, os.urandom(BLOCK))
        inner.destroy(other)
        read_and_write(ns, os.urandom(BLOCK))
os.write(1, b"well")
"""


def test_a_subinterpreter_is_refused() -> None:
    assert check_quiet(run_script(SCRIPT)) == "refused " * 4 + "well"
