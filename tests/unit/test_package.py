"""Opening and verifying packages: the whole file is described, a broken one is refused by what is wrong with it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import orjson
import pytest
from checkpoints import CHAT_TEMPLATE, checkpoint, package
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ling3.errors import PackageError
from ling3.model.package import Package

A_LOG, ROUTER, GATE_UP = "layers.0.kda.a_log", "layers.1.moe.router", "layers.1.moe.gate_up"
Header = dict[str, Any]


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Package:
    return package(checkpoint(tmp_path_factory.mktemp("package") / "source", num_hidden_layers=4))


@pytest.fixture(scope="module")
def scratch(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("broken") / "broken.l3r"


def rewritten(whole: Package, out: Path, edit: Callable[[Header], None]) -> Path:
    """A copy with another header and the same data."""
    data = whole.file.path.read_bytes()
    length = int.from_bytes(data[:8], "little")
    header = orjson.loads(data[8 : 8 + length])
    edit(header)
    text = orjson.dumps(header)
    out.write_bytes(len(text).to_bytes(8, "little") + text + data[8 + length :])
    return out


def refused(path: Path, message: str) -> None:
    with pytest.raises(PackageError, match=message) as error:
        Package.open(path)
    assert str(path) in str(error.value)


def test_an_open_package_knows_its_model(whole: Package) -> None:
    assert whole.geometry.layers == 4
    assert whole.recipe["families"]["experts"] == "w4"
    assert whole.eos_token_ids == {260}
    assert whole.chat_template == CHAT_TEMPLATE
    assert whole.tokenizer_json.startswith(b"{")


def test_linears_come_with_format_sizes_and_tile(whole: Package) -> None:
    linear = whole.linear(GATE_UP)
    assert (linear.format, linear.n, linear.k, linear.tile) == ("w4", 64, 64, 64)
    assert linear.weights.shape == (8, 1, 2, 64, 16)
    assert linear.scale is not None
    assert linear.scale.shape == (8, 1, 64)


def test_two_packages_of_one_model_have_different_identities(whole: Package, tmp_path: Path) -> None:
    other = package(checkpoint(tmp_path / "source"), weights="w8")
    assert whole.identity != other.identity
    assert whole.identity == Package.open(whole.file.path).identity


# Broken files


def test_a_missing_file(tmp_path: Path) -> None:
    refused(tmp_path / "none.l3r", "No such file")


def test_a_folder(tmp_path: Path) -> None:
    refused(tmp_path, "Is a directory")


@pytest.mark.parametrize("content", [b"", b"GGUF", b"GGUF" + bytes(100), b"\x00" * 64, b"\xff" * 64])
def test_another_kind_of_file(scratch: Path, content: bytes) -> None:
    scratch.write_bytes(content)
    refused(scratch, "not a safetensors file|too short for a safetensors file")


@pytest.mark.parametrize(
    ("kept", "message"),
    [(0.0001, "truncated in its header"), (0.5, "truncated: tensor "), (0.999, "truncated: tensor ")],
)
def test_a_truncated_file(whole: Package, scratch: Path, kept: float, message: str) -> None:
    data = whole.file.path.read_bytes()
    scratch.write_bytes(data[: int(len(data) * kept)])
    refused(scratch, message)


@pytest.mark.parametrize("version", [None, "l3r/2", "gguf"])
def test_another_version(whole: Package, scratch: Path, version: str | None) -> None:
    def edit(header: Header) -> None:
        header["__metadata__"].pop("format")
        if version:
            header["__metadata__"]["format"] = version

    refused(rewritten(whole, scratch, edit), f"its format is {version!r}, this version reads 'l3r/1'")


@pytest.mark.parametrize("key", ["config", "recipe", "source"])
def test_missing_or_broken_metadata(whole: Package, scratch: Path, key: str) -> None:
    refused(rewritten(whole, scratch, lambda header: header["__metadata__"].pop(key)), f"{key} is not JSON")
    refused(rewritten(whole, scratch, lambda header: header["__metadata__"].update({key: "[]"})), f"{key} must be a")


def test_a_config_of_another_network(whole: Package, scratch: Path) -> None:
    config = orjson.dumps(whole.config | {"hidden_act": "gelu"}).decode()
    path = rewritten(whole, scratch, lambda header: header["__metadata__"].update(config=config))
    refused(path, "config field hidden_act is 'gelu'")


@pytest.mark.parametrize(
    "name", [A_LOG, "norm", "embedding.w8", "embedding.scale", f"{GATE_UP}.cert", f"{GATE_UP}.corr", "tokenizer.json"]
)
def test_a_missing_tensor(whole: Package, scratch: Path, name: str) -> None:
    path = rewritten(whole, scratch, lambda header: header.update({"~gone": header.pop(name)}))
    refused(path, f"tensor {name.removesuffix('.w8')} is missing")


@pytest.mark.parametrize(
    ("name", "shape"),
    [(A_LOG, [1, 2]), ("norm", [32, 2]), (f"{ROUTER}.f32", [1, 64, 8]), (f"{GATE_UP}.w4", [8, 2, 1, 64, 16])],
)
def test_a_wrong_shape(whole: Package, scratch: Path, name: str, shape: list[int]) -> None:
    path = rewritten(whole, scratch, lambda header: header[name].update(shape=shape))
    refused(path, rf"tensor {name} is \w+ {str(shape)[:-1]}".replace("[", r"\["))


@pytest.mark.parametrize(
    ("name", "dtype"), [(A_LOG, "I32"), ("head.w8", "U8"), (f"{GATE_UP}.scale", "I32"), (f"{GATE_UP}.cert", "F32")]
)
def test_a_wrong_type(whole: Package, scratch: Path, name: str, dtype: str) -> None:
    path = rewritten(whole, scratch, lambda header: header[name].update(dtype=dtype))
    refused(path, f"tensor {name} is {dtype}")


def test_a_shape_that_does_not_fit_its_bytes(whole: Package, scratch: Path) -> None:
    path = rewritten(whole, scratch, lambda header: header[A_LOG].update(shape=[3]))
    refused(path, rf"tensor {A_LOG}, shape \[3\], cannot be 8 bytes")


def test_tiles_that_do_not_divide_k(whole: Package, scratch: Path) -> None:
    path = rewritten(whole, scratch, lambda header: header[f"{GATE_UP}.scale"].update(shape=[8, 4, 16]))
    refused(path, f"tensor {GATE_UP}.scale cuts K = 64 into 4 wrong tiles")


def test_weights_that_could_overflow_the_npu(whole: Package, scratch: Path) -> None:
    data = bytearray(whole.file.path.read_bytes())
    begin = whole.file.tensors[f"{GATE_UP}.cert"].begin
    data[begin : begin + 4] = (32768).to_bytes(4, "little")
    scratch.write_bytes(data)
    refused(scratch, f"tensor {GATE_UP}.cert exceeds the int16 bounds")


@pytest.mark.parametrize("name", [A_LOG, f"{GATE_UP}.w4", "tokenizer.json"])
def test_one_flipped_bit_is_found_by_verifying(whole: Package, scratch: Path, name: str) -> None:
    data = bytearray(whole.file.path.read_bytes())
    data[whole.file.tensors[name].end - 1] ^= 1
    scratch.write_bytes(data)
    with pytest.raises(PackageError, match=f"tensor {name} is damaged"):
        list(Package.open(scratch).verify())


@given(st.data())
@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_a_damaged_header_is_refused_or_harmless(whole: Package, scratch: Path, data: st.DataObject) -> None:
    original = bytearray(whole.file.path.read_bytes())
    length = int.from_bytes(original[:8], "little")
    for _ in range(data.draw(st.integers(1, 4))):
        original[data.draw(st.integers(0, 8 + length - 1))] = data.draw(st.integers(0, 255))
    scratch.write_bytes(original)
    try:
        Package.open(scratch)
    except PackageError as error:
        assert str(scratch) in str(error)
