"""Where numba keeps compiled kernels, so that only the first start compiles them."""

from __future__ import annotations

import hashlib
import os
import stat
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numba


def kernel_folder(package: Path) -> Path | None:
    """A folder for the kernels of a package of sources, made if need be; None if no place can be written.

    Its name changes with the source of any kernel: numba itself looks at the file of the outermost function alone,
    and would go on using old code of what that calls elsewhere. A service often has neither a home nor rights on the
    sources, and numba refuses to be imported there; it gets a folder among the temporary files.
    """
    digest = hashlib.sha256(numba.__version__.encode())
    for source in sorted([*package.glob("linear/*.py"), *package.glob("model/*.py")]):
        digest.update(source.read_bytes())
    for owner in _owners():
        folder = owner / f"kernels-{digest.hexdigest()[:16]}"
        try:
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        except OSError:
            continue
        if os.access(folder, os.W_OK | os.X_OK) and _is_private(owner):
            return folder
    return None


def _owners() -> Iterator[Path]:
    yield Path(os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")) / "ling3"
    try:
        temporary = Path(tempfile.gettempdir()) / f"ling3-{os.getuid()}"
        temporary.mkdir(mode=0o700, exist_ok=True)
    except OSError:
        return
    yield temporary


def _is_private(folder: Path) -> bool:
    """Whether only this user can have put code there: anybody may make a folder of any name among temporary files."""
    info = folder.lstat()
    others = stat.S_IWGRP | stat.S_IWOTH
    return stat.S_ISDIR(info.st_mode) and info.st_uid == os.getuid() and not info.st_mode & others


def _choose() -> bool:
    """Tell numba the folder, unless the user has named one; whether kernels can be kept."""
    config: Any = numba.config
    if not config.CACHE_DIR:
        folder = kernel_folder(Path(__file__).parent.parent)
        if folder is None:
            return False
        config.CACHE_DIR = str(folder)
    return True


KERNELS_ARE_KEPT = _choose()
"""For `cache=` of everything that numba compiles; decided before the first of them is declared."""
