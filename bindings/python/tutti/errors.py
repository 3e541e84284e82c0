"""What calls raise: one class for each result of the library."""


class Error(Exception):
    """An error of tutti. ``code`` is the library's tuttiResult_t, and the text says what went wrong where."""

    code: int = -1

    def __init__(self, text: str, code: int | None = None) -> None:
        super().__init__(text)
        if code is not None:
            self.code = code


class UnhandledCudaError(Error):
    code = 1


class SystemError(Error):  # noqa: A001  the library's name
    """A system call failed, or memory ran out."""

    code = 2


class InternalError(Error):
    """A defect in tutti."""

    code = 3


class InvalidArgument(Error, ValueError):
    """An argument is not what the call takes: nothing has been done, and the call may be made anew."""

    code = 4


class InvalidUsage(Error):
    """The arguments are fine, the call is not: wrong state, wrong environment. Nothing has been done."""

    code = 5


class RemoteError(Error):
    """A peer died, left or failed; the text names the rank."""

    code = 6


class Timeout(Error, TimeoutError):
    """The communicator's timeout has passed; the text names the ranks that were waited for."""

    code = 8


class Aborted(Error):
    """The communicator was aborted or revoked, here or on a peer."""

    code = 1000


class Mismatch(Error):
    """Ranks have called different operations; the text names both sides."""

    code = 1001


_CLASSES = {
    kind.code: kind
    for kind in (
        UnhandledCudaError,
        SystemError,
        InternalError,
        InvalidArgument,
        InvalidUsage,
        RemoteError,
        Timeout,
        Aborted,
        Mismatch,
    )
}


def error_of(result: int, text: str) -> Error:
    """The exception for a result of the library; of a later version's results, Error itself."""
    return _CLASSES.get(result, Error)(text, result)
