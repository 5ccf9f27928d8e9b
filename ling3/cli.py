"""The command: verbs, the start order of a server (E-22), and exit codes (E-118)."""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import orjson

from ling3 import __version__, convert, inspect
from ling3._native import active_variant
from ling3.check import Host, inspect_host, raise_fd_limit, use_big_cores
from ling3.config import NATIVE_CONTEXT, RESERVE_MIB, Config, Immediate, estimate_mib, find_model, parse_options
from ling3.console import InputKind, input_kind, open_console, open_piped_prompt
from ling3.engine import Engine, MetricsLog
from ling3.engine.metrics import memory_mib
from ling3.errors import Ling3Error, StartError
from ling3.linear.pool import compile_entries
from ling3.model import Decoder, Package
from ling3.serve import Limits, Server, Service
from ling3.tell import tell
from ling3.text import ChatText
from ling3.weights import weight_format, weight_memory

MODEL_ID = "ling3-tiny"
DEMO_ID = "ling3-demo"
BUNDLED = Path(__file__).parent / "data" / "ling3-demo.l3r"
_VERBS: dict[str, Callable[[list[str]], int]] = {"convert": convert.main, "inspect": inspect.main}


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; the exit code is 0 or 1 and nothing else (E-118)."""
    _open_missing_streams()
    try:
        code = _run(list(sys.argv[1:] if arguments is None else arguments))
        print(end="", flush=True)
        return code
    except Ling3Error as error:
        tell(f"startup_error: {error}")
    except BrokenPipeError:  # whoever read our output has left: `ling3 --help | head -1`
        _give_up_stdout()
    except OSError as error:  # a full disk under standard output
        tell(f"startup_error: {error}")
        _give_up_stdout()
    except KeyboardInterrupt:
        tell("startup_error: interrupted")
    except Exception as error:
        tell(f"startup_error: {type(error).__name__}: {error} (a fault of ling3; please report it)")
    return 1


def _open_missing_streams() -> None:
    """A process may be started with its standard streams closed; Python then has None for them."""
    if sys.stdout is None:
        sys.stdout = open(os.devnull, "w", encoding="utf-8")
    if sys.stderr is None:
        sys.stderr = open(os.devnull, "w", encoding="utf-8")


def _run(arguments: list[str]) -> int:
    if arguments and arguments[0] in _VERBS:
        signal.signal(signal.SIGTERM, signal.default_int_handler)  # so that a verb cleans up as after Ctrl-C
        return _VERBS[arguments[0]](arguments[1:])
    options = parse_options(arguments, f"ling3 {__version__}")
    if isinstance(options, Immediate):
        print(options.text)
        return 0
    return _start(options)


def _give_up_stdout() -> None:
    """Point standard output to nowhere, or the interpreter's last flush fails again and changes the exit code."""
    with open(os.devnull, "wb") as nowhere:
        os.dup2(nowhere.fileno(), sys.stdout.fileno())


@dataclass(frozen=True)
class _Facts:
    """What `/health` reports of this start."""

    device: dict[str, Any]
    initialization_ms: float
    warmup_ms: float
    weight_format: dict[str, Any]
    package: Package

    @property
    def weight_memory(self) -> dict[str, Any]:
        return weight_memory(self.package)


@dataclass(frozen=True)
class _Report:
    """Where start lines go. One prompt from a pipe wants its answer alone on stdout, so they are left out then."""

    quiet: bool

    def line(self, text: str) -> None:
        if not self.quiet:
            print(text, flush=True)

    def fact(self, name: str, value: dict[str, Any]) -> None:
        self.line(f"{name}={orjson.dumps(value).decode()}")

    def note(self, text: str) -> None:
        """For the operator of a server: on stderr (E-7)."""
        if not self.quiet:
            self.warn(text)

    def warn(self, text: str) -> None:
        tell(text)


class _Quit:
    """The quit flag. `interrupt` may use a Ctrl-C up before it is set; `close` ends what does not look at the flag.

    Shutting down waits for the block that is being evaluated. Who does not want to wait presses Ctrl-C once more.
    """

    AGAIN_S = 0.5
    """Launchers that pass a Ctrl-C on deliver it twice at once; a person takes longer."""

    def __init__(self) -> None:
        self.flag = threading.Event()
        self.interrupt: Callable[[], bool] = lambda: False
        self.close: Callable[[], object] = lambda: None
        self._since = 0.0

    def install(self) -> None:
        signal.signal(signal.SIGPIPE, signal.SIG_IGN)
        signal.signal(signal.SIGTERM, lambda *_: self._quit())
        signal.signal(signal.SIGINT, lambda *_: None if self.interrupt() else self._ctrl_c())

    def _ctrl_c(self) -> None:
        if self.flag.is_set() and time.monotonic() - self._since > self.AGAIN_S:
            self.close()
            os._exit(1)
        self._quit()

    def _quit(self) -> None:
        if not self.flag.is_set():
            self._since = time.monotonic()
            self.flag.set()
        self.close()


def _start(config: Config) -> int:
    """The steps of E-22 in order."""
    kind = input_kind(sys.stdin.fileno()) if config.console and not config.check and sys.stdin else "none"
    report = _Report(quiet=kind == "prompt")
    end = _Quit()
    end.install()
    report.note(f"mla_backend={config.mla_backend} tile=512 shared_by_six_layers=1")
    device = _qualify(config, report)
    if config.check:
        return 0
    model, is_demo = find_model(config, BUNDLED)
    if is_demo:
        report.warn("notice: no model found, using the bundled demonstration model; --model FILE loads another")
    _print_budget(config, model, report)
    if kind == "prompt":
        engine, _ = _load(config, model, is_demo, device, report, echo_metrics=False)
        prompt = open_piped_prompt(engine, thinking=config.thinking)
        end.interrupt, end.close = prompt.interrupt, prompt.close
        if end.flag.is_set():  # told to end while the model was loading
            prompt.close()
        return prompt.run()
    with Server(Limits(max_body_bytes=config.max_body_mib << 20)) as server:
        server.bind(config.host, config.port)
        report.line(f"initializing_model={model}")
        # On a shared terminal the figures line of the console replaces the raw metrics; the log has them.
        echo = kind != "terminal" or not sys.stderr.isatty()
        engine, facts = _load(config, model, is_demo, device, report, echo_metrics=echo)
        server.listen()
        report.line(f"service_ready={server.base_url}")
        report.line(
            f"initialization_ms={facts.initialization_ms:.0f} warmup_ms={facts.warmup_ms:.0f} "
            f"context_length={config.context} metrics_log={config.log}"
        )
        _serve(server, Service(engine, facts, config.thinking), engine, kind, config, end)
    return 0


def _serve(server: Server, service: Service, engine: Engine, kind: InputKind, config: Config, end: _Quit) -> None:
    """Accept on this thread, chat on another, until one of them or a signal ends both (E-117)."""
    if kind != "terminal":
        server.serve(service, end.flag)
        return
    console = open_console(engine, request_quit=end.flag.set, thinking=config.thinking)
    end.interrupt, end.close = console.interrupt, console.close
    thread = threading.Thread(target=console.run, name="console", daemon=True)
    thread.start()
    try:
        server.serve(service, end.flag)
    finally:
        console.close()
        thread.join(timeout=5.0)


def _qualify(config: Config, report: _Report) -> dict[str, Any]:
    """Look at the machine, use what it has, and return the device report (E-28, D-1)."""
    host = inspect_host()
    if config.check:
        _check_only(host, report)
    failure = host.failure()
    for option, unit in (("--backend", config.backend), ("--mla-backend", config.mla_backend)):
        if unit == "npu" and failure is not None:
            raise StartError(f"{option} npu: {failure.name}: {failure.detail}")
    if host.board:
        try:
            use_big_cores()
        except OSError as error:
            raise StartError(f"cannot use CPUs 4-7 alone: {error.strerror}") from error
        if failure is not None and config.backend == "auto":
            report.warn(f"notice: {failure.detail}; ling3 computes on the CPU")
    else:
        report.note(f"notice: no RK3588 here; ling3 computes on the CPU of this {host.machine} machine")
    device = host.report(config.mla_backend, memory_mib()["available_memory_mib"])
    report.fact("device_check", device)
    return device


def _check_only(host: Host, report: _Report) -> None:
    """Print every check; StartError at the first that failed (D-1)."""
    for check in (*host.checks, raise_fd_limit()):
        report.line(f"{check.outcome:<8} {check.name}: {check.detail}")
    failure = host.failure()
    if failure is not None:
        raise StartError(f"{failure.name}: {failure.detail}")


def _print_budget(config: Config, model: Path, report: _Report) -> None:
    """Advice on memory, and on contexts beyond what was qualified (E-7, E-40, E-41)."""
    if config.context > NATIVE_CONTEXT:
        report.warn("context_warning: beyond the native 128K positions are extrapolated without validation")
    estimate = estimate_mib(config.context)
    available = memory_mib()["available_memory_mib"]
    below = available < estimate + RESERVE_MIB
    budget = {
        "context_length": config.context,
        "policy": "warn_only",
        "estimate_basis": "full_w4_package",
        "estimated_model_rss_mib": estimate,
        "reserve_mib": RESERVE_MIB,
        "suggested_available_mib": estimate + RESERVE_MIB,
        "available_memory_mib": available,
        "below_estimate": below,
    }
    report.note(f"memory_budget={orjson.dumps(budget).decode()}")
    if below and model != BUNDLED:
        report.warn(
            f"memory_warning: {estimate + RESERVE_MIB:.0f} MiB are suggested, {available:.0f} MiB are available; "
            "start-up continues"
        )
    if config.context > 4096:
        report.warn("notice: contexts above 4K have no long-context qualification")


def _load(
    config: Config, model: Path, is_demo: bool, device: dict[str, Any], report: _Report, *, echo_metrics: bool
) -> tuple[Engine, _Facts]:
    """Package, tokenizer, decoder, warm-up (steps 9 to 13)."""
    begun = time.monotonic()
    package = Package.open(model)
    text = ChatText(
        package.tokenizer_json, package.chat_template, package.eos_token_ids, package.geometry.vocab_size
    )
    # One question from a pipe leaves no log behind in whatever folder it was asked, unless it names one.
    path = Path(os.devnull) if report.quiet and config.log == Config().log else config.log
    log = MetricsLog(path, sys.stderr if echo_metrics else None)
    try:
        active_variant()
    except ValueError as error:
        raise StartError(str(error)) from error
    decoder = Decoder(package, config.context, config.threads)
    _compile_kernels()
    engine = Engine(decoder, text, package.generation, DEMO_ID if is_demo else MODEL_ID, log)
    initialization_ms = (time.monotonic() - begun) * 1000
    formats = weight_format(package)
    report.fact("weight_format", formats)
    begun = time.monotonic()
    engine.warm_up()
    warmup_ms = (time.monotonic() - begun) * 1000
    report.fact("weight_memory", weight_memory(package))
    return engine, _Facts(device, initialization_ms, warmup_ms, formats, package)


def _compile_kernels() -> None:
    """First start: LLVM compiles the kernels, which takes a while; later starts find them in the cache.

    A terminal sees the count move on one line; a log gets the first line and the last.
    """
    begun = time.monotonic()
    moving = sys.stderr.isatty()
    compiled = 0
    for done, total, fresh in compile_entries():
        compiled += fresh
        text = f"notice: compiling kernels, at the first start only: {done} of {total}"
        if fresh and moving:
            print(f"\r{text}", end="", file=sys.stderr, flush=True)
        elif fresh and compiled == 1:
            tell(text)
    if compiled:
        if moving:
            print(file=sys.stderr)
        tell(f"notice: kernels compiled in {time.monotonic() - begun:.0f} s")
