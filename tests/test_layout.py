"""The shape of the tree: sizes, directions of imports and includes, what lies where.

A failure says the rule, why it is one, and how to mend what was found.
"""

from __future__ import annotations

import ast
import re
import subprocess
import textwrap
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest

pytestmark = pytest.mark.once

ROOT = Path(__file__).parent.parent
PACKAGE = ROOT / "aiougds"
NATIVE = ROOT / "native"
MAX_LINES = 500

TOP_LEVEL = {
    ".ci", ".clang-format", ".git", ".github", ".gitignore", ".pre-commit-config.yaml",
    "CHANGELOG.md", "CONTRIBUTING.md",
    "LICENSE", "README.md", "SECURITY.md", "aiougds", "docs", "examples", "kmod",
    "meson.build", "meson.options", "native", "noxfile.py", "pyproject.toml", "tests",
}  # fmt: skip

# Python: a module may import its own layer and those before it. What is not named here
# is a public object, and above them all.
PYTHON_LAYERS = (
    {"_errors", "_explain", "_interpreter", "_native", "_status"},
    {"_address", "_lies", "_options"},
    {"_ffi"},
    {
        "_buffer",
        "_dlpack",
        "_gpu",
        "_home",
        "_request",
        "_coalescing",
        "_stats",
        "_tallies",
        "_timeline",
    },
    {"_completion", "_completion_thread", "_completion_trio", "_polling"},
    {"_channel", "_scheduler"},
)
LOOP_METHODS = {
    "add_reader", "add_writer", "call_soon", "call_soon_threadsafe", "create_future",
    "remove_reader", "remove_writer", "run_in_executor", "shutdown_asyncgens",
}  # fmt: skip
GPU_PACKAGES = {"cuda", "cupy", "hip", "numba", "rocm", "torch"}

# C: a file may include from its own folder and from those after it.
C_ORDER = (
    "api",
    "stream",
    "transport",
    "pcie",
    "nvme",
    "mem",
    "gpu",
    "spec",
    "support",
)
C_FLOOR = {"spec", "support"}
UAPI = "kmod/uapi/ugds_ioctl.h"
OWN_TRANSPORTS = "include/ugds_transport.h"


def project_files(*suffixes: str) -> list[Path]:
    """Files that git knows or would add."""
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard", "-z"],
        cwd=ROOT,
        check=True,
        capture_output=True,
        text=True,
    ).stdout.split("\0")
    paths = (ROOT / name for name in listed if name)
    return sorted(
        path
        for path in paths
        if path.is_file() and (not suffixes or path.suffix in suffixes)
    )


def relative(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def problems(found: Iterable[str], *, rule: str, why: str, mend: str) -> None:
    """Fail with what was found, and what its author may not know yet."""
    lines = sorted(set(found))
    words = (
        textwrap.fill(f"{name}: {text}", 88, subsequent_indent=" " * 6)
        for name, text in (("Rule", rule), ("Why", why), ("Mend", mend))
    )
    if lines:
        pytest.fail("\n".join(["", *lines, "", *words]), pytrace=False)


def module_name(path: Path) -> str:
    """``aiougds/_gpu/cuda.py`` is ``_gpu.cuda``; a package is named as its folder."""
    parts = path.relative_to(PACKAGE).with_suffix("").parts
    return ".".join(part for part in parts if part != "__init__")


def is_type_checking(node: ast.stmt) -> bool:
    return isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test)


def run_time_nodes(tree: ast.AST) -> Iterator[ast.AST]:
    """Walk all but what only type checkers read."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.stmt) and is_type_checking(node):
            continue
        yield node
        yield from run_time_nodes(node)


def imports(path: Path) -> Iterator[str]:
    """Absolute names of the modules that a file imports at run time."""
    package = ["aiougds", *path.relative_to(PACKAGE).parent.parts]
    for node in run_time_nodes(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) + 1 - node.level] if node.level else []
            prefix = ".".join([*base, *([node.module] if node.module else [])])
            for alias in node.names:
                submodule = f"{prefix}.{alias.name}"
                inside = submodule.removeprefix("aiougds.").replace(".", "/")
                exists = (PACKAGE / f"{inside}.py").exists() or inside == "_native"
                yield submodule if exists else prefix


def own_imports(path: Path) -> Iterator[str]:
    for name in imports(path):
        if name.startswith("aiougds."):
            yield name.removeprefix("aiougds.")


def layer(module: str) -> int:
    for rank, names in enumerate(PYTHON_LAYERS):
        if module.split(".")[0] in names:
            return rank
    return len(PYTHON_LAYERS)


PYTHON = project_files(".py")
PYTHON_PACKAGE = [path for path in PYTHON if path.is_relative_to(PACKAGE)]
C_FILES = project_files(".c", ".h")
C_NATIVE = [path for path in C_FILES if path.is_relative_to(NATIVE)]


def test_there_is_something_to_look_at() -> None:
    assert len(PYTHON_PACKAGE) > 10
    assert len(C_NATIVE) > 20


def test_top_level_holds_only_what_is_named() -> None:
    present = {relative(path).split("/")[0] for path in project_files()}
    problems(
        present - TOP_LEVEL,
        rule="the top of the tree holds what TOP_LEVEL of this test names",
        why="what lies there is the first thing that everybody sees",
        mend="move it into a folder that is there (tests/, docs/, native/, ...); if it "
        "has to lie there, as some tools want it, add it to TOP_LEVEL",
    )


def test_no_file_is_over_500_lines() -> None:
    suffixes = (".py", ".pyi", ".c", ".h", ".md", ".build", ".toml")
    problems(
        (
            f"{relative(path)}: {lines} lines"
            for path in project_files(*suffixes)
            if (lines := path.read_text(encoding="utf-8").count("\n")) > MAX_LINES
        ),
        rule=f"no file has more than {MAX_LINES} lines; about 150 is usual",
        why="a file is one idea; one that is longer has two, and is read by nobody",
        mend="look for the part that is spoken of by a name of its own, and give it a "
        "file of that name; do not cut at a line number",
    )


def test_c_files_begin_with_the_licence() -> None:
    ours = {"/* SPDX-License-Identifier: MIT */"}
    kernel = {  # "//" in its .c files is the kernel's own rule
        "/* SPDX-License-Identifier: GPL-2.0 OR MIT */",
        "// SPDX-License-Identifier: GPL-2.0 OR MIT",
    }
    interface = {
        "/* SPDX-License-Identifier: (GPL-2.0 WITH Linux-syscall-note) OR MIT */"
    }

    def allowed(path: Path) -> set[str]:
        name = relative(path)
        if name.startswith("kmod/uapi/") or name.endswith("_ioctl.h"):
            return interface
        return kernel if name.startswith(("kmod/", "tests/vm/kmod/")) else ours

    problems(
        (
            f"{relative(path)} has to begin with {min(allowed(path))}"
            for path in C_FILES
            if path.read_text(encoding="utf-8").split("\n", 1)[0] not in allowed(path)
        ),
        rule="the first line of a C file is its licence, as an SPDX identifier",
        why="files are copied one by one, and the kernel's parts are under another one",
        mend="put that line there, in exactly these words",
    )


def test_text_is_finished_and_names_no_machine() -> None:
    # Spelled in pieces: this file is read too.
    unfinished = re.compile(r"\b(TO" + r"DO|FIX" + r"ME|XX" + r"X)\b")
    machine = re.compile(r"(?<![\w.~-])/(?:work|tmp|root|home)/[\w.-]+")
    tests_only = re.compile(r"/tmp/[\w.-]+")
    dash = "\N{EM DASH}"
    suffixes = (".py", ".pyi", ".c", ".h", ".md", ".toml", ".build", ".options", ".sh")

    def found() -> Iterator[str]:
        for path in project_files(*suffixes):
            allowed = tests_only if relative(path).startswith("tests/") else None
            lines = path.read_text(encoding="utf-8").splitlines()
            for number, line in enumerate(lines, 1):
                where = f"{relative(path)}:{number}"
                if unfinished.search(line):
                    yield f"{where}: unfinished: {line.strip()}"
                hit = machine.search(line)
                if hit and not (allowed and allowed.fullmatch(hit.group())):
                    yield f"{where}: a path of one machine: {hit.group()}"
                if dash in line:
                    yield f"{where}: an em dash"

    problems(
        found(),
        rule="no unfinished work, no path of one machine, no em dash",
        why="what is left to do is an issue, which somebody looks at; a path of yours "
        "is nobody else's; sentences with dashes are two sentences",
        mend="finish it, or file an issue; make the path relative or a parameter (in "
        "tests: tmp_path); write a full stop or a colon",
    )


def test_only_ffi_imports_native() -> None:
    problems(
        (
            f"{relative(path)} imports _native"
            for path in PYTHON_PACKAGE
            if module_name(path) != "_ffi" and "_native" in own_imports(path)
        ),
        rule="only aiougds/_ffi.py imports the compiled module",
        why="it checks that module and package are of one build, and is what another "
        "binding would replace",
        mend="from aiougds._ffi import ffi, lib",
    )


def test_python_imports_point_one_way() -> None:
    problems(
        (
            f"{relative(path)} (layer {layer(module_name(path))}) imports {name}"
            f" (layer {layer(name)})"
            for path in PYTHON_PACKAGE
            for name in own_imports(path)
            if layer(name) > layer(module_name(path))
        ),
        rule="a module imports its own layer and those below (PYTHON_LAYERS of this "
        "test): public objects, channels, completion, requests, _ffi, options, errors",
        why="what is below can be read, tested and changed without what is above",
        mend="hand in what the lower module needs, as an argument or a callback; or "
        "move the name that both use down. Types alone may come from above, under "
        "TYPE_CHECKING",
    )


def test_python_modules_import_in_no_circle() -> None:
    graph = {
        module_name(path): set(own_imports(path))
        for path in PYTHON_PACKAGE
        if module_name(path)  # the package itself imports its parts
    }
    done: set[str] = set()

    def visit(module: str, above: tuple[str, ...]) -> Iterator[str]:
        if module in above:
            yield " -> ".join((*above[above.index(module) :], module))
        elif module not in done:
            for name in graph.get(module, ()):
                yield from visit(name, (*above, module))
            done.add(module)

    problems(
        (line for module in graph for line in visit(module, ())),
        rule="modules do not import each other in a circle",
        why="which of them is imported first would decide what is there yet",
        mend="move what both need into a third; or import in the function that needs "
        "it, if one of the two is optional",
    )


def test_only_completion_touches_the_loop() -> None:
    # _loop_thread runs a loop of its own, for hosts that have none.
    allowed = ("_completion", "_loop_thread", "_polling", "cli")
    problems(
        (
            f"{relative(path)}:{node.lineno}: .{node.attr}"
            for path in PYTHON_PACKAGE
            if not module_name(path).startswith(allowed)
            for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
            if isinstance(node, ast.Attribute) and node.attr in LOOP_METHODS
        ),
        rule="only _completion and _polling call methods of an event loop",
        why="asyncio, uvloop, trio and plain threads differ there and nowhere else",
        mend="use the Home of the loop, current_home(): its off_loop(), post(), "
        "signal() and park() are there on all of them",
    )


def imports_by_name(path: Path) -> Iterator[str]:
    """What a file hands to ``import_module`` as a literal."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if (
            isinstance(node, ast.Call)
            and ast.unparse(node.func).endswith("import_module")
            and isinstance(node.args[0], ast.Constant)
        ):
            yield str(node.args[0].value)


def test_gpu_packages_are_imported_in_gpu_only() -> None:
    problems(
        (
            f"{relative(path)} imports {name}"
            for path in PYTHON_PACKAGE
            if module_name(path).split(".")[0] != "_gpu"
            for name in (*imports(path), *imports_by_name(path))
            if name.split(".")[0] in GPU_PACKAGES
        ),
        rule="packages for GPUs are used in aiougds/_gpu/ only",
        why="a second vendor is then a second file, and no GPU is needed to import us",
        mend="put the call behind the runtime's table (aiougds/_gpu/runtime.py), and "
        "ask that",
    )


def test_gpu_packages_are_not_imported_with_the_package() -> None:
    """In ``_gpu`` too they are found by name, when somebody asks for a GPU."""
    problems(
        (
            f"{relative(path)} imports {name}"
            for path in PYTHON_PACKAGE
            for name in imports(path)
            if name.split(".")[0] in GPU_PACKAGES
        ),
        rule="no package for GPUs is imported by a statement",
        why="they are optional, large, and some start a driver when they are imported",
        mend='importlib.import_module("...") in the function that needs it',
    )
    by_name = {
        name.split(".")[0] for path in PYTHON_PACKAGE for name in imports_by_name(path)
    }
    assert {"cuda", "hip"} <= by_name


def test_private_files_have_a_public_front() -> None:
    """The package's ``__init__`` only re-exports."""
    tree = ast.parse((PACKAGE / "__init__.py").read_text(encoding="utf-8"))
    problems(
        (
            f"aiougds/__init__.py defines {node.name}"
            for node in tree.body
            if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef)
            and not node.name.startswith("_")
        ),
        rule="aiougds/__init__.py re-exports, and defines nothing",
        why="it is the list of what is public, to be read in a minute",
        mend="define it in a private module, import it here, and add it to __all__",
    )


def c_folder(path: Path) -> str:
    inside = path.relative_to(NATIVE)
    return inside.parts[0] if len(inside.parts) > 1 else "api"


def c_includes(path: Path) -> Iterator[str]:
    pattern = r'^\s*#\s*include\s+"([^"]+)"'
    yield from re.findall(pattern, path.read_text(encoding="utf-8"), re.MULTILINE)


def c_may_include(folder: str, included: str) -> bool:
    if included == folder:
        return True
    if folder == "emu":
        return included in C_FLOOR
    if folder in C_FLOOR:
        return included == "support" and folder == "spec"
    if included == "emu":
        return folder in {"transport", "api"}
    return C_ORDER.index(included) > C_ORDER.index(folder)


def test_c_includes_point_one_way() -> None:
    def found() -> Iterator[str]:
        for path in C_NATIVE:
            for name in c_includes(path):
                if name == "ugds.h" or name.startswith("include/"):
                    # What Python sees: the interface above the engine. And the one
                    # that transports of others are written against.
                    above = {"api", "include"}
                    if name == OWN_TRANSPORTS:
                        above.add("transport")
                    if c_folder(path) not in above:
                        yield f"{relative(path)} includes {name}"
                elif name.startswith("kmod/"):
                    # What the kernel module says to user space, and nothing else of it.
                    if c_folder(path) != "transport" or name != UAPI:
                        yield f"{relative(path)} includes {name}"
                elif not (NATIVE / name).exists():
                    yield f'{relative(path)}: "{name}" is not a path below native/'
                elif not c_may_include(c_folder(path), name.split("/")[0]):
                    yield f"{relative(path)} includes {name}"

    problems(
        found(),
        rule=f"a C file includes from its own folder and from those behind it: "
        f"{', '.join(C_ORDER)}. emu/ sees {' and '.join(sorted(C_FLOOR))} only, and "
        f"only transport/ and api/ see emu/; of kmod/ there is {UAPI} alone",
        why="the engine knows no transport, so that a new one changes nothing else; "
        "the embedded controller shares no code with what it checks",
        mend="let the lower folder declare a table of functions, and the upper one "
        "fill it, as native/pcie/pcie_ops.h and mem_ops of native/mem/registration.h "
        "do; what both need goes to support/. Name files by their path below native/",
    )


@pytest.mark.parametrize(
    ("listing", "sources"),
    [
        ("native/meson.build", [path for path in C_NATIVE if path.suffix == ".c"]),
        ("aiougds/meson.build", [*PYTHON_PACKAGE, *PACKAGE.glob("*.pyi")]),
        ("tests/native/meson.build", sorted(ROOT.glob("tests/native/test_*.c"))),
    ],
    ids=["C", "Python", "C tests"],
)
def test_every_source_is_listed(listing: str, sources: list[Path]) -> None:
    """Meson's lists are explicit: a file that is in none would be left out silently."""
    path = ROOT / listing
    text = path.read_text(encoding="utf-8")
    names = [source.relative_to(path.parent).as_posix() for source in sources]
    assert names
    problems(
        (
            name
            for name in names
            if f"'{name}'" not in text and f"'{name.removesuffix('.c')}'" not in text
        ),
        rule=f"{listing} lists each file",
        why="Meson takes what is listed: the package would work here, and lack the "
        "file where it is installed",
        mend=f"add the line to {listing}, in its alphabetical place",
    )


def test_a_failure_teaches() -> None:
    """What was found, the rule, the reason and the way out."""
    with pytest.raises(pytest.fail.Exception) as caught:
        problems(["a.py", "a.py"], rule="none", why="of " + "many " * 30, mend="go")
    lines = str(caught.value).split("\n")
    assert lines[1:4] == ["a.py", "", "Rule: none"]
    assert lines[4].startswith("Why: of many")
    assert lines[5].startswith("      many")
    assert lines[-1].startswith("Mend: go")
