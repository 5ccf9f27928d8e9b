"""The thread pool: every item once, arguments as words, and no way to hang it."""

from __future__ import annotations

import ctypes
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from ling3 import _native
from ling3._native import Pool

ENTRY = ctypes.CFUNCTYPE(None, ctypes.POINTER(ctypes.c_int64), ctypes.c_int64, ctypes.c_int64)
IMPOSSIBLE_CPU = 1023
ANY_KERNEL = 1  # an address that is never called


class Kernel:
    """A kernel in Python; the pool calls it from all its threads."""

    def __init__(self, body: Callable[[Any, int, int], None]) -> None:
        self._entry = ENTRY(body)
        self.address = ctypes.cast(self._entry, ctypes.c_void_p).value or 0


def counting(seen: NDArray[np.int64]) -> Kernel:
    """Counts the visits of every item."""

    def body(_args: Any, begin: int, end: int) -> None:
        seen[begin:end] += 1

    return Kernel(body)


def words_of(arguments: list[Any], count: int) -> list[int]:
    """The words that a kernel receives for its arguments."""
    words: list[int] = []
    kernel = Kernel(lambda args, _begin, _end: words.extend(args[:count]))
    Pool(1).run(kernel.address, 1, arguments)
    return words


@pytest.mark.parametrize("threads", [1, 2, 4])
@pytest.mark.parametrize(("items", "grain"), [(0, 1), (1, 1), (7, 3), (1000, 1), (1000, 64), (5, 100)])
def test_a_run_visits_every_item_once(threads: int, items: int, grain: int) -> None:
    seen = np.zeros(items, np.int64)
    kernel = counting(seen)
    Pool(threads).run(kernel.address, items, [], grain)
    assert (seen == 1).all()


def test_arguments_become_words() -> None:
    array = np.zeros((3, 4), np.float32)
    half = int(np.float64(0.5).view(np.int64))
    assert words_of([array, -5, 0.5, 2**63 - 1], 6) == [array.ctypes.data, 3, 4, -5, half, 2**63 - 1]


def test_read_only_arrays_are_taken() -> None:
    array = np.zeros(9, np.uint16)
    array.setflags(write=False)
    assert words_of([array], 2) == [array.ctypes.data, 9]


@pytest.mark.parametrize("argument", ["text", None, b"bytes", np.float32(1), [1]])
def test_other_arguments_are_refused_by_position(argument: object) -> None:
    with pytest.raises(TypeError, match=r"args\[1\]: an array, an int or a float is needed, got "):
        Pool(1).run(ANY_KERNEL, 1, [1, argument])


@pytest.mark.parametrize(
    ("argument", "message"),
    [
        (np.zeros((4, 4))[:, :2], "is not C-contiguous"),
        (np.array([None]), "holds Python objects"),
        (2**63, "does not fit 64 bits"),
    ],
)
def test_unusable_arguments_are_refused_by_position(argument: object, message: str) -> None:
    with pytest.raises(ValueError, match=rf"args\[0\]: .*{message}"):
        Pool(1).run(ANY_KERNEL, 1, [argument])


@pytest.mark.parametrize(
    ("kernel", "items", "grain", "name"),
    [(0, 1, 1, "kernel_address"), (ANY_KERNEL, -1, 1, "items"), (ANY_KERNEL, 1, 0, "grain")],
)
def test_impossible_runs_are_refused_by_name(kernel: int, items: int, grain: int, name: str) -> None:
    with pytest.raises(ValueError, match=name):
        Pool(1).run(kernel, items, [], grain)


@pytest.mark.parametrize("threads", [0, -1, 257])
def test_impossible_thread_counts_are_refused(threads: int) -> None:
    with pytest.raises(ValueError, match=r"threads: must be in 1\.\.\.256"):
        Pool(threads)


def test_pinning_to_a_usable_cpu_succeeds_and_leaves_the_caller_alone() -> None:
    before = os.sched_getaffinity(0)
    assert Pool(2, [min(before)]).pinned
    assert os.sched_getaffinity(0) == before


def test_a_refused_cpu_means_not_pinned() -> None:
    usable = min(os.sched_getaffinity(0))
    pool = Pool(3, [usable, usable, IMPOSSIBLE_CPU])
    assert not pool.pinned
    assert all(mask == os.sched_getaffinity(0) for mask in _worker_affinities())


def test_cpu_numbers_are_checked() -> None:
    with pytest.raises(ValueError, match="cpus: -1 is no CPU number"):
        Pool(2, [-1])


def test_without_cpus_nothing_is_pinned() -> None:
    assert not Pool(2).pinned


def test_workers_take_no_signals() -> None:
    pool = Pool(2)
    masks = [line.split()[1] for status in _worker_status() for line in status.splitlines() if "SigBlk" in line]
    assert pool.threads == 2
    assert masks
    interrupt = 1 << (2 - 1)
    assert all(int(mask, 16) & interrupt for mask in masks)


def test_an_idle_pool_sleeps() -> None:
    pool = Pool(2)
    pool.run(counting(np.zeros(64, np.int64)).address, 64, [])
    time.sleep(0.02)
    before = time.process_time()
    time.sleep(0.2)
    assert time.process_time() - before < 0.1


def test_callers_in_different_threads_take_turns() -> None:
    pool = Pool(2)
    counts = [np.zeros(257, np.int64) for _ in range(4)]

    def caller(count: NDArray[np.int64]) -> None:
        kernel = counting(count)
        for _ in range(50):
            pool.run(kernel.address, len(count), [], 16)

    callers = [threading.Thread(target=caller, args=(count,)) for count in counts]
    for thread in callers:
        thread.start()
    for thread in callers:
        thread.join()
    assert all((count == 50).all() for count in counts)


# A parallel run, then a fork, then a run in the child, which has no workers, and in the parent.
FORK = """
import os, sys
import numpy as np
from ling3._native import Pool, w8_matmul
def run():
    y = np.empty((40, 64), np.float32)
    one = np.ones((40, 1), np.float32)
    w8_matmul(pool, np.ones((1, 2, 1, 32, 32), np.int8), np.ones((1, 1, 64), np.float32), np.ones((40, 32), np.int8),
              one, np.zeros(1, np.int32), np.array([0, 40], np.int32), y)
    return bool((y == 32).all())
pool = Pool(3)
assert run()
child = os.fork()
if child == 0:
    good = run()
    del pool
    os._exit(0 if good else 3)
assert os.waitpid(child, 0)[1] == 0
assert run()
print("fine")
"""


@pytest.mark.parametrize(
    "program",
    [
        FORK,
        "from ling3._native import Pool; pool = Pool(4); print('fine')",
        "from ling3._native import Pool\nfor _ in range(200): Pool(3)\nprint('fine')",
    ],
    ids=["fork", "exit with a live pool", "many pools"],
)
def test_a_process_with_pools_ends(program: str) -> None:
    command = [sys.executable, "-W", "ignore", "-c", program]
    result = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert (result.stdout, result.stderr, result.returncode) == ("fine\n", "", 0)


def test_the_best_variant_comes_first_and_scalar_is_always_there() -> None:
    assert _native.variants()[-1] == "scalar"


def _workers() -> list[Path]:
    tasks = Path("/proc/self/task").iterdir()
    return [task for task in tasks if (task / "comm").read_text() == "ling3-pool\n"]


def _worker_status() -> list[str]:
    return [(task / "status").read_text() for task in _workers()]


def _worker_affinities() -> list[set[int]]:
    return [os.sched_getaffinity(int(task.name)) for task in _workers()]
