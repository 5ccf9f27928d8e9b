"""The thread that reads: heads and bodies of all clients, and the rests that lingering ones still send."""

from __future__ import annotations

import os
import selectors
import threading
import time
from collections import deque
from collections.abc import Callable

from ling3.errors import RequestError
from ling3.serve.answer import inference_error, request_timeout, server_busy
from ling3.serve.connection import Connection
from ling3.serve.faults import report_fault
from ling3.serve.life import READING, State
from ling3.serve.limits import POLL_S, Limits

Submit = Callable[[Connection], None]
"""Takes over a connection whose request is complete; RequestError gives it back, to be refused."""


class Reader:
    """One selector over every connection that is HEAD, BODY or LINGERING.

    No client can hold it up: each readable socket gets one bounded receive per turn, nothing waits, and silence ends
    by the clock.
    """

    def __init__(self, limits: Limits, submit: Submit) -> None:
        self._limits = limits
        self._submit = submit
        self._arrivals: deque[Connection] = deque()
        self._connections: set[Connection] = set()
        self._complete: list[Connection] = []
        self._selector = selectors.DefaultSelector()
        self._wake = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        self._selector.register(self._wake, selectors.EVENT_READ)
        self._refusing = threading.Event()
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, name="ling3-reader", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def adopt(self, connection: Connection) -> None:
        """Hand over a new or a lingering connection; from any thread."""
        self._arrivals.append(connection)
        os.eventfd_write(self._wake, 1)

    def refuse_all(self) -> None:
        """Shutdown has begun: whatever is still half read, now or later, gets 408 (E-46)."""
        self._refusing.set()
        os.eventfd_write(self._wake, 1)

    def stop(self) -> None:
        """Close everything and end the thread."""
        self._ended.set()
        os.eventfd_write(self._wake, 1)
        self._thread.join()
        self._selector.close()
        os.close(self._wake)

    def _run(self) -> None:
        next_check = 0.0
        while not self._ended.is_set():
            for key, _events in self._selector.select(POLL_S):
                if isinstance(key.fileobj, Connection):
                    self._attend(key.fileobj, self._read)
                else:
                    os.eventfd_read(self._wake)
            self._hand_over()
            self._take_arrivals()
            if self._refusing.is_set() or time.monotonic() >= next_check:
                next_check = time.monotonic() + POLL_S
                for connection in list(self._connections):
                    self._attend(connection, self._check)
        self._take_arrivals()
        for connection in self._connections:
            connection.close()

    def _take_arrivals(self) -> None:
        while self._arrivals:
            connection = self._arrivals.popleft()
            self._watch(connection)
            if connection.state is State.HEAD and len(self._connections) > self._limits.connections:
                self._attend(connection, _turn_away)

    def _attend(self, connection: Connection, action: Callable[[Connection], None]) -> None:
        """Do one thing for a connection, answer what goes wrong, and let go of what is closed."""
        try:
            action(connection)
        except RequestError as error:
            connection.refuse(error)
        except Exception:
            report_fault("while a request was read")
            if connection.state in READING:
                connection.refuse(inference_error())
            elif connection.state is not State.CLOSED:
                connection.close()
        if connection.state is State.CLOSED:
            self._unwatch(connection)

    def _read(self, connection: Connection) -> None:
        if connection.state is State.LINGERING:
            connection.drop_input()
        elif connection.receive():
            self._complete.append(connection)

    def _check(self, connection: Connection) -> None:
        if self._refusing.is_set() and connection.state in READING:
            raise request_timeout("the server is shutting down")
        connection.check_time(time.monotonic())

    def _hand_over(self) -> None:
        """Give complete requests away. From `submit` on a connection is no longer ours, so it is let go before."""
        for connection in self._complete:
            self._unwatch(connection)
            try:
                self._submit(connection)
            except RequestError as error:
                connection.refuse(error)
                if connection.state is not State.CLOSED:
                    self._watch(connection)
        self._complete.clear()

    def _watch(self, connection: Connection) -> None:
        self._selector.register(connection, selectors.EVENT_READ)
        self._connections.add(connection)

    def _unwatch(self, connection: Connection) -> None:
        self._selector.unregister(connection)
        self._connections.discard(connection)


def _turn_away(connection: Connection) -> None:
    """One connection too many: a word, and no lingering, which would keep it (E-43)."""
    connection.refuse(server_busy())
    if connection.state is State.LINGERING:
        connection.close()
