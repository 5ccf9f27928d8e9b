"""What a client hears that asked for something that is not there (E-53, D-6)."""

from __future__ import annotations

import re

from ling3.errors import RequestError
from ling3.serve.answer import Refusal
from ling3.serve.route import HttpRequest

_SHOWN = 200
"""A path is repeated in the message up to this many characters."""

_HOST = re.compile(r"[A-Za-z0-9._\-]+(:\d+)?|\[[0-9A-Fa-f:.]+\](:\d+)?")


def base_url(request: HttpRequest) -> str:
    """What to type into a client: the address this client already used for us, and `/v1`."""
    host = request.headers.get("host", "")
    return f"http://{host}/v1" if _HOST.fullmatch(host) else "/v1"


def unknown_path(request: HttpRequest) -> RequestError:
    """404 that names the base URL, for the many clients configured without `/v1` (user-pain A8)."""
    return RequestError(
        404, "not_found", f"no such path: {request.path[:_SHOWN]}; the base URL of the API is {base_url(request)}"
    )


def wrong_method(request: HttpRequest, allow: str) -> RequestError:
    """405 with `Allow`."""
    return Refusal(
        405,
        "method_not_allowed",
        f"{request.method[:_SHOWN]} is not possible on {request.path}; allowed: {allow}",
        (("Allow", allow),),
    )
