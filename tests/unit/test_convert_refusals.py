"""Wrong or incomplete checkpoints are refused before anything is written, naming file and tensor."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from checkpoints import Tensors, change, checkpoint, edit_json

from ling3.convert import convert
from ling3.errors import PackageError

Q_PROJ = "model.layers.0.attention.q_proj.weight"
EXPERT = "model.layers.1.mlp.experts.3.up_proj.weight"


def refused(source: Path, message: str) -> None:
    """Conversion fails with a message and leaves no file behind."""
    out = source.parent / "out.l3r"
    with pytest.raises(PackageError, match=message):
        convert(source, out)
    assert not list(source.parent.glob("out.l3r*"))


def edited(folder: Path, edit: Callable[[Tensors], None], form: str = "bf16") -> Path:
    return change(checkpoint(folder / "source", form), edit)


@pytest.mark.parametrize(
    ("file", "message"),
    [
        ("config.json", r"config\.json: No such file"),
        ("tokenizer.json", r"tokenizer\.json: No such file"),
        ("model.safetensors", r"neither model\.safetensors nor model\.safetensors\.index\.json"),
    ],
)
def test_a_missing_file(tmp_path: Path, file: str, message: str) -> None:
    source = checkpoint(tmp_path / "source")
    (source / file).unlink()
    refused(source, message)


def test_a_missing_folder(tmp_path: Path) -> None:
    refused(tmp_path / "nowhere", r"nowhere/config\.json: No such file")


def test_a_config_that_is_no_json(tmp_path: Path) -> None:
    source = checkpoint(tmp_path / "source")
    (source / "config.json").write_text("{")
    refused(source, r"config\.json: not JSON")


def test_a_config_of_another_network(tmp_path: Path) -> None:
    source = checkpoint(tmp_path / "source")
    edit_json(source / "config.json", num_nextn_predict_layers=1)
    refused(source, r"config\.json: config field num_nextn_predict_layers is 1")


def test_a_missing_shard(tmp_path: Path) -> None:
    source = checkpoint(tmp_path / "source", shard_bytes=200_000)
    next(source.glob("model-00002-of-*")).unlink()
    refused(source, r"model-00002-of-\d+\.safetensors: No such file")


def test_a_truncated_shard(tmp_path: Path) -> None:
    source = checkpoint(tmp_path / "source", shard_bytes=200_000)
    shard = next(source.glob("model-00002-of-*"))
    shard.write_bytes(shard.read_bytes()[:-1])
    refused(source, r"model-00002-of-\d+\.safetensors: truncated: tensor model\.layers\.")


def test_an_index_that_names_a_tensor_its_shard_lacks(tmp_path: Path) -> None:
    source = checkpoint(tmp_path / "source", shard_bytes=200_000)
    index = source / "model.safetensors.index.json"
    places = json.loads(index.read_text())["weight_map"]
    edit_json(index, weight_map=places | {"model.norm.weight": places[Q_PROJ]})
    refused(source, r"model-00001-of-\d+\.safetensors: tensor model\.norm\.weight is missing")


def test_an_index_that_points_out_of_its_folder(tmp_path: Path) -> None:
    source = checkpoint(tmp_path / "source", shard_bytes=200_000)
    edit_json(source / "model.safetensors.index.json", weight_map={"model.norm.weight": "../model.safetensors"})
    refused(source, r"tensor model\.norm\.weight lies in '\.\./model\.safetensors'")


@pytest.mark.parametrize(
    "name", [Q_PROJ, EXPERT, "model.norm.weight", "lm_head.weight", "model.layers.2.mlp.gate.weight"]
)
def test_a_missing_tensor(tmp_path: Path, name: str) -> None:
    refused(edited(tmp_path, lambda tensors: tensors.__delitem__(name)), f"tensor {name} is missing")


def test_a_wrong_shape(tmp_path: Path) -> None:
    def turn(tensors: Tensors) -> None:
        dtype, array = tensors[EXPERT]
        tensors[EXPERT] = (dtype, np.ascontiguousarray(array.T))

    refused(edited(tmp_path, turn), rf"tensor {EXPERT} has the shape \[64, 32\], expected \[32, 64\]")


def test_a_wrong_type(tmp_path: Path) -> None:
    def retype(tensors: Tensors) -> None:
        tensors[Q_PROJ] = ("I32", np.zeros((64, 64), np.int32))

    refused(edited(tmp_path, retype), f"tensor {Q_PROJ} is I32, expected F32 or F16 or BF16")


def test_a_weight_the_network_does_not_have(tmp_path: Path) -> None:
    def add(tensors: Tensors) -> None:
        tensors["model.layers.4.eh_proj.weight"] = ("F32", np.zeros((2, 2), np.float32))
        tensors["model.layers.4.hnorm.weight"] = ("F32", np.zeros(2, np.float32))

    refused(edited(tmp_path, add), r"tensor model\.layers\.4\.eh_proj\.weight is not part of this network .*1 others")


def test_two_spellings_of_one_tensor(tmp_path: Path) -> None:
    def repeat(tensors: Tensors) -> None:
        tensors["model.embed_tokens.weight"] = tensors["model.word_embeddings.weight"]

    refused(edited(tmp_path, repeat), r"tensor model\.\w+\.weight is there twice, also as model\.\w+\.weight")


def test_a_tied_head_that_differs(tmp_path: Path) -> None:
    source = checkpoint(tmp_path / "source")
    edit_json(source / "config.json", tie_word_embeddings=True)
    refused(source, r"tensor lm_head\.weight differs from the embedding")


@pytest.mark.parametrize("name", [Q_PROJ, "model.norm.weight"])
@pytest.mark.parametrize("bits", [0x7F80, 0xFF80, 0x7FC0], ids=["inf", "-inf", "nan"])
def test_a_weight_that_is_not_finite(tmp_path: Path, name: str, bits: int) -> None:
    def spoil(tensors: Tensors) -> None:
        tensors[name][1].reshape(-1)[5] = bits

    refused(edited(tmp_path, spoil), f"tensor {name} holds a weight that is not finite")


# Quantised sources


def test_fp8_without_its_scale(tmp_path: Path) -> None:
    scale = f"{EXPERT}_scale_inv"
    refused(edited(tmp_path, lambda tensors: tensors.__delitem__(scale), "fp8"), f"tensor {scale} is missing")


def test_a_scale_without_fp8(tmp_path: Path) -> None:
    def retype(tensors: Tensors) -> None:
        tensors[EXPERT] = ("BF16", np.zeros((32, 64), np.uint16))

    refused(edited(tmp_path, retype, "fp8"), f"tensor {EXPERT} is BF16, expected F8_E4M3")


def test_fp8_scales_of_other_blocks(tmp_path: Path) -> None:
    def regroup(tensors: Tensors) -> None:
        tensors[f"{EXPERT}_scale_inv"] = ("F8_E8M0", np.full((2, 2), 127, np.uint8))

    message = rf"tensor {EXPERT}_scale_inv has the shape \[2, 2\], expected \[1, 1\]"
    refused(edited(tmp_path, regroup, "fp8"), message)


def test_an_fp8_code_that_is_no_number(tmp_path: Path) -> None:
    def spoil(tensors: Tensors) -> None:
        tensors[EXPERT][1][1, 1] = 0x7F

    refused(edited(tmp_path, spoil, "fp8"), f"tensor {EXPERT} holds a weight that is not finite")


@pytest.mark.parametrize("part", ["scale", "shape"])
def test_int4_without_one_of_its_parts(tmp_path: Path, part: str) -> None:
    name = f"{EXPERT}_{part}"
    refused(edited(tmp_path, lambda tensors: tensors.__delitem__(name), "int4"), f"tensor {name} is missing")


def test_int4_of_another_group_size(tmp_path: Path) -> None:
    def regroup(tensors: Tensors) -> None:
        tensors[f"{EXPERT}_scale"] = ("BF16", np.zeros((32, 4), np.uint16))

    message = rf"tensor {EXPERT}_scale has the shape \[32, 4\], expected \[32, 2\]"
    refused(edited(tmp_path, regroup, "int4"), message)


def test_int4_that_says_another_shape(tmp_path: Path) -> None:
    def reshape(tensors: Tensors) -> None:
        tensors[f"{EXPERT}_shape"] = ("I64", np.array([64, 32], np.int64))

    message = rf"tensor {EXPERT}_shape is \[64, 32\], expected \[32, 64\]"
    refused(edited(tmp_path, reshape, "int4"), message)
