"""The threads that run routes (E-42, D-6)."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable

from ling3.errors import RequestError
from ling3.serve.answer import engine_busy, error_answer, inference_error, server_busy
from ling3.serve.connection import Connection
from ling3.serve.faults import report_fault
from ling3.serve.life import State
from ling3.serve.limits import POLL_S, Limits


class Workers:
    """A fixed set of threads and the queue before them. A connection that was answered goes to `lingering`."""

    def __init__(self, limits: Limits, lingering: Callable[[Connection], None]) -> None:
        self._limits = limits
        self._lingering = lingering
        self._queue: queue.SimpleQueue[Connection | None] = queue.SimpleQueue()
        self._inference = threading.BoundedSemaphore(limits.inference_slots)
        self._threads = [
            threading.Thread(target=self._work, name=f"ling3-worker-{index}", daemon=True)
            for index in range(limits.workers)
        ]

    def start(self) -> None:
        for thread in self._threads:
            thread.start()

    def submit(self, connection: Connection) -> None:
        """Queue a complete request. 429 when the engine's share of the workers is taken, 503 when the queue is full.

        The share is claimed here and not by the worker, so that inference requests can never fill the queue before
        control requests: at most `inference_slots` of them are queued or running.
        """
        if self._queue.qsize() >= self._limits.queued:
            raise server_busy()
        if connection.route.inference and not self._inference.acquire(blocking=False):
            raise engine_busy()
        connection.enqueue()
        self._queue.put(connection)

    def stop(self, cancel_runs: Callable[[], None]) -> None:
        """Cancel what runs until every worker is done (E-117).

        `cancel_runs` is repeated, for a run may begin just after it was called.
        """
        for _ in self._threads:
            self._queue.put(None)
        for thread in self._threads:
            while thread.is_alive():
                cancel_runs()
                thread.join(POLL_S)

    def close_queued(self) -> None:
        """Close what waits for a worker, without an answer (E-117)."""
        while True:
            try:
                connection = self._queue.get_nowait()
            except queue.Empty:
                return
            if connection is not None:
                connection.close()

    def _work(self) -> None:
        while (connection := self._queue.get()) is not None:
            inference = connection.route.inference
            try:
                self._serve(connection)
            except Exception:
                report_fault("while an answer was sent")
            finally:
                if inference:
                    self._inference.release()

    def _serve(self, connection: Connection) -> None:
        """Run the route and answer whatever it raises."""
        request = connection.request
        connection.run()
        try:
            answer = connection.route.handler(request, connection)
        except RequestError as error:
            answer = error_answer(error)
        except Exception:
            report_fault(f"{request.method} {connection.route.path}")
            answer = error_answer(inference_error()) if connection.state is State.RUNNING else None
        if answer is not None:
            connection.answer(answer)
        connection.finish()
        if connection.state is State.LINGERING:
            self._lingering(connection)
