! The module mpi_f08, whose MPI_Init asks for no threads.
program p
  use mpi_f08
  integer :: r, n, e
  type(MPI_Request) :: q
  double precision, asynchronous :: x
  double precision :: y
  call MPI_Init()
  call MPI_Comm_rank(MPI_COMM_WORLD, r)
  call MPI_Comm_size(MPI_COMM_WORLD, n)
  x = r + 1
  call MPI_Allreduce(x, y, 1, MPI_DOUBLE_PRECISION, MPI_SUM, MPI_COMM_WORLD)
  if (y /= n*(n+1)/2) stop 1
  call MPI_Iallreduce(MPI_IN_PLACE, x, 1, MPI_DOUBLE_PRECISION, MPI_SUM, MPI_COMM_WORLD, q)
  call MPI_Wait(q, MPI_STATUS_IGNORE)
  if (x /= n*(n+1)/2) stop 3
  call MPI_Finalize()
end program
