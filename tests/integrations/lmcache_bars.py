"""LMCache's L2 adapters side by side: `python lmcache_bars.py FOLDER [--odirect]`.

Every adapter stores into the same file system, in processes of its own that alternate.
The clock of a store stops when everything is on the disk (syncfs); loads begin with
the page cache dropped. Ours stores into a file, through the embedded controller
("emu:FILE", or "emu:FILE?direct=1").
"""

from __future__ import annotations

import argparse
import ctypes
import json
import os
import select
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

SHAPES = ((32, 4096), (256, 64))
ROUNDS = 5


def specs(folder: str, kib: int, *, odirect: bool) -> dict[str, dict[str, object]]:
    """Return the adapters, each with a place of its own below the folder."""
    slot = (kib << 10) + 4096
    raw = {
        "type": "raw_block", "slot_bytes": slot, "use_odirect": odirect,
        "meta_total_bytes": 16 << 20,
    }  # fmt: skip
    ours: dict[str, object] = {
        "type": "plugin",
        "module_path": "aiougds.lmcache",
        "class_name": "AiougdsL2Adapter",
    }
    file = f"emu:{folder}/ours?size=1GiB" + ("&direct=1" if odirect else "")
    plain = {"addresses": file, "slot_bytes": kib << 10}
    return {
        "ours": {**ours, "adapter_params": plain},
        "ours, xxh3": {**ours, "adapter_params": {**plain, "checksum": "xxh3"}},
        "ours, crc32c": {**ours, "adapter_params": {**plain, "checksum": "crc32c"}},
        "raw_block posix": {
            **raw, "device_path": f"{folder}/posix", "io_engine": "posix",
        },
        "raw_block io_uring": {
            **raw, "device_path": f"{folder}/uring", "io_engine": "io_uring",
        },
        "fs_native": {
            "type": "fs_native", "base_path": f"{folder}/native",
            "use_odirect": odirect, "num_workers": 4,
        },
        "nixl POSIX": {
            "type": "nixl_store", "backend": "POSIX", "pool_size": 512,
            "backend_params": {
                "file_path": f"{folder}/nixl",
                "file_size": str(kib << 10), "use_direct_io": str(odirect).lower(),
            },
        },
    }  # fmt: skip


def drop_caches(folder: str) -> None:
    """Have every read come from the disk."""
    sync(folder)
    Path("/proc/sys/vm/drop_caches").write_text("3")


def sync(folder: str) -> None:
    fd = os.open(folder, os.O_RDONLY)
    ctypes.CDLL(None).syncfs(fd)
    os.close(fd)


def one(spec: dict[str, object], folder: str, keys: int, kib: int) -> dict[str, Any]:
    """Measure one adapter; in milliseconds."""
    from lmcache.cli.commands.bench.l2_adapter_bench import data
    from lmcache.v1.distributed.l2_adapters import create_l2_adapter
    from lmcache.v1.distributed.l2_adapters.config import (
        parse_args_to_l2_adapters_config,
    )
    from lmcache.v1.platform import consume_fd

    nbytes = kib << 10
    for name in ("posix", "uring"):
        with open(f"{folder}/{name}", "ab") as file:
            file.truncate(1 << 30)
    for name in ("native", "nixl"):
        Path(folder, name).mkdir(exist_ok=True)
    buffer = data.make_aligned_tensor(2 * keys * nbytes, 4096)
    arguments = argparse.Namespace(l2_adapter=[json.dumps(spec)])
    config = parse_args_to_l2_adapters_config(arguments).adapters[0]
    l1 = type(data.create_l1_memory_desc(buffer, 4096))(
        buffer.data_ptr(), buffer.numel(), 4096, buffer.numel()
    )
    adapter = create_l2_adapter(config, l1_memory_desc=l1)

    def wait(fd: int) -> None:
        poller = select.poll()
        poller.register(fd, select.POLLIN)
        assert poller.poll(120_000)
        consume_fd(fd)

    found: dict[str, list[float]] = {"store": [], "store_flushed": [], "load": [],
                                     "lookup16": []}  # fmt: skip
    out = data.make_memory_objects(buffer, keys, nbytes, 0)
    into = data.make_memory_objects(buffer, keys, nbytes, keys * nbytes, fill_offset=1)
    for turn in range(ROUNDS + 1):
        names = data.make_object_keys(keys, key_offset=turn * keys)
        began = time.perf_counter()
        task = adapter.submit_store_task(names, out)
        wait(adapter.get_store_event_fd())
        done = adapter.pop_completed_store_tasks()
        stored = time.perf_counter()
        sync(folder)
        flushed = time.perf_counter()
        assert done[task].is_successful()
        drop_caches(folder)
        for obj in into:
            obj.raw_data.zero_()
        loading = time.perf_counter()
        task = adapter.submit_load_task(names, into)
        wait(adapter.get_load_event_fd())
        bits = adapter.query_load_result(task)
        loaded = time.perf_counter()
        assert bits is not None
        assert bits.popcount() == keys
        assert data.verify_round_trip(names, out, into, lambda text: None)
        looking = time.perf_counter()
        task = adapter.submit_lookup_and_lock_task(names[:16], {})
        wait(adapter.get_lookup_and_lock_event_fd())
        bits = adapter.query_lookup_and_lock_result(task)
        looked = time.perf_counter()
        assert bits is not None
        assert bits.popcount() == 16
        adapter.submit_unlock(names[:16])
        if turn:  # the first one warms up
            found["store"].append((stored - began) * 1e3)
            found["store_flushed"].append((flushed - began) * 1e3)
            found["load"].append((loaded - loading) * 1e3)
            found["lookup16"].append((looked - looking) * 1e3)
    adapter.close()
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder")
    parser.add_argument("--odirect", action="store_true")
    parser.add_argument("--repeats", type=int, default=2)
    parser.add_argument("--shape", type=int, choices=(0, 1), action="append")
    parser.add_argument("--only", action="append")
    parser.add_argument("--one", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.one:
        name, keys, kib = json.loads(args.one)
        spec = specs(args.folder, kib, odirect=args.odirect)[name]
        print("\n" + json.dumps(one(spec, args.folder, keys, kib)))
        return
    for keys, kib in [SHAPES[i] for i in args.shape or (0, 1)]:
        names = args.only or list(specs("", kib, odirect=False))
        found: dict[str, dict[str, list[float]]] = {name: {} for name in names}
        for _ in range(args.repeats):
            for name in names:
                more = ["--odirect"] if args.odirect else []
                task = json.dumps([name, keys, kib])
                done = subprocess.run(
                    [sys.executable, __file__, args.folder, "--one", task, *more],
                    capture_output=True, text=True, timeout=200, check=False,
                )  # fmt: skip
                subprocess.run(f"rm -rf {args.folder}/*", shell=True, check=True)
                if done.returncode:
                    print(f"{name}: not run: {done.stderr.strip().splitlines()[-1]}")
                    continue
                got = json.loads(done.stdout.strip().splitlines()[-1])
                print(f"  {name}: {json.dumps(got)}", file=sys.stderr, flush=True)
                for what, values in got.items():
                    found[name].setdefault(what, []).extend(values)
        mib = keys * kib / 1024
        print(
            f"\n{keys} keys x {kib} KiB, {'O_DIRECT' if args.odirect else 'buffered'}"
        )
        for name, numbers in found.items():
            if not numbers:
                continue
            ms = {what: statistics.median(v) for what, v in numbers.items()}
            print(
                f"  {name:24} store to disk {mib / ms['store_flushed'] * 1e3:7.0f} "
                f"MiB/s ({ms['store_flushed']:.1f} ms, told after {ms['store']:.1f}), "
                f"load {mib / ms['load'] * 1e3:7.0f} MiB/s ({ms['load']:.1f} ms), "
                f"lookup of 16 {ms['lookup16']:.3f} ms"
            )


if __name__ == "__main__":
    main()
