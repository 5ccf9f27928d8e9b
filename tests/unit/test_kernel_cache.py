"""Where compiled kernels are kept when a user has little to call his own."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

import pytest

from ling3.linear.kernel_cache import kernel_folder

NOWHERE = "/dev/null/home"  # cannot be made, not even by root


@pytest.fixture
def sources(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A package of two sources; the cache folder is `cache`, the folder of temporary files `tmp`."""
    package = tmp_path / "package"
    for folder in ("linear", "model"):
        (package / folder).mkdir(parents=True)
        (package / folder / "kernel.py").write_text("a = 1")
    (tmp_path / "tmp").mkdir()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "tmp"))
    return package


def folder_of(package: Path) -> Path:
    folder = kernel_folder(package)
    assert folder is not None and folder.is_dir()
    return folder


def test_kernels_are_kept_in_the_users_cache_folder(sources: Path, tmp_path: Path) -> None:
    assert folder_of(sources).parent == tmp_path / "cache/ling3"


def test_the_cache_folder_is_below_home_unless_said_otherwise(
    sources: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    assert folder_of(sources).parent == tmp_path / "home/.cache/ling3"


def test_the_same_sources_have_the_same_folder(sources: Path) -> None:
    assert folder_of(sources) == folder_of(sources)


@pytest.mark.parametrize("part", ["linear", "model"])
def test_a_changed_source_has_another_folder(sources: Path, part: str) -> None:
    before = folder_of(sources)
    (sources / part / "kernel.py").write_text("a = 2")
    assert folder_of(sources) != before


@pytest.fixture
def homeless(sources: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The sources, for a user without a home, as services have none."""
    monkeypatch.setenv("XDG_CACHE_HOME", NOWHERE)
    return sources


def test_a_user_without_a_home_gets_a_private_folder_among_the_temporary_files(homeless: Path, tmp_path: Path) -> None:
    owner = folder_of(homeless).parent
    assert owner == tmp_path / f"tmp/ling3-{os.getuid()}"
    assert owner.stat().st_mode & 0o777 == 0o700


@pytest.mark.parametrize("mode", [0o770, 0o777, 0o702])
def test_a_folder_that_others_can_write_is_not_trusted(homeless: Path, tmp_path: Path, mode: int) -> None:
    owner = tmp_path / f"tmp/ling3-{os.getuid()}"
    owner.mkdir()
    owner.chmod(mode)
    assert kernel_folder(homeless) is None


def test_a_link_is_not_trusted(homeless: Path, tmp_path: Path) -> None:
    (tmp_path / f"tmp/ling3-{os.getuid()}").symlink_to(tmp_path)
    assert kernel_folder(homeless) is None


def test_a_folder_of_somebody_else_is_not_trusted(
    homeless: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "getuid", lambda: 4_000_000)
    assert kernel_folder(homeless) is None


def test_without_any_place_kernels_are_not_kept(homeless: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", NOWHERE)
    assert kernel_folder(homeless) is None
