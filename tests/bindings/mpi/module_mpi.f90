! The module mpi, and MPI_THREAD_MULTIPLE.
program p
  use mpi
  integer :: r, n, e, q
  double precision :: x, y
  call MPI_Init_thread(MPI_THREAD_MULTIPLE, n, e)
  call MPI_Comm_rank(MPI_COMM_WORLD, r, e)
  call MPI_Comm_size(MPI_COMM_WORLD, n, e)
  x = r + 1
  call MPI_Allreduce(x, y, 1, MPI_DOUBLE_PRECISION, MPI_SUM, MPI_COMM_WORLD, e)
  if (y /= n*(n+1)/2) stop 1
  call MPI_Allreduce(MPI_IN_PLACE, x, 1, MPI_DOUBLE_PRECISION, MPI_MAX, MPI_COMM_WORLD, e)
  if (x /= n) stop 2
  call MPI_Iallreduce(MPI_IN_PLACE, x, 1, MPI_DOUBLE_PRECISION, MPI_SUM, MPI_COMM_WORLD, q, e)
  call MPI_Wait(q, MPI_STATUS_IGNORE, e)
  if (x /= n*n) stop 3
  call MPI_Finalize(e)
end program
