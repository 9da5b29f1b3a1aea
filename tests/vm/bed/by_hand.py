"""The test bed by hand: unpack kernels, build modules, run one check or script.

python tests/vm kernels
python tests/vm build kmod/ugds_drv.ko --kernel 6.12
python tests/vm check vm.checks.bed:two_processors --kernel 6.1 --iommu
python tests/vm exec --load kmod/ugds_drv.ko -- script.py arguments
"""

from __future__ import annotations

import argparse
import json
import sys
from dataclasses import replace
from importlib import import_module
from pathlib import Path

from vm.bed.kernels import LINES, KernelUnavailable, kernel
from vm.bed.launch import Options, boot, launch, make_plan, share_for
from vm.bed.machine import Machine, Peer
from vm.bed.modules import BuildFailed, module
from vm.bed.needs import Missing, require
from vm.bed.newest import build_for_newest
from vm.bed.run import GuestRun, fate

NEWEST = "newest"  # to build against, not to boot


def show_kernels(args: argparse.Namespace) -> int:
    for line in LINES:
        found = kernel(line)
        print(f"{line}: {found.folder}")
        print(f"  make -C {found.sources} O={found.objects} M=$PWD modules")
    return 0


def build(args: argparse.Namespace) -> int:
    for line in [args.kernel] if args.kernel else (*LINES, NEWEST):
        for wanted in args.module:
            folder, _, name = wanted.rpartition("/")
            if line == NEWEST:
                print(build_for_newest(folder) / name)
            else:
                print(module(kernel(line), wanted))
    return 0


def machine(args: argparse.Namespace) -> Machine:
    """Return the machine that the options describe."""
    if args.machine:
        name, _, attribute = args.machine.partition(":")
        found = getattr(import_module(name), attribute)
        assert isinstance(found, Machine)
    else:
        peers = tuple(Peer(f"peer{n}", mib) for n, mib in enumerate(args.peer))
        found = Machine(peers=peers)
    return replace(found, iommu=True) if args.iommu else found


def run_of(args: argparse.Namespace, checks: tuple[str, ...]) -> GuestRun:
    line = args.kernel or LINES[-1]
    return GuestRun(
        "by-hand",
        checks,
        kernel=line,
        machine=machine(args),
        modules=tuple(args.load),
        programs=tuple(args.program),
    )


def check(args: argparse.Namespace) -> int:
    wanted = [word.partition(":") for word in args.check]
    run = run_of(args, tuple(dict.fromkeys(name for name, _, _ in wanted)))
    named = [name for _, _, names in wanted for name in names.split(",") if name]
    result = launch(run, named or list(run.all_checks()), Options(args.accel))
    for outcome in result.outcomes.values():
        print(f"{outcome.state} {outcome.name} ({outcome.seconds} s)")
        if outcome.detail:
            print(outcome.detail)
    if result.trouble:
        print(f"{result.console}\n{result.trouble}")
    print(f"boot {result.boot_s} s, in all {result.seconds:.1f} s")
    good = all(outcome.state == "passed" for outcome in result.outcomes.values())
    return 0 if good and not result.trouble else 1


def execute(args: argparse.Namespace) -> int:
    run = run_of(args, ())
    booted = kernel(run.kernel)
    plan = make_plan(run, booted, [])
    words = [sys.executable, "-m", "vm.guest.script"]
    words += [str(Path(word).resolve()) for word in args.command[:1]] + args.command[1:]
    options = Options(args.accel)
    with share_for(run.name, keep=False) as share:
        (share / "plan.json").write_text(json.dumps(plan))
        print(f"logs: {share}", flush=True)
        status, seconds = boot(
            run.machine, booted, share, words, args.limit, options, alone=False
        )
        print((share / "console.log").read_text(errors="replace"))
    wrong = fate(status)
    print(wrong or f"ended well in {seconds:.1f} s")
    return 1 if wrong else 0


def guest_options(command: argparse.ArgumentParser) -> None:
    command.add_argument("--kernel", choices=LINES)
    command.add_argument("--iommu", action="store_true")
    command.add_argument("--accel", default="tcg", choices=("tcg", "kvm"))
    command.add_argument(
        "--peer", action="append", type=int, default=[], metavar="MIB", help="a BAR"
    )
    command.add_argument(
        "--machine", metavar="MODULE:NAME", help="a Machine, such as vm.runs.x:BIG"
    )
    command.add_argument(
        "--load", action="append", default=[], help="such as 'kmod/ugds_drv.ko a=1'"
    )
    command.add_argument(
        "--program", action="append", default=[], help="C file below tests/vm to build"
    )


def parser() -> argparse.ArgumentParser:
    top = argparse.ArgumentParser(
        prog="python tests/vm",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    commands = top.add_subparsers(required=True)
    command = commands.add_parser("kernels", help="download and unpack; show where")
    command.set_defaults(call=show_kernels)
    command = commands.add_parser("build", help="build kernel modules")
    command.set_defaults(call=build)
    command.add_argument("module", nargs="+", help="such as kmod/ugds_drv.ko")
    command.add_argument("--kernel", choices=(*LINES, NEWEST))
    command = commands.add_parser("check", help="run checks in a guest")
    command.set_defaults(call=check)
    command.add_argument("check", nargs="+", metavar="MODULE[:NAME,..]")
    guest_options(command)
    command = commands.add_parser("exec", help="run a script or program in a guest")
    command.set_defaults(call=execute)
    command.add_argument("--limit", type=float, default=120, help="seconds")
    guest_options(command)
    command.add_argument("command", nargs="+")
    return top


def main() -> int:
    args = parser().parse_args()
    try:
        require()
        status: int = args.call(args)
    except (Missing, KernelUnavailable, BuildFailed) as error:
        print(error, file=sys.stderr)
        return 2
    return status


if __name__ == "__main__":
    sys.exit(main())
