"""Public names: exported once, documented, typed; the C interface matches its stub."""

from __future__ import annotations

import ast
import importlib
import importlib.metadata
import inspect
import re
from pathlib import Path
from types import ModuleType

import pytest

import aiougds
import aiougds.blocking

ROOT = Path(__file__).parent.parent
PUBLIC = (
    "aiougds", "aiougds.blocking", "aiougds.lowlevel", "aiougds.metrics",
    "aiougds.store", "aiougds.store.blocking", "aiougds.telemetry",
    "aiougds.testing",
)  # fmt: skip
INCLUDE = ROOT / "native" / "include"
STUB = ROOT / "aiougds" / "_native.pyi"


@pytest.fixture(params=PUBLIC)
def module(request: pytest.FixtureRequest) -> ModuleType:
    return importlib.import_module(request.param)


def exported(module: ModuleType) -> dict[str, object]:
    return {name: getattr(module, name) for name in module.__all__}


def is_documentable(value: object) -> bool:
    """Classes and functions; literal types and constants speak for themselves."""
    return inspect.isclass(value) or inspect.isroutine(value)


def public_members(cls: type) -> dict[str, object]:
    return {
        name: value
        for name, value in vars(cls).items()
        if not name.startswith("_")
        and isinstance(value, property | staticmethod | classmethod)
        | inspect.isfunction(value)
    }


def overrides_builtin(cls: type, member: str) -> bool:
    """``ExceptionGroup.derive`` and the like are documented where they come from."""
    return any(
        member in vars(base)
        for base in cls.__mro__
        if not base.__module__.startswith("aiougds")
    )


def test_all_names_exist_and_are_sorted(module: ModuleType) -> None:
    names = list(module.__all__)
    assert len(names) == len(set(names))
    assert names == sorted(names)
    assert exported(module)


def test_all_holds_every_public_name(module: ModuleType) -> None:
    own = {
        name
        for name, value in vars(module).items()
        if not name.startswith("_")
        and is_documentable(value)
        and getattr(value, "__module__", "") == module.__name__
    }
    assert own <= set(module.__all__)


def test_public_names_say_where_they_are_public(module: ModuleType) -> None:
    if module.__name__ == "aiougds.lowlevel":
        return  # shows the private parts as what they are
    wrong = {
        name: value.__module__
        for name, value in exported(module).items()
        if is_documentable(value)
        and value.__module__.startswith("aiougds")
        and any(part.startswith("_") for part in value.__module__.split("."))
    }
    assert not wrong


def test_public_names_are_documented(module: ModuleType) -> None:
    bare = [
        name
        for name, value in exported(module).items()
        if is_documentable(value) and not (value.__doc__ or "").strip()
    ]
    for name, cls in exported(module).items():
        if inspect.isclass(cls):
            bare += [
                f"{name}.{member}"
                for member in public_members(cls)
                if not overrides_builtin(cls, member)
                and not (inspect.getdoc(getattr(cls, member)) or "").strip()
            ]
    assert not bare


def test_public_signatures_are_typed_without_any(module: ModuleType) -> None:
    loose: list[str] = []
    for name, value in exported(module).items():
        callables = {name: value}
        if inspect.isclass(value):
            callables = {f"{name}.{m}": v for m, v in public_members(value).items()}
        for label, function in callables.items():
            target = getattr(function, "fget", None) or function
            target = getattr(target, "__func__", target)
            if not inspect.isfunction(target):
                continue
            hints = dict(target.__annotations__)
            loose += [
                f"{label}: {argument}: {hint}"
                for argument, hint in hints.items()
                if re.search(r"\bAny\b", str(hint))
            ]
            if "return" not in hints:
                loose.append(f"{label}: no return type")
    assert not loose


def test_errors_form_one_tree() -> None:
    outside = [
        name
        for name, value in exported(aiougds).items()
        if inspect.isclass(value)
        and issubclass(value, BaseException)
        and not issubclass(value, aiougds.UGDSError | BaseExceptionGroup | Warning)
    ]
    assert not outside


def test_version_is_that_of_the_build() -> None:
    text = (ROOT / "meson.build").read_text(encoding="utf-8")
    found = re.search(r"version: '([^']+)'", text)
    assert found is not None
    assert importlib.metadata.version("aiougds") == found.group(1)
    assert getattr(aiougds, "__version__", found.group(1)) == found.group(1)


def test_package_is_marked_as_typed() -> None:
    assert Path(aiougds.__file__).with_name("py.typed").exists()


TWINS = ("AsCompleted", "Batch", "Controller", "Namespace", "Registration")
# Of the package's own use, in a class that is public.
INSIDE = {"Namespace": {"close_window", "detach", "failed", "reopen_window"}}


def shape(member: object) -> object:
    """How it is called; annotations may differ."""
    if not callable(member):
        return None
    parameters = inspect.signature(member).parameters.values()
    return [(p.name, p.kind, p.default) for p in parameters]


@pytest.mark.parametrize("name", TWINS)
def test_the_blocking_twin_offers_the_same(name: str) -> None:
    there, here = getattr(aiougds, name), getattr(aiougds.blocking, name)
    names = {member for member in dir(there) if not member.startswith("_")}
    names -= INSIDE.get(name, set())
    twins = {member for member in dir(here) if not member.startswith("_")}
    assert twins == {"close" if member == "aclose" else member for member in names}
    for member in twins - {"close"}:
        assert shape(getattr(here, member)) == shape(getattr(there, member)), member


def declarations() -> str:
    """The headers that Python sees, without their comments."""
    text = "".join(
        (INCLUDE / name).read_text(encoding="ascii")
        for name in (
            "ugds.h",
            "ugds_emu.h",
            "ugds_gpu.h",
            "ugds_stream.h",
            "ugds_exec.h",
            "ugds_plan.h",
            "ugds_own.h",
            "ugds_stats.h",
        )
    )
    return re.sub(r"/\*.*?\*/", "", text, flags=re.DOTALL)


def test_native_stub_covers_the_header() -> None:
    header = declarations()
    declared = set(re.findall(r"\b(ugds_\w+)\s*\(", header))
    constants = set(re.findall(r"#define[ \t]+(UGDS_\w+)[ \t]+\S", header))
    assert len(declared) > 40
    stub: set[str] = set()
    for node in ast.walk(ast.parse(STUB.read_text(encoding="utf-8"))):
        if isinstance(node, ast.FunctionDef):
            stub.add(node.name)
        elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            stub.add(node.target.id)
    missing = (declared | constants) - stub
    assert not missing
    unknown = {name for name in stub if name.lower().startswith("ugds_")}
    assert unknown <= declared | constants


def test_native_module_has_what_the_header_declares() -> None:
    native = importlib.import_module("aiougds._native")
    header = declarations()
    for name in re.findall(r"\b(ugds_\w+)\s*\(", header):
        assert callable(getattr(native.lib, name))
