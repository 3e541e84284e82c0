"""What operations raise when the job has failed or changes."""


class HorovodInternalError(RuntimeError):
    """A rank has failed; the text is tutti's, and names it. No operation of the job can be called any more, until
    ``elastic.run`` has replaced its process group."""


class HostsUpdatedInterrupt(RuntimeError):  # noqa: N818  Horovod's name
    """Workers wait to join the job. ``elastic.run`` takes them."""
