"""The verb `ling3 inspect`: what a package holds, and whether its bytes are still those that were written."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict
from pathlib import Path
from typing import Any

import orjson

from ling3.linear.formats import K_BLOCK, MAX_K_TILE, round_up
from ling3.model.geometry import Geometry
from ling3.model.layout import CHAT_TEMPLATE, LinearSpec, linear_specs, vector_specs
from ling3.model.package import Package
from ling3.options import OptionParser
from ling3.progress import Progress
from ling3.text import ChatText


def main(argv: list[str]) -> int:
    """Run the verb; the exit code. StartError for wrong options or a broken package."""
    parser = OptionParser(prog="ling3 inspect", description="Show what a .l3r package holds.")
    parser.add_argument("package", type=Path, metavar="PACKAGE")
    parser.add_argument("--verify", action="store_true", help="compare the SHA-256 sum of every tensor")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    options = parser.parse_args(argv)
    package = Package.open(options.package)
    report = describe(package)
    if options.verify:
        report["verified_tensors"] = _verify(package)
    if options.json:
        print(orjson.dumps(report, option=orjson.OPT_INDENT_2).decode())
    else:
        print("\n".join(_lines(report)))
    return 0


def describe(package: Package) -> dict[str, Any]:
    """All that the verb tells, in plain values: what `--json` prints."""
    g = package.geometry
    text = ChatText(package.tokenizer_json, package.chat_template, package.eos_token_ids, g.vocab_size)
    return {
        "package": str(package.file.path),
        "bytes": package.file.path.stat().st_size,
        "tensors": len(package.file.tensors),
        "identity": package.identity,
        "parameters": parameters(g),
        "geometry": asdict(g),
        "families": _families(package),
        "weight_bytes_per_token": weight_bytes_per_token(package),
        "tokenizer": {
            "ids": text.tokenizer.size,
            "bytes": len(package.tokenizer_json),
            "end_of_turn": sorted(package.eos_token_ids),
        },
        "chat_template_bytes": len(package.file.raw(CHAT_TEMPLATE)),
        "generation": package.generation,
        "recipe": package.recipe,
        "source": package.source,
    }


def parameters(g: Geometry) -> int:
    """Weights of the network, without padding (M-3)."""
    vectors = 0
    for vector in vector_specs(g):
        count = 1
        for n in vector.shape:
            count *= n
        vectors += count
    return vectors + sum(_count(spec) for spec in linear_specs(g))


def weight_bytes_per_token(package: Package) -> int:
    """Bytes of weights and scales that one decoded token reads: all linears but the embedding, whose rows are
    looked up (unless it is the head as well), and of expert linears the share that a token meets."""
    g = package.geometry
    total = 0
    for spec in linear_specs(g):
        if spec.family == "embedding" and not g.tied_head:
            continue
        share = (g.experts_per_token, g.experts) if spec.family == "experts" else (1, 1)
        total += _stored_bytes(package, spec, read=True) * share[0] // share[1]
    return total


def _verify(package: Package) -> int:
    infos = package.file.tensors.values()
    progress = Progress("verify", sum(info.end - info.begin for info in infos))
    count = 0
    try:
        for _, size in package.verify():
            progress.advance(size)
            count += 1
    except BaseException:
        progress.break_off()
        raise
    progress.finish()
    return count


def _families(package: Package) -> dict[str, dict[str, Any]]:
    families: dict[str, dict[str, Any]] = {}
    for spec in linear_specs(package.geometry):
        fmt = package.format_of(spec.name)
        entry = families.setdefault(
            spec.family, {"formats": set(), "k_tiles": set(), "linears": 0, "parameters": 0, "bytes": 0}
        )
        entry["formats"].add(fmt)
        if fmt in MAX_K_TILE:
            tiles = package.file.tensors[f"{spec.name}.scale"].shape[1]
            entry["k_tiles"].add(round_up(spec.k, K_BLOCK) // tiles)
        entry["linears"] += 1
        entry["parameters"] += _count(spec)
        entry["bytes"] += _stored_bytes(package, spec)
    for entry in families.values():
        entry["formats"], entry["k_tiles"] = sorted(entry["formats"]), sorted(entry["k_tiles"])
    return families


def _count(spec: LinearSpec) -> int:
    return spec.experts * spec.n * spec.k


def _stored_bytes(package: Package, spec: LinearSpec, read: bool = False) -> int:
    """Bytes of a linear's tensors; with `read` only of those a product on the CPU reads."""
    fmt = package.format_of(spec.name)
    suffixes = (fmt, "scale") if read else (fmt, "scale", "corr", "cert")
    infos = [package.file.tensors.get(f"{spec.name}.{suffix}") for suffix in suffixes]
    return sum(info.end - info.begin for info in infos if info is not None)


def _lines(report: dict[str, Any]) -> Iterable[str]:
    g = report["geometry"]
    mixers, source = g["mixers"], report["source"]
    sparse = len(mixers) - g["dense_layers"]
    yield _row("package", report["package"])
    yield _row("size", f"{_bytes(report['bytes'])} in {report['tensors']} tensors, identity {report['identity']}")
    yield _row("parameters", f"{report['parameters']:,}")
    yield _row("layers", f"{len(mixers)}: {mixers.count('kda')} KDA, {mixers.count('mla')} MLA")
    yield _row("", f"{g['dense_layers']} with a dense MLP of width {g['dense_width']}, {sparse} with experts")
    if sparse:
        yield _row(
            "experts",
            f"{g['experts']} of width {g['expert_width']}, {g['experts_per_token']} a token out of the best "
            f"{g['groups_kept']} of {g['groups']} groups; shared width {g['shared_width']}",
        )
    yield _row("widths", f"hidden {g['hidden_size']}, vocabulary {g['vocab_size']}, {g['heads']} heads")
    yield _row("KDA", f"head width {g['kda_head_dim']}, {g['conv_taps']} taps, lower bound {g['gate_lower_bound']}")
    yield _row(
        "MLA",
        f"query rank {g['q_lora_rank'] or 'full'}, latent {g['kv_lora_rank']}, head widths "
        f"{g['qk_nope_head_dim']} + {g['qk_rope_head_dim']} and {g['v_head_dim']}",
    )
    yield _row("context", f"{g['native_context']} positions")
    yield _row("head", "tied to the embedding" if g["tied_head"] else "of its own")
    tokenizer = report["tokenizer"]
    ends = ", ".join(map(str, tokenizer["end_of_turn"]))
    yield _row("tokenizer", f"{tokenizer['ids']} ids, {_bytes(tokenizer['bytes'])}, end of turn {ends}")
    yield _row("generation", _pairs(report["generation"]))
    recipe = report["recipe"]
    yield _row("recipe", f"weights {recipe.get('weights')}, K tile {recipe.get('tile')}")
    yield _row("source", f"{source.get('folder')}, {source.get('kind')}, {source.get('bytes')} bytes")
    yield _row("", f"made {source.get('created')} by ling3 {source.get('ling3')}")
    yield _row("a token", f"reads {_bytes(report['weight_bytes_per_token'])} of weights")
    yield ""
    yield f"{'family':<12}{'format':<8}{'K tile':<16}{'linears':>8}{'parameters':>16}{'size':>12}"
    for name, family in report["families"].items():
        tiles = ", ".join(map(str, family["k_tiles"])) or "-"
        yield (
            f"{name:<12}{', '.join(family['formats']):<8}{tiles:<16}{family['linears']:>8}"
            f"{family['parameters']:>16,}{_bytes(family['bytes']):>12}"
        )
    if "verified_tensors" in report:
        yield ""
        yield f"verified: the SHA-256 sums of all {report['verified_tensors']} tensors are right"


def _row(label: str, text: str) -> str:
    return f"{label:<12}{text}"


def _pairs(values: dict[str, Any]) -> str:
    return ", ".join(f"{key} {value}" for key, value in values.items()) or "none"


def _bytes(count: int) -> str:
    for unit, size in (("GB", 10**9), ("MB", 10**6), ("kB", 10**3)):
        if count >= size:
            return f"{count / size:.2f} {unit}"
    return f"{count} B"
