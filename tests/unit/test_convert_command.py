"""The verb `ling3 convert`."""

from __future__ import annotations

from pathlib import Path

import pytest
from checkpoints import checkpoint

from ling3.convert import main
from ling3.errors import StartError
from ling3.model.package import Package


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A checkpoint without a chat template."""
    folder = checkpoint(tmp_path_factory.mktemp("command") / "source", num_hidden_layers=1)
    (folder / "chat_template.jinja").unlink()
    return folder


def test_it_writes_a_package_and_says_so(source: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "out.l3r"
    assert main([str(source), str(out)]) == 0
    assert Package.open(out).recipe["weights"] == "w4"
    printed = capsys.readouterr()
    assert printed.out.startswith(f"{out}: ")
    assert "notice: no chat template in the checkpoint" in printed.err
    assert "convert: " in printed.err


def test_options_reach_the_recipe(source: Path, tmp_path: Path) -> None:
    recipe, out = tmp_path / "recipe.json", tmp_path / "out.l3r"
    recipe.write_text('{"head": "bf16"}')
    main([str(source), str(out), "--weights", "w8", "--tile", "256", "--recipe", str(recipe)])
    stored = Package.open(out).recipe
    assert (stored["weights"], stored["tile"], stored["families"]["head"]) == ("w8", 256, "bf16")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "the following arguments are required: SOURCE, OUT.l3r"),
        (["a", "b", "--weights", "w2"], "argument --weights: invalid choice: 'w2'"),
        (["a", "b", "--tile", "100"], "argument --tile: invalid choice: '100'"),
        (["a", "b", "--fast"], "unrecognized arguments: --fast"),
    ],
)
def test_wrong_options_are_one_error(arguments: list[str], message: str) -> None:
    with pytest.raises(StartError, match=message) as error:
        main(arguments)
    assert str(error.value).endswith("(see ling3 convert --help)")


def test_help_ends_well(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as end:
        main(["--help"])
    assert end.value.code == 0
    assert "--recipe FILE" in capsys.readouterr().out


def test_an_output_that_is_no_package_name_is_refused_and_left_alone(source: Path) -> None:
    before = {path.name: path.read_bytes() for path in source.iterdir()}
    with pytest.raises(StartError, match=r"model\.safetensors: a package's name ends in \.l3r"):
        main([str(source), str(source / "model.safetensors")])
    assert {path.name: path.read_bytes() for path in source.iterdir()} == before
