"""The device nodes: who may open them, and whether they answer."""

from __future__ import annotations

import errno
import os
import stat
from typing import TYPE_CHECKING, Final

from aiougds.cli._host import access
from aiougds.cli._host.checks.finding import Finding, fail, ok, warn
from aiougds.cli._host.functions import OURS, functions
from aiougds.cli._host.scene import look_around

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from aiougds.cli._host.access import Answer
    from aiougds.cli._host.functions import Function
    from aiougds.cli._host.system import System

    Ask = Callable[[System, str], Answer]

GROUP: Final = "ugds"
RULES: Final = "60-ugds.rules"
RULE_FOLDERS: Final = (
    "/etc/udev/rules.d",
    "/run/udev/rules.d",
    "/usr/lib/udev/rules.d",
    "/lib/udev/rules.d",
)


def udev(system: System) -> Iterator[Finding]:
    """The rule that gives the nodes to a group, the group, and whether we are in it."""
    rule = _rule(system)
    install = (
        f"install -m 644 kmod/{RULES} /etc/udev/rules.d/ && udevadm control --reload"
    )
    if rule is None:
        yield warn("udev", "no rule for the nodes: only root can open them", install)
    else:
        yield ok("udev", rule)
    number = access.group_id(system, GROUP)
    if number is None:
        text = f"there is no group {GROUP} in /etc/group"
        yield warn("group", text, f"groupadd --system {GROUP}")
    elif access.user(system) == 0 or number in access.groups(system):
        yield ok("group", f"this process may open the nodes of the group {GROUP}")
    else:
        yield warn(
            "group",
            f"this process is not in the group {GROUP}",
            f"usermod --append --groups {GROUP} USER, and log in again",
        )


def _rule(system: System) -> str | None:
    for folder in RULE_FOLDERS:
        for name in system.names(folder):
            path = f"{folder}/{name}"
            if name.endswith(".rules") and OURS in (system.text(path) or ""):
                return path
    return None


def nodes(system: System, ask: Ask = access.ask) -> Iterator[Finding]:
    """Each node, asked for its version unless somebody uses it."""
    bound = [function for function in functions(system) if function.driver == OURS]
    if not bound:
        text = f"no drive is with {OURS}"
        yield warn("devices", text, "aiougds list, then aiougds bind ADDRESS")
    for function in bound:
        node = function.node
        if node is None or not system.exists(node):
            text = f"{function.address} is with {OURS}, but its node is not in /dev"
            yield fail("devices", text, "mount devtmpfs, or have udev running")
        else:
            yield _node(system, function, node, ask)


def _node(system: System, function: Function, node: str, ask: Ask) -> Finding:
    mode = stat.S_IMODE(os.stat(system.path(node)).st_mode)
    if mode & (stat.S_IROTH | stat.S_IWOTH):
        text = f"{node} is open to everybody (mode {mode:04o}): a drive reaches memory"
        return fail(node, text, f"chmod 0660 {node}; chgrp {GROUP} {node}")
    holders = look_around(system, [function]).opened([node])
    if holders:
        return ok(node, f"in use by {holders[0]}")
    return _answer(node, ask(system, node))


def _answer(node: str, answer: Answer) -> Finding:
    if answer.version is not None:
        major, minor = answer.version
        text = f"answers, with version {major}.{minor} of the interface"
        if major == access.API_MAJOR:
            return ok(node, text)
        fix = f"install module and aiougds of one release: {access.API_MAJOR} is wanted"
        return fail(node, text, fix)
    if answer.busy:
        return ok(node, "in use by a process that cannot be seen from here")
    if answer.error == errno.EACCES:
        fix = f"usermod --append --groups {GROUP} USER, and log in again"
        return fail(node, "this process may not open it", fix)
    if answer.error == errno.EPERM:
        text = "no IOMMU translates for it, so its opener needs CAP_SYS_RAWIO"
        return fail(node, text, "turn the IOMMU on (see iommu), or give the capability")
    said = os.strerror(answer.error)
    return fail(node, f"cannot be opened: {said}", "the kernel's log may say why")
