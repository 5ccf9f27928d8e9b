"""One inference at a time: prompt, prefill, sampling, output, figures (E-85, E-101 to E-111)."""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import orjson
from numpy.typing import NDArray

from ling3.engine.flow import FlowGate
from ling3.engine.metrics import MetricsLog, RunClock, memory_mib, sampling_report
from ling3.engine.prefix import PrefixCache
from ling3.engine.request import ChatRequest, FinishReason, Reply, Sampling, Sink
from ling3.engine.sampling import Sampler, Settings, defaults_of
from ling3.errors import RequestError, context_length_exceeded
from ling3.model import Decoder
from ling3.model.decoder import BLOCK
from ling3.text import ChatText, OutputFilter, Piece, ToolCall

PROGRESS_S = 10.0
"""Seconds between two lines of prefill progress (E-102)."""
RETRY_AFTER_S = 5
WARM_UP_PROMPT = "你好"


def engine_busy() -> RequestError:
    """429: an inference runs (E-86)."""
    return RequestError(
        429, "engine_busy", "the engine is busy with another request; try again later", retry_after=RETRY_AFTER_S
    )


@dataclass
class _Output:
    """What a run has put out so far."""

    sink: Sink
    gate: FlowGate
    content: str = ""
    reasoning: str = ""
    calls: tuple[ToolCall, ...] = ()

    def deliver(self, pieces: Sequence[Piece]) -> bool:
        """Pass pieces on; False when the reader is gone."""
        for piece in pieces:
            if piece.channel == "reasoning":
                self.reasoning += piece.text
            elif piece.call is not None:
                self.calls += (piece.call,)
            else:
                self.content += piece.text
            if not self.sink.write(piece, self.gate.prepare()):
                return False
        return True


class Engine:
    """Runs requests on one decoder. `run` may be called from any thread; a second one at the same time is refused."""

    def __init__(self, decoder: Decoder, text: ChatText, generation: dict[str, Any], model_id: str, log: MetricsLog):
        self.model_id = model_id
        self.context_length = decoder.context
        self.sampling_defaults: Sampling = defaults_of(generation)
        self._decoder = decoder
        self._text = text
        self._log = log
        self._gate = FlowGate()
        self._prefix = PrefixCache(decoder)
        self._lock = threading.Lock()
        self._counter = itertools.count(1)
        self._masked = np.array(sorted(text.tokenizer.masked_ids), np.int64)

    @property
    def active(self) -> bool:
        return self._gate.active

    def generation_status(self) -> dict[str, Any]:
        return self._gate.status()

    def cancel(self, request_id: str = "") -> bool:
        """Whether a running request was, or already is, canceled (E-61)."""
        return self._gate.cancel(request_id)

    def request_cancel_all(self) -> None:
        self._gate.cancel()

    def warm_up(self) -> None:
        """One batch of exactly 128 positions and one step, then an empty decoder again (E-25)."""
        prompt = self._text.encode_chat([{"role": "user", "content": WARM_UP_PROMPT}])
        length = min(BLOCK, self.context_length - 1)
        logits = self._decoder.eval_batch(list(itertools.islice(itertools.cycle(prompt), length)))
        self._decoder.eval(int(np.argmax(logits)))
        self._decoder.reset()

    def run(self, request: ChatRequest, sink: Sink) -> Reply:
        """One inference on the calling thread.

        RequestError before `sink.begin`: the request is refused and nothing was evaluated. Any other exception
        means that the run failed; the decoder is empty then and the engine usable.
        """
        if not self._lock.acquire(blocking=False):
            raise engine_busy()
        try:
            clock = RunClock(prompt_tokens=0)
            prompt = self._text.encode_chat(
                request.messages, request.tools, request.enable_thinking, self.context_length
            )
            clock.prompt_tokens = len(prompt)
            budget = self._output_budget(request, len(prompt))
            created = int(time.time())
            request_id = f"chatcmpl-{created}-{next(self._counter)}"
            self._gate.begin(request_id)
            kept = False
            try:
                reply = self._run(request, sink, prompt, budget, request_id, created, clock)
                kept = request.cache_prompt and reply.finish_reason != "canceled"
                return reply
            finally:
                try:
                    if not kept:
                        self._prefix.clear()  # E-84
                finally:
                    self._gate.end()
        finally:
            self._lock.release()

    def _output_budget(self, request: ChatRequest, prompt_tokens: int) -> int:
        """Tokens that may be generated (E-104); 400 if the prompt leaves no room."""
        room = self.context_length - prompt_tokens
        if room <= 0:
            raise context_length_exceeded(prompt_tokens, self.context_length)
        wanted = request.max_tokens
        budget = room if wanted is None else min(wanted, room)
        if wanted is None or budget < wanted:
            self._log.note(f"request_info: output_budget={budget} remaining_context={room}")
        return budget

    def _run(
        self, request: ChatRequest, sink: Sink, prompt: list[int], budget: int, request_id: str, created: int,
        clock: RunClock,
    ) -> Reply:  # fmt: skip
        settings = Settings.decide(request.sampling, self.sampling_defaults)
        before = clock.elapsed_ms()
        restored = self._prefix.restore(request)
        clock.cache_restore_ms = clock.elapsed_ms() - before
        output = _Output(sink, self._gate)
        reason: FinishReason = "canceled"
        if sink.begin(request_id, created):
            logits = self._prefill(prompt, restored.cached_tokens, sink, request_id, clock)
            if logits is not None:
                self._gate.decoding()
                sampler = Sampler(settings, self._decoder.geometry.vocab_size, prompt, self._masked)
                filtered = self._text.output(request.stop, request.enable_thinking, request.tools)
                reason = self._generate(logits, sampler, filtered, budget, output, clock)
        if reason != "canceled" and not (self._alive(sink) and self._gate.try_commit()):
            reason = "canceled"
        if reason == "stop" and output.calls:
            reason = "tool_calls"
        full = reason == "length" and clock.generated == self.context_length - len(prompt)
        if full:
            self._log.note(f"request_info: id={request_id} capacity={self.context_length}")
        usage = clock.usage(restored.cached_tokens if request.cache_prompt else None)
        metrics: dict[str, Any] = {
            "id": request_id,
            "model": self.model_id,
            "timestamp": int(time.time()),
            "finish_reason": reason,
            "usage": usage,
            **clock.figures(),
            "cached_tokens": restored.cached_tokens,
            "cache_status": restored.status,
            "context_length": self.context_length,
            "flow_control": "none",
            "sampling": sampling_report(settings, request.enable_thinking),
            "requested_max_tokens": request.max_tokens,
            "effective_max_tokens": budget,
            "context_capacity_reached": full,
        }
        self._log.write(metrics)
        return Reply(
            request_id, created, output.content, output.reasoning, output.calls, reason, usage, metrics
        )  # fmt: skip

    def _alive(self, sink: Sink) -> bool:
        return self._gate.alive() and sink.alive()

    def _prefill(
        self, prompt: list[int], done: int, sink: Sink, request_id: str, clock: RunClock
    ) -> NDArray[np.float32] | None:
        """Evaluate the prompt from position `done`: its logits, or None if the run died (E-101)."""
        begun = last_line = time.monotonic()
        logits = None
        while done < len(prompt):
            if not self._alive(sink):
                return None
            block = prompt[done : done + BLOCK - done % BLOCK]
            done += len(block)
            before = time.monotonic()
            if done < len(prompt):
                self._decoder.eval_batch_state(block)
            else:
                logits = self._decoder.eval_batch(block)
            now = time.monotonic()
            clock.prefill_eval_ms += (now - before) * 1000
            clock.prompt_evaluated_tokens += len(block)
            self._gate.step()
            if now - last_line >= PROGRESS_S:
                last_line = now
                self._log.note(_progress_line(request_id, done, clock))
        clock.prefill_ms = (time.monotonic() - begun) * 1000
        return logits

    def _generate(
        self, logits: NDArray[np.float32], sampler: Sampler, filtered: OutputFilter, budget: int, output: _Output,
        clock: RunClock,
    ) -> FinishReason:  # fmt: skip
        """The loop of E-105: why it ended. The last sampled token is never evaluated."""
        reason: FinishReason = "length"
        for i in range(budget):
            if not self._alive(output.sink):
                return "canceled"
            token = sampler.draw(logits)
            clock.sampled()
            if token in self._text.tokenizer.eos_token_ids:
                reason = "stop"
                break
            if not output.deliver(filtered.push(token)):
                return "canceled"
            if filtered.stopped:
                reason = "stop"
                break
            if i + 1 < budget:
                before = time.monotonic()
                logits = self._decoder.eval(token)
                clock.decode_eval_ms += (time.monotonic() - before) * 1000
                clock.decode_eval_count += 1
                self._gate.step()
        return reason if output.deliver(filtered.finish()) else "canceled"


def _progress_line(request_id: str, done: int, clock: RunClock) -> str:
    """How far a long prefill is (E-102)."""
    line = {
        "id": request_id,
        "timestamp": int(time.time()),
        "prompt_tokens": clock.prompt_tokens,
        "prompt_evaluated_tokens": clock.prompt_evaluated_tokens,
        "cached_tokens": done - clock.prompt_evaluated_tokens,
        "processed_position": done,
        "elapsed_ms": clock.elapsed_ms(),
        "prefill_eval_ms": clock.prefill_eval_ms,
        **memory_mib(),
    }
    return f"prefill_progress={orjson.dumps(line).decode()}"
