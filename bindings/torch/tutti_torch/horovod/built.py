"""What programs ask of Horovod's build: whether it has this or that under it. Here there is tutti alone."""


def _is_not() -> bool:
    return False


mpi_enabled = mpi_built = mpi_threads_supported = gloo_enabled = gloo_built = _is_not
ddl_built = ccl_built = cuda_built = rocm_built = _is_not


def nccl_built() -> int:
    """The version of NCCL; 0: none."""
    return 0
