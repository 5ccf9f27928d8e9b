"""The verb `ling3 convert`."""

from __future__ import annotations

from pathlib import Path

from ling3.convert.conversion import convert
from ling3.convert.recipe import TILES, WEIGHTS
from ling3.options import OptionParser


def main(argv: list[str]) -> int:
    """Run the verb; the exit code. StartError for wrong options or input."""
    parser = OptionParser(
        prog="ling3 convert",
        description="Make a .l3r package of a checkpoint folder in the public layout (BF16, FP16, FP32, FP8 or INT4).",
    )
    parser.add_argument("source", type=Path, metavar="SOURCE", help="folder with config.json and *.safetensors")
    parser.add_argument("out", type=Path, metavar="OUT.l3r", help="package to write")
    parser.add_argument("--weights", choices=WEIGHTS, default="w4", help="format of the weights (default: w4)")
    parser.add_argument(
        "--tile",
        choices=("full", *map(str, TILES)),
        default="full",
        help="longest stretch of inputs that shares one scale (default: full)",
    )
    parser.add_argument(
        "--recipe", type=Path, metavar="FILE", help='JSON {"family": "format"} that overrides --weights'
    )
    options = parser.parse_args(argv)
    tile = None if options.tile == "full" else int(options.tile)
    convert(options.source, options.out, weights=options.weights, tile=tile, recipe=options.recipe)
    print(f"{options.out}: {options.out.stat().st_size / 1e9:.3f} GB")
    return 0
