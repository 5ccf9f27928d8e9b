"""What machine this is, told from small trees of files (E-28 to E-38, D-1; user-pain H1, H3, H4, H18)."""

from __future__ import annotations

import os
import platform
import resource
from pathlib import Path

import pytest

from ling3.check import Host, inspect_host, raise_fd_limit, use_big_cores

BOARD = b"radxa,rock-5b\0rockchip,rk3588\0"
GIB16 = "MemTotal:       16315340 kB\n"


def tree(
    root: Path, compatible: bytes | None = BOARD, meminfo: str = GIB16, rknpu: bool = False, accel: bool = False
) -> Path:
    (root / "proc").mkdir()
    (root / "proc/meminfo").write_text(meminfo)
    if compatible is not None:
        (root / "proc/device-tree").mkdir()
        (root / "proc/device-tree/compatible").write_bytes(compatible)
    if rknpu:
        (root / "sys/module/rknpu").mkdir(parents=True)
    if accel:
        (root / "dev/accel").mkdir(parents=True)
        (root / "dev/accel/accel0").touch()
    return root


def outcomes(host: Host) -> dict[str, str]:
    return {check.name: check.outcome for check in host.checks}


def detail(host: Host, name: str) -> str:
    return next(check.detail for check in host.checks if check.name == name)


def test_a_board_with_the_vendors_driver(tmp_path: Path) -> None:
    host = inspect_host(tree(tmp_path, rknpu=True), "aarch64")
    assert host.board
    assert outcomes(host) == {"soc": "passed", "memory": "passed", "npu_driver": "passed", "npu_runtime": "failed"}
    assert host.failure() == host.checks[-1]


@pytest.mark.parametrize(
    ("compatible", "machine", "board"),
    [
        (b"radxa,rock-5b\0rockchip,rk3588\0", "aarch64", True),
        (b"rockchip,rk3588\0", "aarch64", True),
        (b"xunlong,orangepi-5\0rockchip,rk3588s\0", "aarch64", True),  # E-30
        (b"rockchip,rk3568\0", "aarch64", False),
        (b"brcm,bcm2712\0", "aarch64", False),
        (b"", "aarch64", False),
        (b"rockchip,rk3588\0", "x86_64", False),
        (b"rockchip,rk3588\0", "armv7l", False),
        (None, "x86_64", False),
    ],
)
def test_a_board_is_told_by_machine_and_device_tree(
    tmp_path: Path, compatible: bytes | None, machine: str, board: bool
) -> None:
    host = inspect_host(tree(tmp_path, compatible), machine)
    assert (host.board, outcomes(host)["soc"]) == (board, "passed" if board else "failed")


def test_another_machine_is_named_and_told_what_happens(tmp_path: Path) -> None:
    host = inspect_host(tree(tmp_path, None), "x86_64")
    assert detail(host, "soc") == "this is a x86_64 machine without an RK3588; ling3 runs on its CPU"


def test_a_container_may_hide_the_device_tree(tmp_path: Path) -> None:  # H4
    host = inspect_host(tree(tmp_path, None), "aarch64")
    assert "container" in detail(host, "soc") and "/proc/device-tree" in detail(host, "soc")


def test_a_board_without_a_driver_is_told_where_it_comes_from(tmp_path: Path) -> None:  # H3
    host = inspect_host(tree(tmp_path), "aarch64")
    failure = host.failure()
    assert failure is not None and failure.name == "npu_driver"
    assert failure.detail == "no rknpu kernel driver; a vendor kernel brings rknpu, 0.9.8 or newer"


def test_the_mainline_driver_is_named(tmp_path: Path) -> None:  # H18
    assert "mainline rocket driver" in detail(inspect_host(tree(tmp_path, accel=True), "aarch64"), "npu_driver")


def test_some_other_accelerator_is_not_taken_for_rocket(tmp_path: Path) -> None:
    assert "rocket" not in detail(inspect_host(tree(tmp_path, None, accel=True), "x86_64"), "npu_driver")


@pytest.mark.parametrize(
    ("kb", "outcome"), [(14000 * 1024, "passed"), (14000 * 1024 - 1, "warning"), (8 << 20, "warning")]
)
def test_less_memory_than_tested_is_a_warning(tmp_path: Path, kb: int, outcome: str) -> None:  # E-29
    host = inspect_host(tree(tmp_path, meminfo=f"MemFree: 1 kB\nMemTotal: {kb} kB\n"), "aarch64")
    assert outcomes(host)["memory"] == outcome


def test_the_warning_gives_the_measured_mib(tmp_path: Path) -> None:  # E-31
    host = inspect_host(tree(tmp_path, meminfo="MemTotal: 8388608 kB\n"), "aarch64")
    assert detail(host, "memory") == "8192 MiB in all, below the tested 16 GB class"


def test_a_machine_without_proc_is_looked_at_too(tmp_path: Path) -> None:
    host = inspect_host(tmp_path, "x86_64")
    assert (host.board, host.memory_mib, outcomes(host)["memory"]) == (False, 0.0, "warning")


def test_this_machine_can_be_looked_at() -> None:
    host = inspect_host()
    assert host.machine == platform.machine()
    assert host.memory_mib > 0


def test_the_report_of_a_board(tmp_path: Path) -> None:  # E-36
    report = inspect_host(tree(tmp_path, rknpu=True), "aarch64").report("auto", 9000.5)
    assert report == {
        "soc": "RK3588", "kernel": platform.release(), "memory_mib": 16315340 / 1024,
        "minimum_rknpu_driver": "0.9.8", "npu": "unused", "cpu_affinity": "4-7", "mla_backend": "auto",
        "available_memory_mib": 9000.5,
    }  # fmt: skip


def test_the_report_of_any_other_machine_has_no_npu(tmp_path: Path) -> None:  # D-1
    report = inspect_host(tree(tmp_path, None), "x86_64").report("cpu", 1.0)
    assert (report["soc"], report["npu"], report["cpu_affinity"]) == ("x86_64", "absent", "any")


# Open files (E-38)

INFINITY = resource.RLIM_INFINITY


@pytest.mark.parametrize(
    ("soft", "hard", "limit", "outcome"),
    [
        (1024, 1 << 20, 262144, "passed"),
        (1024, 524288, 262144, "passed"),
        (1024, 100000, 100000, "passed"),
        (1024, 65536, 65536, "passed"),
        (1024, 65535, 65535, "warning"),
        (256, 4096, 4096, "warning"),
        (1024, INFINITY, 262144, "passed"),
        (524288, 1 << 20, 524288, "passed"),
    ],
)
def test_the_limit_is_raised_as_far_as_useful(
    monkeypatch: pytest.MonkeyPatch, soft: int, hard: int, limit: int, outcome: str
) -> None:
    asked: list[tuple[int, int]] = []
    monkeypatch.setattr(resource, "getrlimit", lambda kind: (soft, hard))
    monkeypatch.setattr(resource, "setrlimit", lambda kind, limits: asked.append(limits))
    check = raise_fd_limit()
    assert asked == [(limit, hard)]
    assert (check.name, check.outcome, check.detail.split()[0]) == ("open_files", outcome, str(limit))


@pytest.mark.parametrize("error", [OSError(1, "not permitted"), ValueError("not allowed to raise maximum limit")])
def test_a_limit_that_cannot_be_raised_is_told_as_it_is(monkeypatch: pytest.MonkeyPatch, error: Exception) -> None:
    def refuse(kind: int, limits: tuple[int, int]) -> None:
        raise error

    monkeypatch.setattr(resource, "getrlimit", lambda kind: (1024, 1 << 20))
    monkeypatch.setattr(resource, "setrlimit", refuse)
    check = raise_fd_limit()
    assert (check.outcome, check.detail) == ("warning", "1024 files may be open; the NPU needs up to 65536")


# Affinity (E-37)


def test_the_big_cores_are_4_to_7(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[int, frozenset[int]]] = []
    monkeypatch.setattr(os, "sched_setaffinity", lambda pid, cpus: asked.append((pid, cpus)))
    use_big_cores()
    assert asked == [(0, frozenset({4, 5, 6, 7}))]
