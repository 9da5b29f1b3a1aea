"""The whole public surface is documented: what each part is, takes, awaits, raises."""

from __future__ import annotations

import argparse
import ast
import builtins
import collections.abc
import inspect
import re
import types
import typing
from collections.abc import Iterator

import pytest
from documents.pages import ROOT
from documents.surface import (
    ADAPTERS,
    INSIDE,
    MODULES,
    Member,
    classes,
    exported,
    fields_of,
    functions,
    hints,
    members,
)

from aiougds.cli import _main

pytestmark = pytest.mark.once

REFERENCE = ROOT / "docs" / "reference" / "api"
COMMON = (REFERENCE / "index.md").read_text(encoding="utf-8")
MEMBERS = members()


def docs_of(member: Member) -> str:
    """What is said about it, and about the class that it is of."""
    return f"{member.doc}\n{inspect.getdoc(member.cls) or ''}"


def listed(text: str) -> set[str]:
    return set(re.findall(r"`+([\w*]+)(?:=[^`]*)?`+", text))


def test_the_surface_is_seen() -> None:
    assert len(MEMBERS) > 200
    assert len(functions()) > 20


@pytest.mark.parametrize("member", MEMBERS, ids=lambda m: m.label)
def test_member_is_described(member: Member) -> None:
    assert member.doc.strip()


@pytest.mark.parametrize(
    ("module", "cls"), classes(), ids=lambda v: getattr(v, "__name__", v)
)
def test_fields_are_described(module: str, cls: type) -> None:
    if re.search("fields of :class:`|table of its options", cls.__doc__ or ""):
        return  # they stand there
    told: dict[str, bool] = {}
    for name, said in fields_of(cls):
        told[name] = told.get(name, False) or said
    assert [name for name, said in told.items() if not said] == [], module


def parameters(function: object) -> Iterator[inspect.Parameter]:
    for each in inspect.signature(function).parameters.values():  # type: ignore[arg-type]
        if each.name not in ("self", "cls") and not each.name.startswith("_"):
            yield each


def known_to(member: Member, seen: frozenset[str] = frozenset()) -> set[str]:
    """Words that it explains, by itself or as others do that it names."""
    known = listed(docs_of(member))
    for name in re.findall(
        r"[Aa]s\s+(?:of\s+)?:\w+:`(?:aiougds\.)?([\w.]+)`", member.doc
    ):
        for other in MEMBERS:
            there = other.label == f"aiougds.{name}" or (
                other.cls is member.cls and other.name == name
            )
            if there and other.label not in seen:
                known |= known_to(other, seen | {member.label, other.label})
    return known


def on_page(module: str) -> set[str]:
    """Words that the module's page of the reference explains."""
    page = REFERENCE / f"{module.rpartition('.')[2]}.md"
    return listed(page.read_text(encoding="utf-8")) if page.exists() else set()


@pytest.mark.parametrize("member", MEMBERS, ids=lambda m: m.label)
def test_arguments_of_methods_are_described(member: Member) -> None:
    if isinstance(member.value, property):
        return
    known = known_to(member) | listed(COMMON) | on_page(member.module)
    assert [p.name for p in parameters(member.function) if p.name not in known] == []


@pytest.mark.parametrize("label", [label for label, _ in functions()])
def test_arguments_of_functions_are_described(label: str) -> None:
    function = dict(functions())[label]
    text = inspect.getdoc(function) or ""
    assert text
    known = listed(text) | listed(COMMON) | on_page(label.rpartition(".")[0])
    for other in re.findall(r"as :func:`([\w.]+)`", text):
        known |= listed(inspect.getdoc(dict(functions())[other]) or "")
    assert [p.name for p in parameters(function) if p.name not in known] == []


@pytest.mark.parametrize("member", MEMBERS, ids=lambda m: m.label)
def test_times_have_units(member: Member) -> None:
    if isinstance(member.value, property):
        hints = {member.name: member.function.__annotations__.get("return", "")}
    else:
        hints = {p.name: str(p.annotation) for p in parameters(member.function)}
    if "hare of" in member.doc:
        return  # of 1
    loose = [
        name
        for name, hint in hints.items()
        if re.match(r"float\b", str(hint))
        and not re.search(r"(_s|_us|_ms|_per_s|percent|seconds|per_command)$", name)
    ]
    assert loose == []


def is_awaited(member: Member) -> bool:
    return inspect.iscoroutinefunction(member.function)


@pytest.mark.parametrize(
    "member", [m for m in MEMBERS if is_awaited(m)], ids=lambda m: m.label
)
def test_what_is_awaited_says_how_it_ends(member: Member) -> None:
    """Cancelling and failing: by itself, by its class, or as another one."""
    text = docs_of(member)
    if re.search(r"[Aa]s (of )?:meth:", member.doc):
        return  # says where
    assert re.search(r"[Cc]ancel", text), "say what cancelling does"
    assert re.search(r"[Rr]aise|Error", text), "say what it raises"


# What sends a command of NVMe, or is the paper's idea; the rest is our own.
COMMANDS = {
    "Controller": "admin error_log events identify log_page namespaces reset smart_log",
    "Namespace": "compare deallocate flush read verify write write_zeroes",
}
IDEAS = {
    "Batch": "read submit write",
    "Controller": "quarantine",
    "Namespace": "batch on_stream read_many read_on register register_dmabuf"
    " write_many write_on",
    "Registration": "export_dmabuf",
}
CLAUSE = re.compile(r"(NVMe base|NVM command set),\s+clause\s+\d")
SECTION = re.compile(r"uGDS paper, \d\.\d")


def told_with(member: Member, seen: frozenset[str] = frozenset()) -> str:
    """What it says, what others say that it is as, and what made its object."""
    text = member.doc
    made_by = re.findall(r"Made by :meth:`([\w.]+)`", inspect.getdoc(member.cls) or "")
    for name in re.findall(r"[Aa]s\s+(?:of\s+)?:meth:`([\w.]+)`", text) + made_by:
        wanted = name if "." in name else f"{member.cls.__name__}.{name}"
        for other in MEMBERS:
            if other.label == f"aiougds.{wanted}" and other.label not in seen:
                text += told_with(other, seen | {member.label, other.label})
    return text


@pytest.mark.parametrize("member", MEMBERS, ids=lambda m: m.label)
def test_what_has_a_source_names_it(member: Member) -> None:
    """Of the public package; the blocking one says of which call each is the twin."""
    if member.module != "aiougds":
        return
    for sources, wanted in ((COMMANDS, CLAUSE), (IDEAS, SECTION)):
        if member.name in sources.get(member.cls.__name__, "").split():
            assert wanted.search(told_with(member)), "say what is behind it"


def test_what_has_a_source_is_there() -> None:
    there = {member.label for member in MEMBERS}
    for sources in (COMMANDS, IDEAS):
        for cls, names in sources.items():
            assert {f"aiougds.{cls}.{name}" for name in names.split()} <= there


def test_what_is_inside_is_there() -> None:
    there = {name for _, cls in classes() for name in dir(cls)}
    assert there >= INSIDE


@pytest.mark.parametrize("module", ADAPTERS)
def test_adapters_are_described(module: str) -> None:
    """They cannot be imported without what they adapt to."""
    folder = ROOT / module.replace(".", "/")
    trees = [ast.parse(p.read_text(encoding="utf-8")) for p in folder.glob("*.py")]
    found = {
        node.name: node
        for tree in trees
        for node in tree.body
        if isinstance(node, ast.ClassDef)
    }
    front = (folder / "__init__.py").read_text(encoding="utf-8")
    names = re.search(r"__all__ = \[(.*?)\]", front, re.DOTALL)
    assert names
    for name in re.findall(r'"(\w+)"', names[1]):
        assert ast.get_docstring(found[name]), name
        assert name in (REFERENCE / "adapters.md").read_text(encoding="utf-8")


# ---- types ----

# Of other packages, which they come from.
THEIRS = {"Buffer", "Metric", "TracerProvider"}


def nameable() -> set[str]:
    """Names that a user has: ours that are public, Python's, and those of others."""
    python = (builtins, collections.abc, typing, types)
    return (
        {name for module in MODULES for name in exported(module)}
        | {name for module in python for name in dir(module)}
        | THEIRS
    )


def names_in(hint: str | ast.AST) -> set[str]:
    """The names in an annotation; of ``a.b.C`` the last."""
    match ast.parse(hint, mode="eval") if isinstance(hint, str) else hint:
        case ast.Name(id=name) | ast.Attribute(attr=name):
            return {name}
        case ast.Subscript(value=ast.Name(id="Literal")):
            return set()
        case ast.Constant(value=str(text)):
            return names_in(text)
        case node:
            return set().union(*map(names_in, ast.iter_child_nodes(node)))


def test_types_of_the_surface_have_public_names() -> None:
    """Who writes a function around ours can annotate it."""
    known = nameable()
    all_hints = list(hints())
    assert len(all_hints) > 500
    unknown = {
        (word, where)
        for where, hint in all_hints
        for word in names_in(hint) - known
        if word not in ("T", "P")
    }
    assert unknown == set()


# ---- the reference ----


def in_reference(module: str) -> set[str]:
    """Names that the pages of the reference document."""
    text = "".join(p.read_text(encoding="utf-8") for p in REFERENCE.glob("*.md"))
    kinds = r"autoclass|autoexception|autofunction|autodata"
    return set(
        re.findall(rf"\.\. (?:{kinds}):: {re.escape(module)}\.(\w+)$", text, re.M)
    )


@pytest.mark.parametrize("module", MODULES)
def test_reference_holds_every_name(module: str) -> None:
    assert in_reference(module) == set(exported(module))


# ---- the command line ----


def parsers(
    parser: argparse.ArgumentParser,
) -> Iterator[argparse.ArgumentParser]:
    yield parser
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for below in action.choices.values():
                yield from parsers(below)


def test_every_option_says_what_it_is() -> None:
    bare = [
        f"{parser.prog} {'/'.join(action.option_strings) or action.dest}"
        for parser in parsers(_main._parser())
        for action in parser._actions
        if not action.help and not isinstance(action, argparse._SubParsersAction)
    ]
    assert bare == []
