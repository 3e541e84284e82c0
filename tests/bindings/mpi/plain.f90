! A sum of all ranks.
program plain
  use mpi
  implicit none
  integer :: error, rank, ranks, total
  call MPI_INIT(error)
  call MPI_COMM_RANK(MPI_COMM_WORLD, rank, error)
  call MPI_COMM_SIZE(MPI_COMM_WORLD, ranks, error)
  call MPI_ALLREDUCE(rank, total, 1, MPI_INTEGER, MPI_SUM, MPI_COMM_WORLD, error)
  if (total /= ranks * (ranks - 1) / 2) error stop 4
  call MPI_FINALIZE(error)
end program plain
