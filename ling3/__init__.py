"""ling3: Ling-3.0-tiny as a private chat server for RK3588 boards and any Linux CPU."""

import os
from pathlib import Path

__version__ = "0.1.0"

# numba asks LLVM for the CPU's name, and LLVM knows the RK3588's big cores only when told; this must be in the
# environment before numba is first imported, and importing this package always comes first.
_compatible = Path("/proc/device-tree/compatible")
if _compatible.is_file() and b"rockchip,rk3588" in _compatible.read_bytes():
    os.environ.setdefault("NUMBA_CPU_NAME", "cortex-a76")
