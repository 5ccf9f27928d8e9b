"""What machine this is, and what of it ling3 can use (E-28 to E-38, D-1).

Every check reads below `root`, so that tests can hand in a small tree of files.
"""

from __future__ import annotations

import os
import platform
import resource
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from ling3.engine.metrics import read_kb

MINIMUM_DRIVER = "0.9.8"
TESTED_MEMORY_MIB = 14000
BIG_CORES = frozenset({4, 5, 6, 7})
FD_WANTED, FD_ENOUGH = 262144, 65536

Outcome = Literal["passed", "warning", "failed"]


@dataclass(frozen=True, slots=True)
class Check:
    """One finding. `detail` says what was seen, and what to do where that helps."""

    name: str
    outcome: Outcome
    detail: str


@dataclass(frozen=True, slots=True)
class Host:
    """The machine as found: a board with an RK3588, or any other."""

    machine: str
    board: bool
    memory_mib: float
    checks: tuple[Check, ...]

    def failure(self) -> Check | None:
        """The first failed check."""
        return next((check for check in self.checks if check.outcome == "failed"), None)

    def report(self, mla_backend: str, available_mib: float) -> dict[str, Any]:
        """The object of `device_check=` and of `/health` (E-36); on other machines the NPU is absent (D-1)."""
        return {
            "soc": "RK3588" if self.board else self.machine,
            "kernel": platform.release(),
            "memory_mib": self.memory_mib,
            "minimum_rknpu_driver": MINIMUM_DRIVER,
            "npu": "unused" if self.board else "absent",
            "cpu_affinity": "4-7" if self.board else "any",
            "mla_backend": mla_backend,
            "available_memory_mib": available_mib,
        }


def inspect_host(root: Path = Path("/"), machine: str | None = None) -> Host:
    """Look at the machine; nothing is changed."""
    machine = machine or platform.machine()
    board = _is_rk3588(root, machine)
    memory = read_kb(root / "proc/meminfo", "MemTotal:") / 1024
    checks = (_soc(board, root, machine), _memory(memory), _npu_node(root, board), _runtime())
    return Host(machine, board, memory, checks)


def use_big_cores() -> None:
    """Pin the calling thread, and so all later ones, to the A76 cores (E-37). OSError if the kernel refuses."""
    os.sched_setaffinity(0, BIG_CORES)


def raise_fd_limit() -> Check:
    """Raise the soft limit of open files as far as useful (E-38)."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = FD_WANTED if hard == resource.RLIM_INFINITY else min(FD_WANTED, hard)
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, wanted), hard))
    except (OSError, ValueError):
        wanted = soft
    limit = max(soft, wanted)
    outcome: Outcome = "passed" if limit >= FD_ENOUGH else "warning"
    return Check("open_files", outcome, f"{limit} files may be open; the NPU needs up to {FD_ENOUGH}")


def _is_rk3588(root: Path, machine: str) -> bool:
    try:
        compatible = (root / "proc/device-tree/compatible").read_bytes()
    except OSError:
        return False
    return machine == "aarch64" and b"rockchip,rk3588" in compatible


def _soc(board: bool, root: Path, machine: str) -> Check:
    if board:
        return Check("soc", "passed", "RK3588")
    if machine == "aarch64" and not (root / "proc/device-tree/compatible").exists():
        detail = "no /proc/device-tree: not a board, or a container that hides it and must mount it"
        return Check("soc", "failed", detail)
    return Check("soc", "failed", f"this is a {machine} machine without an RK3588; ling3 runs on its CPU")


def _memory(memory: float) -> Check:
    detail = f"{memory:.0f} MiB in all"
    if memory < TESTED_MEMORY_MIB:
        return Check("memory", "warning", detail + ", below the tested 16 GB class")
    return Check("memory", "passed", detail)


def _npu_node(root: Path, board: bool) -> Check:
    if (root / "sys/module/rknpu").exists():
        return Check("npu_driver", "passed", "rknpu is loaded")
    advice = f"a vendor kernel brings rknpu, {MINIMUM_DRIVER} or newer"
    if board and (root / "dev/accel/accel0").exists():  # elsewhere some other maker's accelerator
        return Check("npu_driver", "failed", f"the mainline rocket driver holds the NPU; {advice}")
    return Check("npu_driver", "failed", f"no rknpu kernel driver; {advice}")


def _runtime() -> Check:
    return Check("npu_runtime", "failed", "this version of ling3 computes on the CPU only")
