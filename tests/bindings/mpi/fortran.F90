! Every collective from Fortran, blocking and nonblocking, by mpif.h, the module mpi (TEST_MODULE) or mpi_f08 (TEST_F08).
#if defined(TEST_F08)
#define COMM type(MPI_Comm)
#define DATATYPE type(MPI_Datatype)
#define OPERATOR type(MPI_Op)
#define REQUEST type(MPI_Request)
#define USE_MPI use mpi_f08
#else
#define COMM integer
#define DATATYPE integer
#define OPERATOR integer
#define REQUEST integer
#if defined(TEST_MODULE)
#define USE_MPI use mpi
#else
#define INCLUDE_MPI include 'mpif.h'
#endif
#endif
#if !defined(USE_MPI)
#define USE_MPI
#else
#define INCLUDE_MPI
#endif
! Open MPI 4 has persistent collectives as an extension.
#if defined(TEST_EXTENSION)
#define ALLREDUCE_INIT MPIX_Allreduce_init
#if defined(TEST_F08)
#define USE_EXTENSION use mpi_f08_ext
#elif defined(TEST_MODULE)
#define USE_EXTENSION use mpi_ext
#else
#define EXTENSION external :: MPIX_Allreduce_init
#endif
#else
#define ALLREDUCE_INIT MPI_Allreduce_init
#endif
#if !defined(USE_EXTENSION)
#define USE_EXTENSION
#endif
#if !defined(EXTENSION)
#define EXTENSION
#endif

module CHECKS
  implicit none
  integer :: rank, ranks, wrong = 0
contains
  subroutine expect(holds, what)
    logical, intent(in) :: holds
    character(len=*), intent(in) :: what
    if (holds) return
    wrong = wrong + 1
    if (wrong < 20) print *, 'rank', rank, ': ', what
  end subroutine

  ! Does not commute.
#if defined(TEST_F08)
  subroutine append(first, second, count, datatype)
    use, intrinsic :: iso_c_binding, only: c_ptr, c_f_pointer
    USE_MPI
    type(c_ptr), value :: first, second
    integer :: count
    type(MPI_Datatype) :: datatype
    integer, pointer :: in(:), inout(:)
    call c_f_pointer(first, in, [count])
    call c_f_pointer(second, inout, [count])
    inout = inout + 10 * in
  end subroutine
#else
  subroutine append(in, inout, count, datatype)
    integer :: count, datatype
    integer :: in(count), inout(count)
    inout = inout + 10 * in
  end subroutine
#endif

  subroutine blocking(comm_used)
    USE_MPI
    INCLUDE_MPI
    COMM, intent(in) :: comm_used
    integer :: e, at, total, mine(3), sum(3), blocks(16), all(64), counts(16), displs(16), bytes(16)
    DATATYPE :: types(16)
    total = ranks * (ranks + 1) / 2
    mine = rank + 1
    call MPI_Allreduce(mine, sum, 3, MPI_INTEGER, MPI_SUM, comm_used, e)
    call expect(e == MPI_SUCCESS .and. all_are(sum, total), 'allreduce')
    sum = rank + 1
    call MPI_Allreduce(MPI_IN_PLACE, sum, 3, MPI_INTEGER, MPI_MAX, comm_used, e)
    call expect(all_are(sum, ranks), 'allreduce in place')
    sum = rank + 1
    if (rank == 0) then
      call MPI_Reduce(MPI_IN_PLACE, sum, 3, MPI_INTEGER, MPI_SUM, 0, comm_used, e)
      call expect(all_are(sum, total), 'reduce in place')
    else
      call MPI_Reduce(sum, blocks, 3, MPI_INTEGER, MPI_SUM, 0, comm_used, e)
    end if
    call MPI_Scan(mine, sum, 3, MPI_INTEGER, MPI_SUM, comm_used, e)
    call expect(all_are(sum, (rank + 1) * (rank + 2) / 2), 'scan')
    call MPI_Exscan(mine, sum, 3, MPI_INTEGER, MPI_SUM, comm_used, e)
    call expect(rank == 0 .or. all_are(sum, rank * (rank + 1) / 2), 'exscan')
    all = rank + 1
    call MPI_Reduce_scatter_block(all, sum, 3, MPI_INTEGER, MPI_SUM, comm_used, e)
    call expect(all_are(sum, total), 'reduce_scatter_block')
    counts = 2
    counts(1) = 3
    call MPI_Reduce_scatter(all, sum, counts, MPI_INTEGER, MPI_SUM, comm_used, e)
    call expect(all_are(sum(1:2), total), 'reduce_scatter')
    call MPI_Barrier(comm_used, e)
    sum = merge(7, 0, rank == ranks - 1)
    call MPI_Bcast(sum, 3, MPI_INTEGER, ranks - 1, comm_used, e)
    call expect(all_are(sum, 7), 'bcast')
    call MPI_Allgather(rank, 1, MPI_INTEGER, blocks, 1, MPI_INTEGER, comm_used, e)
    call expect(in_order(blocks), 'allgather')
    blocks = -1
    blocks(rank + 1) = rank
    call MPI_Allgather(MPI_IN_PLACE, 0, MPI_INTEGER, blocks, 1, MPI_INTEGER, comm_used, e)
    call expect(in_order(blocks), 'allgather in place')
    blocks = -1
    call MPI_Gather(rank, 1, MPI_INTEGER, blocks, 1, MPI_INTEGER, 0, comm_used, e)
    call expect(rank /= 0 .or. in_order(blocks), 'gather')
    if (rank == 0) then
      call MPI_Scatter(blocks, 1, MPI_INTEGER, MPI_IN_PLACE, 1, MPI_INTEGER, 0, comm_used, e)
    else
      call MPI_Scatter(blocks, 1, MPI_INTEGER, at, 1, MPI_INTEGER, 0, comm_used, e)
      call expect(at == rank, 'scatter')
    end if
    all = rank
    call MPI_Alltoall(all, 1, MPI_INTEGER, blocks, 1, MPI_INTEGER, comm_used, e)
    call expect(in_order(blocks), 'alltoall')
    counts = 1
    displs = [(at - 1, at = 1, 16)]
    bytes = 4 * displs
    types = MPI_INTEGER
    blocks = -1
    call MPI_Allgatherv(rank, 1, MPI_INTEGER, blocks, counts, displs, MPI_INTEGER, comm_used, e)
    call expect(in_order(blocks), 'allgatherv')
    blocks = -1
    call MPI_Gatherv(rank, 1, MPI_INTEGER, blocks, counts, displs, MPI_INTEGER, 0, comm_used, e)
    call expect(rank /= 0 .or. in_order(blocks), 'gatherv')
    at = -1
    call MPI_Scatterv(blocks, counts, displs, MPI_INTEGER, at, 1, MPI_INTEGER, 0, comm_used, e)
    call expect(at == rank, 'scatterv')
    blocks = -1
    call MPI_Alltoallv(all, counts, displs, MPI_INTEGER, blocks, counts, displs, MPI_INTEGER, comm_used, e)
    call expect(in_order(blocks), 'alltoallv')
    blocks = -1
    call MPI_Alltoallw(all, counts, bytes, types, blocks, counts, bytes, types, comm_used, e)
    call expect(in_order(blocks), 'alltoallw')
    blocks = rank
    call MPI_Alltoallw(MPI_IN_PLACE, counts, bytes, types, blocks, counts, bytes, types, comm_used, e)
    call expect(in_order(blocks), 'alltoallw in place')
  end subroutine

  subroutine nonblocking(comm_used)
    USE_MPI
    INCLUDE_MPI
    COMM, intent(in) :: comm_used
    REQUEST :: q(16)
    integer, asynchronous :: sums(3, 5), gathered(16, 7), one, two, sent(16), from_left
    integer :: e, at, total, counts(16), displs(16), bytes(16)
    DATATYPE :: types(16)
    integer :: how
    total = ranks * (ranks + 1) / 2
    counts = 1
    displs = [(at - 1, at = 1, 16)]
    bytes = 4 * displs
    do how = 0, 7
      types = MPI_INTEGER
      sums = rank + 1
      gathered = -1
      sent = rank
      one = -1
      two = -1
      from_left = -1
      call MPI_Iallreduce(MPI_IN_PLACE, sums(:, 1), 3, MPI_INTEGER, MPI_SUM, comm_used, q(1), e)
      call MPI_Ireduce(sent, gathered(1, 1), 1, MPI_INTEGER, MPI_SUM, 0, comm_used, q(2), e)
      call MPI_Iscan(MPI_IN_PLACE, sums(:, 2), 3, MPI_INTEGER, MPI_SUM, comm_used, q(3), e)
      call MPI_Iexscan(MPI_IN_PLACE, sums(:, 3), 3, MPI_INTEGER, MPI_SUM, comm_used, q(4), e)
      call MPI_Ibcast(sums(:, 4), 3, MPI_INTEGER, ranks - 1, comm_used, q(5), e)
      call MPI_Iallgather(sent, 1, MPI_INTEGER, gathered(:, 2), 1, MPI_INTEGER, comm_used, q(6), e)
      call MPI_Igather(sent, 1, MPI_INTEGER, gathered(:, 3), 1, MPI_INTEGER, 0, comm_used, q(7), e)
      call MPI_Ialltoall(sent, 1, MPI_INTEGER, gathered(:, 4), 1, MPI_INTEGER, comm_used, q(8), e)
      call MPI_Ialltoallw(sent, counts, bytes, types, gathered(:, 5), counts, bytes, types, comm_used, q(9), e)
      call MPI_Iallgatherv(sent, 1, MPI_INTEGER, gathered(:, 6), counts, displs, MPI_INTEGER, comm_used, q(10), e)
      call MPI_Ialltoallv(sent, counts, displs, MPI_INTEGER, gathered(:, 7), counts, displs, MPI_INTEGER, comm_used, q(11), e)
      call MPI_Ibarrier(comm_used, q(12), e)
      call MPI_Ireduce_scatter_block(sent, one, 1, MPI_INTEGER, MPI_MAX, comm_used, q(13), e)
      call MPI_Iscatter(sent, 1, MPI_INTEGER, two, 1, MPI_INTEGER, ranks - 1, comm_used, q(14), e)
      call MPI_Irecv(from_left, 1, MPI_INTEGER, modulo(rank - 1, ranks), 5, comm_used, q(15), e)
      call MPI_Isend(sent, 1, MPI_INTEGER, modulo(rank + 1, ranks), 5, comm_used, q(16), e)
      types = MPI_DATATYPE_NULL
      call complete(how, q)
      call expect(all_are(sums(:, 1), total), 'iallreduce')
      call expect(rank /= 0 .or. gathered(1, 1) == total - ranks, 'ireduce')
      call expect(all_are(sums(:, 2), (rank + 1) * (rank + 2) / 2), 'iscan')
      call expect(rank == 0 .or. all_are(sums(:, 3), rank * (rank + 1) / 2), 'iexscan')
      call expect(all_are(sums(:, 4), ranks), 'ibcast')
      call expect(in_order(gathered(:, 2)), 'iallgather')
      call expect(rank /= 0 .or. in_order(gathered(:, 3)), 'igather')
      call expect(in_order(gathered(:, 4)), 'ialltoall')
      call expect(in_order(gathered(:, 5)), 'ialltoallw')
      call expect(in_order(gathered(:, 6)), 'iallgatherv')
      call expect(in_order(gathered(:, 7)), 'ialltoallv')
      call expect(one == ranks - 1, 'ireduce_scatter_block')
      call expect(two == ranks - 1, 'iscatter')
      call expect(from_left == modulo(rank - 1, ranks), 'irecv')
      call MPI_Igatherv(sent, 1, MPI_INTEGER, gathered(:, 1), counts, displs, MPI_INTEGER, 0, comm_used, q(1), e)
      call MPI_Wait(q(1), MPI_STATUS_IGNORE, e)
      call expect(rank /= 0 .or. in_order(gathered(:, 1)), 'igatherv')
      call MPI_Iscatterv(gathered(:, 1), counts, displs, MPI_INTEGER, one, 1, MPI_INTEGER, 0, comm_used, q(1), e)
      call MPI_Wait(q(1), MPI_STATUS_IGNORE, e)
      call expect(one == rank, 'iscatterv')
      call MPI_Ireduce_scatter(sent, one, counts, MPI_INTEGER, MPI_MAX, comm_used, q(1), e)
      call MPI_Wait(q(1), MPI_STATUS_IGNORE, e)
      call expect(one == ranks - 1, 'ireduce_scatter')
    end do
  end subroutine

  ! All requests, by another call each time.
  subroutine complete(how, q)
    USE_MPI
    INCLUDE_MPI
    integer, intent(in) :: how
    REQUEST, intent(inout) :: q(16)
#if defined(TEST_F08)
    type(MPI_Status) :: status, statuses(16)
#else
    integer :: status(MPI_STATUS_SIZE), statuses(MPI_STATUS_SIZE, 16)
#endif
    integer :: e, at, done, index, indices(16)
    logical :: flag
    flag = .false.
    select case (how)
    case (0)
      call MPI_Waitall(16, q, MPI_STATUSES_IGNORE, e)
    case (1)
      call MPI_Waitall(16, q, statuses, e)
#if defined(TEST_F08)
      call expect(statuses(15)%MPI_SOURCE == modulo(rank - 1, ranks), 'the source of a receive')
#else
      call expect(statuses(MPI_SOURCE, 15) == modulo(rank - 1, ranks), 'the source of a receive')
#endif
    case (2)
      do at = 16, 1, -1
        call MPI_Wait(q(at), status, e)
      end do
    case (3)
      do at = 1, 16
        flag = .false.
        do while (.not. flag)
          call MPI_Request_get_status(q(at), flag, status, e)
        end do
        flag = .false.
        do while (.not. flag)
          call MPI_Test(q(at), flag, MPI_STATUS_IGNORE, e)
        end do
      end do
    case (4)
      do at = 1, 16
        call MPI_Waitany(16, q, index, status, e)
        ! MPICH's mpi_f08 counts from 0.
        call expect(index >= 0 .and. index <= 16, 'the index of waitany')
      end do
    case (5)
      at = 0
      do while (at < 16)
        call MPI_Waitsome(16, q, done, indices, MPI_STATUSES_IGNORE, e)
        at = at + done
      end do
    case (6)
      do while (.not. flag)
        call MPI_Testall(16, q, flag, statuses, e)
      end do
    case default
      at = 0
      do while (at < 16)
        call MPI_Testany(16, q, index, flag, status, e)
        if (flag .and. index /= MPI_UNDEFINED) at = at + 1
        call MPI_Testsome(16, q, done, indices, statuses, e)
        if (done /= MPI_UNDEFINED) at = at + done
      end do
    end select
    do at = 1, 16
      call expect(q(at) == MPI_REQUEST_NULL, 'a request is left')
    end do
  end subroutine

  subroutine others()
    USE_MPI
    INCLUDE_MPI
    COMM :: made, part
    OPERATOR :: op
    DATATYPE :: place
    integer :: e, at, expected, mine, result, absolute(2)
    integer(kind=MPI_ADDRESS_KIND) :: address(1)
    save absolute
    mine = rank + 1
    expected = 0
    do at = 1, ranks
      expected = 10 * expected + at
    end do
    call MPI_Op_create(append, .false., op, e)
    call MPI_Allreduce(mine, result, 1, MPI_INTEGER, op, MPI_COMM_WORLD, e)
    call expect(result == expected, 'an operator of the program')
    call MPI_Op_free(op, e)
    call MPI_Comm_split(MPI_COMM_WORLD, mod(rank, 2), -rank, part, e)
    call MPI_Comm_dup(part, made, e)
    call MPI_Allreduce(1, result, 1, MPI_INTEGER, MPI_SUM, made, e)
    call expect(result == (ranks + 1 - mod(rank, 2)) / 2, 'a part')
    call MPI_Comm_free(made, e)
    call expect(made == MPI_COMM_NULL, 'a handle of a communicator that is freed')
    call MPI_Comm_disconnect(part, e)
    call expect(part == MPI_COMM_NULL, 'a handle of a communicator that is disconnected')
    call MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, rank, MPI_INFO_NULL, part, e)
    call MPI_Comm_dup_with_info(part, MPI_INFO_NULL, made, e)
    call MPI_Allreduce(1, result, 1, MPI_INTEGER, MPI_SUM, made, e)
    call expect(result == ranks, 'a machine')
    call MPI_Comm_free(made, e)
    call MPI_Comm_free(part, e)
    absolute = merge(9, 0, rank == 0)
    call MPI_Get_address(absolute, address(1), e)
    call MPI_Type_create_hindexed(1, [2], address, MPI_INTEGER, place, e)
    call MPI_Type_commit(place, e)
    call MPI_Bcast(MPI_BOTTOM, 1, place, 0, MPI_COMM_WORLD, e)
    call read_again(absolute)
    call expect(all_are(absolute, 9), 'bcast of MPI_BOTTOM')
    call MPI_Type_free(place, e)
  end subroutine

  subroutine persistent()
    USE_MPI
    USE_EXTENSION
    INCLUDE_MPI
    EXTENSION
    REQUEST :: q(3)
    integer, asynchronous, save :: mine, sum, sent, from_left
    integer :: e, time, index, at
    call ALLREDUCE_INIT(mine, sum, 1, MPI_INTEGER, MPI_SUM, MPI_COMM_WORLD, MPI_INFO_NULL, q(1), e)
    call MPI_Recv_init(from_left, 1, MPI_INTEGER, modulo(rank - 1, ranks), 6, MPI_COMM_WORLD, q(2), e)
    call MPI_Send_init(sent, 1, MPI_INTEGER, modulo(rank + 1, ranks), 6, MPI_COMM_WORLD, q(3), e)
    do time = 1, 6
      mine = rank + time
      sent = rank + 10 * time
      sum = -1
      if (mod(time, 2) == 0) then
        call MPI_Startall(3, q, e)
      else
        do at = 1, 3
          call MPI_Start(q(at), e)
        end do
      end if
      if (time < 4) then
        call MPI_Waitall(3, q, MPI_STATUSES_IGNORE, e)
      else
        do at = 1, 3
          call MPI_Waitany(3, q, index, MPI_STATUS_IGNORE, e)
        end do
      end if
      call expect(sum == ranks * (ranks - 1) / 2 + ranks * time, 'a persistent allreduce')
      call expect(from_left == modulo(rank - 1, ranks) + 10 * time, 'a persistent receive')
    end do
    do at = 1, 3
      call MPI_Request_free(q(at), e)
      call expect(q(at) == MPI_REQUEST_NULL, 'a persistent request is left')
    end do
  end subroutine

  ! The ranks call different collectives on a communicator whose error handler returns, as that of MPI_COMM_WORLD does not.
  subroutine failures()
    USE_MPI
    INCLUDE_MPI
    COMM :: made
    REQUEST :: q(2)
#if defined(TEST_F08)
    type(MPI_Status) :: statuses(2)
#else
    integer :: statuses(MPI_STATUS_SIZE, 2)
#endif
    integer, asynchronous, save :: sum
    integer :: e, how, index, done, indices(2), of_second, kind, length
    character(MPI_MAX_ERROR_STRING) :: text
    logical :: flag
    do how = 0, 7
      call MPI_Comm_dup(MPI_COMM_WORLD, made, e)
      call MPI_Comm_set_errhandler(made, MPI_ERRORS_RETURN, e)
      q(1) = MPI_REQUEST_NULL
      call MPI_Barrier(made, e)
      ! The call of rank 0 is the last, so that no other call finds the communicator failed.
      if (rank /= 0) call MPI_Ibarrier(made, q(2), e)
      call MPI_Barrier(MPI_COMM_WORLD, e)
      if (rank == 0) call MPI_Iallreduce(MPI_IN_PLACE, sum, 1, MPI_INTEGER, MPI_SUM, made, q(2), e)
      ! After an error MPICH leaves it as it was.
      flag = .false.
      done = 0
#if defined(TEST_F08)
      statuses(:)%MPI_ERROR = MPI_SUCCESS
#else
      statuses(MPI_ERROR, :) = MPI_SUCCESS
#endif
      select case (how)
      case (0)
        call MPI_Wait(q(2), MPI_STATUS_IGNORE, e)
      case (1)
        call MPI_Waitall(2, q, statuses, e)
      case (2)
        call MPI_Waitall(2, q, MPI_STATUSES_IGNORE, e)
      case (3)
        call MPI_Waitany(2, q, index, MPI_STATUS_IGNORE, e)
      case (4)
        call MPI_Waitsome(2, q, done, indices, statuses, e)
      case (5)
        do while (.not. flag .and. e == MPI_SUCCESS)
          call MPI_Test(q(2), flag, MPI_STATUS_IGNORE, e)
        end do
      case (6)
        do while (.not. flag .and. e == MPI_SUCCESS)
          call MPI_Testany(2, q, index, flag, MPI_STATUS_IGNORE, e)
        end do
      case default
        do while (done == 0)
          call MPI_Testsome(2, q, done, indices, MPI_STATUSES_IGNORE, e)
        end do
      end select
      call expect(e /= MPI_SUCCESS, 'the error of a request')
      call expect(q(2) == MPI_REQUEST_NULL, 'a request that has failed is left')
      if (how == 1 .or. how == 4) then
#if defined(TEST_F08)
        of_second = statuses(merge(2, 1, how == 1))%MPI_ERROR
#else
        of_second = statuses(MPI_ERROR, merge(2, 1, how == 1))
#endif
        call expect(e == MPI_ERR_IN_STATUS, 'errors are in the statuses')
        call MPI_Error_class(of_second, kind, e)
        call expect(kind == MPI_ERR_OTHER, 'the error in a status')
        call MPI_Error_string(of_second, text, length, e)
#if defined(TEST_EXTENSION)
        ! MPICH knows no texts of tutti's.
        call expect(text(:30) == 'tutti: a collective has failed', 'the text of an error')
#endif
      end if
      call MPI_Comm_free(made, e)
    end do
  end subroutine

  ! What makes windows here must be known: only then a collective sees, as one of the MPI library's does, the end of an
  ! access that has been before it.
  subroutine windows()
#if defined(TEST_F08)
    use, intrinsic :: iso_c_binding, only: c_ptr, c_f_pointer
#endif
    USE_MPI
    INCLUDE_MPI
#if defined(TEST_F08)
    type(MPI_Win) :: win
    type(MPI_Group) :: all, some
    type(c_ptr) :: base
    integer, pointer :: memory(:)
#else
    integer :: win, all, some
    integer, asynchronous, save :: memory(4)
#endif
    integer :: e, time, other
    integer(MPI_ADDRESS_KIND) :: bytes
    logical :: flag
    bytes = 16
#if defined(TEST_F08)
    call MPI_Win_allocate(bytes, 4, MPI_INFO_NULL, MPI_COMM_WORLD, base, win, e)
    call c_f_pointer(base, memory, [4])
#else
    call MPI_Win_create(memory, bytes, 4, MPI_INFO_NULL, MPI_COMM_WORLD, win, e)
#endif
    call MPI_Win_get_group(win, all, e)
    bytes = 0
    do time = 1, 20
      if (rank == 0) then
        call MPI_Group_excl(all, 1, [0], some, e)
        call MPI_Win_start(some, 0, win, e)
        call MPI_Barrier(MPI_COMM_WORLD, e)
        do other = 1, ranks - 1
          call MPI_Put(time, 1, MPI_INTEGER, other, bytes, 1, MPI_INTEGER, win, e)
        end do
        call MPI_Win_complete(win, e)
        call MPI_Barrier(MPI_COMM_WORLD, e)
      else
        call MPI_Group_incl(all, 1, [0], some, e)
        call MPI_Win_post(some, 0, win, e)
        call MPI_Barrier(MPI_COMM_WORLD, e)
        call MPI_Barrier(MPI_COMM_WORLD, e)
        flag = .false.
        call MPI_Win_test(win, flag, e)
        call expect(flag, 'an access has ended')
        if (.not. flag) call MPI_Win_wait(win, e)
        call read_again(memory)
        call expect(memory(1) == time, 'what an access has put')
      end if
      call MPI_Group_free(some, e)
    end do
    call MPI_Group_free(all, e)
    call MPI_Win_free(win, e)
  end subroutine

#if defined(TEST_F08)
  ! The error may be left out there.
  subroutine without_error()
    use mpi_f08
    type(MPI_Request) :: q, qs(1)
    type(MPI_Comm) :: made
    integer, asynchronous :: mine
    integer :: index
    logical :: flag
    call MPI_Comm_dup(MPI_COMM_WORLD, made)
    mine = 1
    call MPI_Allreduce(MPI_IN_PLACE, mine, 1, MPI_INTEGER, MPI_SUM, made)
    call MPI_Ibarrier(made, q)
    qs(1) = q
    call MPI_Testany(1, qs, index, flag, MPI_STATUS_IGNORE)
    call MPI_Waitany(1, qs, index, MPI_STATUS_IGNORE)
    call MPI_Iallreduce(MPI_IN_PLACE, mine, 1, MPI_INTEGER, MPI_SUM, made, q)
    call MPI_Wait(q, MPI_STATUS_IGNORE)
    call expect(mine == ranks * ranks, 'without errors')
    call MPI_Barrier(made)
    call MPI_Comm_free(made)
  end subroutine
#endif

  ! What is passed by address alone may have changed.
  subroutine read_again(values)
    integer, volatile :: values(:)
    values = values
  end subroutine

  pure logical function all_are(values, value)
    integer, intent(in) :: values(:), value
    all_are = all(values == value)
  end function

  ! The blocks of all ranks, each with its number.
  logical function in_order(values)
    integer, intent(in) :: values(:)
    integer :: at
    in_order = all(values(1:ranks) == [(at, at = 0, ranks - 1)])
  end function
end module

program main
  use CHECKS
  USE_MPI
  implicit none
  INCLUDE_MPI
  integer :: e, all_wrong, level
  COMM :: dup
#if defined(TEST_MODULE)
  call MPI_Init_thread(MPI_THREAD_MULTIPLE, level, e)
#else
  call MPI_Init(e)
#endif
  call MPI_Comm_rank(MPI_COMM_WORLD, rank, e)
  call MPI_Comm_size(MPI_COMM_WORLD, ranks, e)
  call MPI_Comm_dup(MPI_COMM_WORLD, dup, e)
  call blocking(MPI_COMM_WORLD)
  call blocking(dup)
  call nonblocking(dup)
  call MPI_Comm_free(dup, e)
  call others()
  if (ranks > 1) call persistent()
  if (ranks > 1) call failures()
  if (ranks > 1) call windows()
#if defined(TEST_F08)
  call without_error()
#endif
  call MPI_Allreduce(wrong, all_wrong, 1, MPI_INTEGER, MPI_SUM, MPI_COMM_WORLD, e)
  if (rank == 0) print *, all_wrong, 'wrong'
  call MPI_Finalize(e)
  if (all_wrong > 0) stop 1
end program
