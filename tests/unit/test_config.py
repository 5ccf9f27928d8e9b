"""The command line's options (E-8 to E-15, D-1, D-2)."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ling3.config import (
    OPTIONS,
    VERBS,
    Config,
    Immediate,
    estimate_mib,
    find_model,
    list_contexts,
    parse_options,
    usage,
)
from ling3.errors import StartError

VERSION = "ling3 1.2.3"
USAGE, CONTEXTS = Immediate(usage()), Immediate(list_contexts())


@pytest.mark.parametrize(
    ("arguments", "config"),
    [
        ("", Config()),
        ("--model m.l3r", Config(model=Path("m.l3r"))),
        ("--host 0.0.0.0", Config(host="0.0.0.0")),
        ("--host nonsense", Config(host="nonsense")),  # looked at when it is bound
        ("--port 1", Config(port=1)),
        ("--port 65535", Config(port=65535)),
        ("--log out.jsonl", Config(log=Path("out.jsonl"))),
        ("--context 32K", Config(context=32768)),
        ("--backend cpu", Config(backend="cpu")),
        ("--mla-backend npu", Config(mla_backend="npu")),
        ("--threads 64", Config(threads=64)),
        ("--thinking on", Config(thinking=True)),
        ("--thinking off", Config(thinking=False)),
        ("--session-cache-mib 0", Config(session_cache_mib=0)),
        ("--session-cache-mib 17592186044415", Config(session_cache_mib=17592186044415)),
        ("--no-console", Config(console=False)),
        ("--check", Config(check=True)),
        ("--allow-experimental-context", Config()),
        ("--port 1 --port 2", Config(port=2)),
        ("--context 8K --no-console --context 4K", Config(console=False)),
        ("--model --help", Config(model=Path("--help"))),
    ],
)
def test_options_set_their_field(arguments: str, config: Config) -> None:
    assert parse_options(arguments.split(), VERSION) == config


def test_the_defaults_are_those_of_the_documentation() -> None:  # E-8
    config = Config()
    assert (config.host, config.port, config.log, config.context) == ("127.0.0.1", 9091, Path("metrics.jsonl"), 4096)
    assert (config.mla_backend, config.session_cache_mib, config.console, config.check) == ("auto", 256, True, False)
    assert (config.model, config.backend, config.thinking) == (None, "auto", False)


@pytest.mark.parametrize(
    ("label", "context"),
    [
        ("4K", 4096), ("8K", 8192), ("16K", 16384), ("32K", 32768), ("64K", 65536), ("128K", 131072), ("256K", 262144),
        ("4k", 4096), ("256k", 262144), ("4096", 4096), ("131072", 131072),
    ],
)  # fmt: skip
def test_contexts_have_labels(label: str, context: int) -> None:
    assert parse_options(["--context", label], VERSION) == Config(context=context)


LABELS = "must be one of 4K, 8K, 16K, 32K, 64K, 128K, 256K"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("--bogus", "unknown option --bogus; ling3 --help lists them"),
        ("--bogus 1", "unknown option --bogus; ling3 --help lists them"),
        ("--port=1", "unknown option --port=1; ling3 --help lists them"),
        ("--no-console --bogus", "unknown option --bogus; ling3 --help lists them"),
        ("model.l3r", "unknown command model.l3r; ling3 --help lists them"),
        ("--Port 1", "unknown option --Port; ling3 --help lists them"),
        ("--port", "option --port needs a value (N)"),
        ("--no-console --model", "option --model needs a value (FILE)"),
        ("--port 0", "option --port must be an integer from 1 to 65535; got '0'"),
        ("--port 65536", "option --port must be an integer from 1 to 65535; got '65536'"),
        ("--port -1", "option --port must be an integer from 1 to 65535; got '-1'"),
        ("--port +80", "option --port must be an integer from 1 to 65535; got '+80'"),
        ("--port 80.0", "option --port must be an integer from 1 to 65535; got '80.0'"),
        ("--port 8_0", "option --port must be an integer from 1 to 65535; got '8_0'"),
        ("--port ８０", "option --port must be an integer from 1 to 65535; got '８０'"),
        ("--port http", "option --port must be an integer from 1 to 65535; got 'http'"),
        ("--port --help", "option --port must be an integer from 1 to 65535; got '--help'"),
        ("--context 5K", f"option --context {LABELS}; got '5K'"),
        ("--context 4KB", f"option --context {LABELS}; got '4KB'"),
        ("--context 0", f"option --context {LABELS}; got '0'"),
        ("--backend gpu", "option --backend must be one of auto, cpu, npu; got 'gpu'"),
        ("--mla-backend CPU", "option --mla-backend must be one of auto, cpu, npu; got 'CPU'"),
        ("--threads 0", "option --threads must be an integer from 1 to 64; got '0'"),
        ("--thinking yes", "option --thinking must be one of on, off; got 'yes'"),
        ("--session-cache-mib -1", "option --session-cache-mib must be an integer from 0 to 17592186044415; got '-1'"),
        (
            "--session-cache-mib 17592186044416",
            "option --session-cache-mib must be an integer from 0 to 17592186044415; got '17592186044416'",
        ),
    ],
)
def test_a_mistake_names_its_option(arguments: str, message: str) -> None:  # E-10
    with pytest.raises(StartError) as caught:
        parse_options(arguments.split(), VERSION)
    assert str(caught.value) == message


def test_a_number_without_end_is_a_mistake_like_any_other() -> None:
    with pytest.raises(StartError, match="^option --port "):
        parse_options(["--port", "9" * 5000], VERSION)


def test_an_empty_value_is_a_value() -> None:
    with pytest.raises(StartError, match="^option --port must be an integer from 1 to 65535; got ''$"):
        parse_options(["--port", ""], VERSION)


@pytest.mark.parametrize(
    ("arguments", "answer"),
    [
        ("--help", USAGE),
        ("-h", USAGE),
        ("--version", Immediate(VERSION)),
        ("--list-contexts", CONTEXTS),
        ("--help --bogus", USAGE),
        ("--list-contexts --port 0", CONTEXTS),
        ("--port 1 --check --help", USAGE),
        ("--list-contexts --help", CONTEXTS),
        ("--help --list-contexts", USAGE),
    ],
)
def test_questions_win_over_what_follows(arguments: str, answer: Immediate) -> None:  # E-9
    assert parse_options(arguments.split(), VERSION) == answer


@pytest.mark.parametrize("arguments", ["--port 0 --help", "--bogus --list-contexts", "--context 3K --version"])
def test_questions_do_not_win_over_a_mistake_before_them(arguments: str) -> None:  # E-9
    with pytest.raises(StartError):
        parse_options(arguments.split(), VERSION)


words = st.sampled_from([*OPTIONS, "--help", "1", "4K", "cpu", "on", "", "x"]) | st.text(max_size=5)


@given(st.lists(words, max_size=8))
def test_any_arguments_are_understood_or_refused(arguments: list[str]) -> None:
    try:
        parse_options(arguments, VERSION)
    except StartError as error:
        assert any(argument in str(error) or repr(argument) in str(error) for argument in arguments)


# What help and the table say


@pytest.mark.parametrize("name", [*OPTIONS, "--list-contexts", "--version", "--help", *(f"ling3 {v}" for v in VERBS)])
def test_help_names_every_option_and_verb(name: str) -> None:  # E-11, D-2
    assert any(line.strip().startswith(name) for line in usage().splitlines())


@pytest.mark.parametrize(
    ("name", "default"),
    [
        ("--model", "ling3-tiny-w4.l3r"), ("--host", "127.0.0.1"), ("--port", "9091"), ("--log", "metrics.jsonl"),
        ("--context", "4K"), ("--backend", "auto"), ("--mla-backend", "auto"), ("--thinking", "off"),
        ("--session-cache-mib", "256"),
    ],
)  # fmt: skip
def test_help_tells_the_defaults(name: str, default: str) -> None:
    row = next(line for line in usage().splitlines() if line.strip().startswith(name + " "))
    assert default in row[row.rindex("(") :]


@pytest.mark.parametrize(
    "text", ["RK3588", "0.9.8", "advisory", "text-only OpenAI chat completions", "0 turns only them off"]
)
def test_help_tells_what_users_must_know(text: str) -> None:  # E-11
    assert text in usage()


def test_help_does_not_list_the_option_of_old_launchers() -> None:
    assert "--allow-experimental-context" not in usage()


def test_help_fits_a_terminal() -> None:
    assert max(map(len, usage().splitlines())) <= 100


def test_the_table_of_contexts() -> None:  # E-12
    lines = list_contexts().splitlines()
    figures = r": estimated_model_rss_gib=\d+\.\d+ suggested_available_memory_gib=\d+\.\d+"
    labels = ["4K", "8K", "16K", "32K", "64K", "128K", "256K"]
    endings = [""] * 6 + [" experimental_extrapolation_beyond_native_128K"]
    for line, label, ending in zip(lines, labels, endings, strict=True):
        assert re.fullmatch(label + figures + ending, line)


def test_every_line_suggests_a_reserve_of_1536_mib() -> None:
    for line in list_contexts().splitlines():
        estimated, suggested = (float(part.partition("=")[2]) for part in line.split()[1:3])
        assert suggested - estimated == pytest.approx(1.5, abs=1e-4)


@given(st.integers(0, 262144), st.integers(1, 262144))
def test_a_longer_context_needs_more_memory(context: int, more: int) -> None:  # E-14
    assert estimate_mib(context + more) > estimate_mib(context) > 0


# Which package


@pytest.fixture
def folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[Path, Path]:
    """Where a package is looked for: the working folder, then the user's data folder."""
    here, data = tmp_path / "here", tmp_path / "data"
    here.mkdir()
    (data / "ling3").mkdir(parents=True)
    monkeypatch.chdir(here)
    monkeypatch.setenv("XDG_DATA_HOME", str(data))
    return here, data / "ling3"


BUNDLED = Path("/bundled.l3r")


def test_the_package_that_is_named_is_taken_without_a_look(folders: tuple[Path, Path]) -> None:
    (folders[0] / "ling3-tiny-w4.l3r").touch()
    assert find_model(Config(model=Path("missing.l3r")), BUNDLED) == (Path("missing.l3r"), False)


def test_without_a_name_the_working_folder_comes_first(folders: tuple[Path, Path]) -> None:
    for folder in folders:
        (folder / "ling3-tiny-w4.l3r").touch()
    assert find_model(Config(), BUNDLED) == (Path("ling3-tiny-w4.l3r"), False)


def test_then_the_users_data_folder(folders: tuple[Path, Path]) -> None:
    (folders[1] / "ling3-tiny-w4.l3r").touch()
    assert find_model(Config(), BUNDLED) == (folders[1] / "ling3-tiny-w4.l3r", False)


def test_then_the_bundled_demonstration(folders: tuple[Path, Path]) -> None:
    (folders[0] / "ling3-tiny-w4.l3r").mkdir()  # a folder is no package
    assert find_model(Config(), BUNDLED) == (BUNDLED, True)


def test_the_data_folder_is_below_home_unless_said_otherwise(
    folders: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", "")
    monkeypatch.setenv("HOME", str(folders[0]))
    package = folders[0] / ".local/share/ling3/ling3-tiny-w4.l3r"
    package.parent.mkdir(parents=True)
    package.touch()
    assert find_model(Config(), BUNDLED) == (package, False)


def test_a_user_without_a_home_still_gets_the_demonstration(
    folders: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A service under a user id that no account has: no HOME, and nothing to ask for one."""
    monkeypatch.delenv("XDG_DATA_HOME")
    monkeypatch.delenv("HOME")
    monkeypatch.setattr("os.getuid", lambda: 4_000_000)
    assert find_model(Config(), BUNDLED) == (BUNDLED, True)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([""], "unknown command ''; ling3 --help lists them"),
        (["--log", ""], "option --log must name a file; got ''"),
        (["--port", "9" * 5000], "option --port must be an integer from 1 to 65535"),
    ],
)
def test_odd_arguments_are_named(arguments: list[str], message: str) -> None:
    with pytest.raises(StartError, match=re.escape(message)):
        parse_options(arguments, VERSION)
