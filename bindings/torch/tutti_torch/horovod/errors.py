"""What operations raise when the job has failed."""


class HorovodInternalError(RuntimeError):
    """A rank has failed; the text is tutti's, and names it. No operation of the job can be called any more."""
