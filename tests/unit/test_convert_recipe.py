"""Which format each family gets."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from random_checkpoint import TINY

from ling3.convert.recipe import make_recipe
from ling3.errors import StartError
from ling3.model.geometry import Geometry

G = Geometry.from_config(TINY)


@pytest.mark.parametrize(
    ("weights", "embedding", "head", "carriers", "kv_b", "deciders"),
    [
        ("w4", "w8", "w8", "w4", "bf16", "f32"),
        ("w8", "w8", "w8", "w8", "bf16", "f32"),
        ("bf16", "bf16", "bf16", "bf16", "bf16", "f32"),
        ("f32", "f32", "f32", "f32", "f32", "f32"),
    ],
)
def test_formats_by_weights(weights: str, embedding: str, head: str, carriers: str, kv_b: str, deciders: str) -> None:
    assert make_recipe(G, weights).families == {
        "embedding": embedding,
        "head": head,
        "attention": carriers,
        "dense": carriers,
        "shared": carriers,
        "experts": carriers,
        "kv_b": kv_b,
        "gate": deciders,
        "router": deciders,
    }


def test_a_file_overrides_by_family(tmp_path: Path) -> None:
    path = tmp_path / "recipe.json"
    path.write_text(json.dumps({"experts": "w8", "router": "bf16"}))
    families = make_recipe(G, "w4", overrides=path).families
    assert (families["experts"], families["router"], families["dense"]) == ("w8", "bf16", "w4")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ({"expert": "w8"}, r"recipe\.json: family 'expert' is unknown; known are embedding, head"),
        ({"experts": "w2"}, r"recipe\.json: format 'w2' of family experts is not possible; possible are w4, w8"),
        ({"router": "w4"}, r"format 'w4' of family router is not possible; possible are bf16, f32"),
        ({"embedding": ["w8"]}, r"format \['w8'\] of family embedding"),
        (["w8"], r"recipe\.json: must be a JSON object"),
    ],
)
def test_an_unusable_file_is_refused_by_name(tmp_path: Path, content: object, message: str) -> None:
    path = tmp_path / "recipe.json"
    path.write_text(json.dumps(content))
    with pytest.raises(StartError, match=message):
        make_recipe(G, "w4", overrides=path)


def test_a_missing_file_is_refused_by_name(tmp_path: Path) -> None:
    with pytest.raises(StartError, match=r"none\.json: No such file"):
        make_recipe(G, "w4", overrides=tmp_path / "none.json")


def test_unknown_weights_and_tiles_are_refused() -> None:
    with pytest.raises(StartError, match="--weights is 'w3'; known are w4, w8, bf16, f32"):
        make_recipe(G, "w3")
    with pytest.raises(StartError, match="--tile is 100; known are full, 512, 256"):
        make_recipe(G, "w4", tile=100)


def test_families_the_model_lacks_are_left_out() -> None:
    g = Geometry.from_config(TINY | {"first_k_dense_replace": 4, "tie_word_embeddings": True})
    assert set(make_recipe(g, "w4").families) == {"embedding", "attention", "gate", "kv_b", "dense"}


def test_the_stored_form() -> None:
    assert make_recipe(G, "f32", tile=256).as_json()["tile"] == 256
    assert make_recipe(G, "f32").as_json() == {
        "weights": "f32",
        "tile": "full",
        "families": dict.fromkeys(
            ["embedding", "head", "attention", "kv_b", "gate", "router", "dense", "shared", "experts"], "f32"
        ),
    }
