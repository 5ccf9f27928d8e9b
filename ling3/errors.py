"""One exception per blame; each knows how the outside hears of it.

`RequestError` is the caller's fault or a refusal and carries the HTTP status. `StartError` ends the
start with exit code 1 and one line. Anything else that is raised is ours: it is logged with its
context, answered as `inference_error`, and leaves the engine usable.
"""

from __future__ import annotations


class Ling3Error(Exception):
    """Base of the errors that ling3 raises on purpose; `str(error)` is one plain sentence."""


class StartError(Ling3Error):
    """The process cannot start; printed as `startup_error:`, exit code 1 (E-118)."""


class PackageError(StartError):
    """A `.l3r` package, or a checkpoint folder, is broken, incomplete or of another model."""


class RequestError(Ling3Error):
    """A request is refused. `code` is one of E-53/E-54, `param` the path of the field at fault, `retry_after` the
    whole seconds after which another try makes sense (429 and 503)."""

    def __init__(
        self, status: int, code: str, message: str, param: str | None = None, retry_after: int | None = None
    ) -> None:
        super().__init__(message)
        self.status = status
        self.code = code
        self.param = param
        self.retry_after = retry_after


def context_length_exceeded(prompt_tokens: int | str, context: int) -> RequestError:
    """400 `context_length_exceeded` with both numbers (E-104)."""
    return RequestError(
        400,
        "context_length_exceeded",
        f"the prompt has {prompt_tokens} tokens, the context holds {context} together with the answer; "
        "shorten the messages or start with a larger --context",
        "messages",
    )


def invalid_parameter(param: str, message: str) -> RequestError:
    """400 `invalid_parameter` that names the field."""
    return RequestError(400, "invalid_parameter", f"{param}: {message}", param)
