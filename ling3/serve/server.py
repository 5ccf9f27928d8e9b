"""The listening socket and the life of the service around it (E-22, E-23, E-42, E-43, E-117).

Three kinds of threads share the work:

- The caller's thread, in `serve`, accepts: it polls the listening socket every 100 ms and looks at the quit flag.
- One reader thread (reader.py) has every connection that is not being answered. It reads heads and bodies of all
  clients at once from a selector, so silent or slow clients cost a table entry and never a thread: thirty idle
  connections do not delay a normal request (user-pain A15).
- `Limits.workers` threads (workers.py) run routes of complete requests. At most three quarters of them may be claimed
  by inference requests, counted when a request is complete and not when a worker picks it up; one more is refused with
  429 at once. So a worker is always left for health and other control requests, however long the engine computes or a
  client takes to read its stream (D-6).
"""

from __future__ import annotations

import errno
import ipaddress
import select
import socket
import threading
import time
from collections.abc import Iterator
from types import TracebackType

from ling3.errors import StartError
from ling3.serve.connection import Connection
from ling3.serve.limits import DEFAULT_LIMITS, POLL_S, Limits
from ling3.serve.ports import Service
from ling3.serve.reader import Reader
from ling3.serve.router import Router
from ling3.serve.routes.table import all_routes
from ling3.serve.workers import Workers

BACKLOG = 128
"""E-22 has 16. A burst above the backlog costs its clients a second until the kernel tries again, and thirty at once
are an ordinary browser with a few open pages (user-pain A15)."""


class Server:
    """One listening address. The order is `bind`, (load the model), `listen`, `serve`; a context manager closes it.

    Binding first makes a port conflict fail before the expensive load; not listening until then means that clients
    are refused while the model loads, and never hang (E-23).
    """

    def __init__(self, limits: Limits = DEFAULT_LIMITS) -> None:
        self._limits = limits
        self._socket = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self._socket.setblocking(False)

    def bind(self, host: str, port: int) -> None:
        """Take the address; port 0 lets the system choose. StartError if it is taken or not dotted IPv4."""
        try:
            ipaddress.IPv4Address(host)
        except ValueError:
            raise StartError(f"--host: {host!r} is not a dotted IPv4 address such as 127.0.0.1") from None
        try:
            self._socket.bind((host, port))
        except OSError as error:
            advice = "; --port N takes another" if error.errno == errno.EADDRINUSE else ""
            raise StartError(f"cannot bind {host}:{port}: {error.strerror}{advice}") from error

    @property
    def address(self) -> tuple[str, int]:
        """Host and port as bound."""
        host, port = self._socket.getsockname()
        return str(host), int(port)

    @property
    def base_url(self) -> str:
        """What `service_ready=` prints."""
        host, port = self.address
        return f"http://{host}:{port}/v1"

    def listen(self) -> None:
        try:
            self._socket.listen(BACKLOG)
        except OSError as error:
            host, port = self.address
            raise StartError(f"cannot listen on {host}:{port}: {error.strerror}") from error

    def serve(self, service: Service, quit_flag: threading.Event) -> None:
        """Serve until `quit_flag` is set, then shut down in the order of E-117; returns when all threads ended."""
        router = Router(all_routes(service))
        stopping = threading.Event()
        reader = Reader(self._limits, lambda connection: workers.submit(connection))
        workers = Workers(self._limits, reader.adopt)
        reader.start()
        workers.start()
        try:
            while not quit_flag.is_set():
                for sock in self._accepted():
                    reader.adopt(Connection(sock, self._limits, router.resolve, stopping))
        finally:
            stopping.set()
            reader.refuse_all()
            workers.close_queued()
            workers.stop(service.engine.request_cancel_all)
            reader.stop()
            workers.close_queued()  # What the reader had completed in the meantime.
            self.close()

    def close(self) -> None:
        self._socket.close()

    def __enter__(self) -> Server:
        return self

    def __exit__(
        self, _kind: type[BaseException] | None, _error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        self.close()

    def _accepted(self) -> Iterator[socket.socket]:
        """All connections that wait, after at most 100 ms."""
        poll = select.poll()
        poll.register(self._socket, select.POLLIN)
        if not poll.poll(POLL_S * 1000):
            return
        try:
            while True:
                yield self._socket.accept()[0]
        except BlockingIOError:
            return
        except OSError:
            # Out of descriptors, or a peer that is gone already. The socket stays readable: do not spin.
            time.sleep(POLL_S)
