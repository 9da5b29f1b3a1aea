"""The whole public surface: every name, method, property, field and parameter."""

from __future__ import annotations

import ast
import importlib
import inspect
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from typing import Final

from documents.pages import ROOT

MODULES: Final = (
    "aiougds", "aiougds.blocking", "aiougds.lowlevel", "aiougds.metrics",
    "aiougds.store", "aiougds.store.blocking", "aiougds.telemetry", "aiougds.testing",
)  # fmt: skip
# Their names want the programs that they adapt to: they are read, not imported.
ADAPTERS: Final = ("aiougds.lmcache", "aiougds.vllm")
# Of the package's own use, in classes that are public.
INSIDE: Final = {
    "abandon", "abandon_off_loop", "begin", "close_error", "close_when_idle",
    "close_window", "detach", "failed", "handle_on", "is_stuck", "map_on",
    "mappings_on", "memory", "ready", "reopen_window", "serving", "tell",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Member:
    """A method or property, where it is public."""

    module: str
    cls: type
    name: str
    value: object

    @property
    def label(self) -> str:
        return f"{self.module}.{self.cls.__name__}.{self.name}"

    @property
    def function(self) -> Callable[..., object]:
        value = getattr(self.value, "fget", None) or self.value
        found: Callable[..., object] = getattr(value, "__func__", value)
        return found

    @property
    def doc(self) -> str:
        return inspect.getdoc(self.function) or ""


def exported(module: str) -> dict[str, object]:
    found = importlib.import_module(module)
    return {name: getattr(found, name) for name in found.__all__}


def classes() -> list[tuple[str, type]]:
    """Every public class, and the module in which it is public."""
    return [
        (module, value)
        for module in MODULES
        for value in exported(module).values()
        if inspect.isclass(value)
    ]


def functions() -> list[tuple[str, Callable[..., object]]]:
    """Every public function, by its full name."""
    return [
        (f"{module}.{name}", value)
        for module in MODULES
        for name, value in exported(module).items()
        if inspect.isroutine(value)
    ]


def _is_ours(cls: type) -> bool:
    return cls.__module__.startswith("aiougds")


def members_of(module: str, cls: type) -> Iterator[Member]:
    """Methods and properties, inherited ones too, but those of Python's own classes."""
    theirs = {name for base in cls.__mro__ if not _is_ours(base) for name in vars(base)}
    kinds = property | staticmethod | classmethod
    for name in dir(cls):
        if name.startswith("_") or name in theirs or name in INSIDE:
            continue
        value = inspect.getattr_static(cls, name)
        if isinstance(value, kinds) or inspect.isfunction(value):
            yield Member(module, cls, name, value)


def members() -> list[Member]:
    return [
        each
        for module, cls in classes()
        if _is_ours(cls)
        for each in members_of(module, cls)
    ]


def hints() -> Iterator[tuple[str, str]]:
    """Every annotation of something public, and where it is."""

    def of(label: str, annotated: object) -> Iterator[tuple[str, str]]:
        for name, hint in getattr(annotated, "__annotations__", {}).items():
            if not name.startswith("_"):
                yield f"{label}({name})", getattr(hint, "__forward_arg__", str(hint))

    for member in members():
        yield from of(member.label, member.function)
    for label, function in functions():
        yield from of(label, function)
    for module, cls in classes():
        yield from of(f"{module}.{cls.__name__}", cls)


@cache
def class_nodes() -> dict[str, list[ast.ClassDef]]:
    """Classes as they are written, by name: what is said about fields is there only."""
    found: dict[str, list[ast.ClassDef]] = {}
    for path in (ROOT / "aiougds").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ClassDef):
                found.setdefault(node.name, []).append(node)
    return found


def _nodes_of(cls: type) -> Iterator[ast.ClassDef]:
    """The class as it is written; another one of that name has other fields."""
    own = set(vars(cls).get("__annotations__", {}))
    for node in class_nodes().get(cls.__name__, []):
        fields = {
            ast.unparse(each.target)
            for each in node.body
            if isinstance(each, ast.AnnAssign)
        }
        if fields == own:
            yield node


def _is_text(node: ast.stmt | None) -> bool:
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)


def fields_of(cls: type) -> Iterator[tuple[str, bool]]:
    """Fields, and whether something is said about each."""
    for base in cls.__mro__:
        if not _is_ours(base):
            continue
        for node in _nodes_of(base):
            said = ast.get_docstring(node) or ""
            following: list[ast.stmt | None] = [*node.body[1:], None]
            for each, behind in zip(node.body, following, strict=True):
                if not isinstance(each, ast.AnnAssign):
                    continue
                name = ast.unparse(each.target)
                if not name.startswith("_") and "ClassVar" not in ast.unparse(
                    each.annotation
                ):
                    yield name, _is_text(behind) or f"``{name}``" in said
