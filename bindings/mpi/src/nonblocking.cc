// The nonblocking collectives of MPI's C interface.
#include "interface.h"
#include "serve.h"

using tutti::mpi::Function;
using tutti::mpi::Work;

extern "C" {

int MPI_Iallreduce(const void* sendbuf, void* recvbuf, int count, MPI_Datatype datatype, MPI_Op op, MPI_Comm comm,
                   MPI_Request* request) {
  return tutti::mpi::start(
      Function::kAllreduce, comm, request,
      [&](Work& work) { return tutti::mpi::allreduce(work, sendbuf, recvbuf, count, datatype, op); },
      [&] { return PMPI_Iallreduce(sendbuf, recvbuf, count, datatype, op, comm, request); });
}

int MPI_Ireduce(const void* sendbuf, void* recvbuf, int count, MPI_Datatype datatype, MPI_Op op, int root,
                MPI_Comm comm, MPI_Request* request) {
  return tutti::mpi::start(
      Function::kReduce, comm, request,
      [&](Work& work) { return tutti::mpi::reduce(work, sendbuf, recvbuf, count, datatype, op, root); },
      [&] { return PMPI_Ireduce(sendbuf, recvbuf, count, datatype, op, root, comm, request); });
}

int MPI_Iscan(const void* sendbuf, void* recvbuf, int count, MPI_Datatype datatype, MPI_Op op, MPI_Comm comm,
              MPI_Request* request) {
  return tutti::mpi::start(
      Function::kScan, comm, request,
      [&](Work& work) { return tutti::mpi::scan(work, sendbuf, recvbuf, count, datatype, op); },
      [&] { return PMPI_Iscan(sendbuf, recvbuf, count, datatype, op, comm, request); });
}

int MPI_Iexscan(const void* sendbuf, void* recvbuf, int count, MPI_Datatype datatype, MPI_Op op, MPI_Comm comm,
                MPI_Request* request) {
  return tutti::mpi::start(
      Function::kExscan, comm, request,
      [&](Work& work) { return tutti::mpi::exscan(work, sendbuf, recvbuf, count, datatype, op); },
      [&] { return PMPI_Iexscan(sendbuf, recvbuf, count, datatype, op, comm, request); });
}

int MPI_Ireduce_scatter(const void* sendbuf, void* recvbuf, const int recvcounts[], MPI_Datatype datatype, MPI_Op op,
                        MPI_Comm comm, MPI_Request* request) {
  return tutti::mpi::start(
      Function::kReduceScatter, comm, request,
      [&](Work& work) { return tutti::mpi::reduce_scatter(work, sendbuf, recvbuf, recvcounts, datatype, op); },
      [&] { return PMPI_Ireduce_scatter(sendbuf, recvbuf, recvcounts, datatype, op, comm, request); });
}

int MPI_Ireduce_scatter_block(const void* sendbuf, void* recvbuf, int recvcount, MPI_Datatype datatype, MPI_Op op,
                              MPI_Comm comm, MPI_Request* request) {
  return tutti::mpi::start(
      Function::kReduceScatterBlock, comm, request,
      [&](Work& work) { return tutti::mpi::reduce_scatter_block(work, sendbuf, recvbuf, recvcount, datatype, op); },
      [&] { return PMPI_Ireduce_scatter_block(sendbuf, recvbuf, recvcount, datatype, op, comm, request); });
}

int MPI_Ibarrier(MPI_Comm comm, MPI_Request* request) {
  return tutti::mpi::start(
      Function::kBarrier, comm, request, [&](Work& work) { return tutti::mpi::barrier(work); },
      [&] { return PMPI_Ibarrier(comm, request); });
}

int MPI_Ibcast(void* buffer, int count, MPI_Datatype datatype, int root, MPI_Comm comm, MPI_Request* request) {
  return tutti::mpi::start(
      Function::kBcast, comm, request,
      [&](Work& work) { return tutti::mpi::bcast(work, buffer, count, datatype, root); },
      [&] { return PMPI_Ibcast(buffer, count, datatype, root, comm, request); });
}

int MPI_Iallgather(const void* sendbuf, int sendcount, MPI_Datatype sendtype, void* recvbuf, int recvcount,
                   MPI_Datatype recvtype, MPI_Comm comm, MPI_Request* request) {
  return tutti::mpi::start(
      Function::kAllgather, comm, request,
      [&](Work& work) {
        return tutti::mpi::allgather(work, sendbuf, sendcount, sendtype, recvbuf, recvcount, recvtype);
      },
      [&] { return PMPI_Iallgather(sendbuf, sendcount, sendtype, recvbuf, recvcount, recvtype, comm, request); });
}

int MPI_Igather(const void* sendbuf, int sendcount, MPI_Datatype sendtype, void* recvbuf, int recvcount,
                MPI_Datatype recvtype, int root, MPI_Comm comm, MPI_Request* request) {
  return tutti::mpi::start(
      Function::kGather, comm, request,
      [&](Work& work) {
        return tutti::mpi::gather(work, sendbuf, sendcount, sendtype, recvbuf, recvcount, recvtype, root);
      },
      [&] { return PMPI_Igather(sendbuf, sendcount, sendtype, recvbuf, recvcount, recvtype, root, comm, request); });
}

int MPI_Iscatter(const void* sendbuf, int sendcount, MPI_Datatype sendtype, void* recvbuf, int recvcount,
                 MPI_Datatype recvtype, int root, MPI_Comm comm, MPI_Request* request) {
  return tutti::mpi::start(
      Function::kScatter, comm, request,
      [&](Work& work) {
        return tutti::mpi::scatter(work, sendbuf, sendcount, sendtype, recvbuf, recvcount, recvtype, root);
      },
      [&] { return PMPI_Iscatter(sendbuf, sendcount, sendtype, recvbuf, recvcount, recvtype, root, comm, request); });
}

int MPI_Ialltoall(const void* sendbuf, int sendcount, MPI_Datatype sendtype, void* recvbuf, int recvcount,
                  MPI_Datatype recvtype, MPI_Comm comm, MPI_Request* request) {
  return tutti::mpi::start(
      Function::kAlltoall, comm, request,
      [&](Work& work) {
        return tutti::mpi::alltoall(work, sendbuf, sendcount, sendtype, recvbuf, recvcount, recvtype);
      },
      [&] { return PMPI_Ialltoall(sendbuf, sendcount, sendtype, recvbuf, recvcount, recvtype, comm, request); });
}

int MPI_Iallgatherv(const void* sendbuf, int sendcount, MPI_Datatype sendtype, void* recvbuf, const int recvcounts[],
                    const int displs[], MPI_Datatype recvtype, MPI_Comm comm, MPI_Request* request) {
  return tutti::mpi::start(
      Function::kAllgatherv, comm, request,
      [&](Work& work) {
        return tutti::mpi::allgatherv(work, sendbuf, sendcount, sendtype, recvbuf, recvcounts, displs, recvtype);
      },
      [&] {
        return PMPI_Iallgatherv(sendbuf, sendcount, sendtype, recvbuf, recvcounts, displs, recvtype, comm, request);
      });
}

int MPI_Igatherv(const void* sendbuf, int sendcount, MPI_Datatype sendtype, void* recvbuf, const int recvcounts[],
                 const int displs[], MPI_Datatype recvtype, int root, MPI_Comm comm, MPI_Request* request) {
  return tutti::mpi::start(
      Function::kGatherv, comm, request,
      [&](Work& work) {
        return tutti::mpi::gatherv(work, sendbuf, sendcount, sendtype, recvbuf, recvcounts, displs, recvtype, root);
      },
      [&] {
        return PMPI_Igatherv(sendbuf, sendcount, sendtype, recvbuf, recvcounts, displs, recvtype, root, comm, request);
      });
}

int MPI_Iscatterv(const void* sendbuf, const int sendcounts[], const int displs[], MPI_Datatype sendtype, void* recvbuf,
                  int recvcount, MPI_Datatype recvtype, int root, MPI_Comm comm, MPI_Request* request) {
  return tutti::mpi::start(
      Function::kScatterv, comm, request,
      [&](Work& work) {
        return tutti::mpi::scatterv(work, sendbuf, sendcounts, displs, sendtype, recvbuf, recvcount, recvtype, root);
      },
      [&] {
        return PMPI_Iscatterv(sendbuf, sendcounts, displs, sendtype, recvbuf, recvcount, recvtype, root, comm, request);
      });
}

int MPI_Ialltoallv(const void* sendbuf, const int sendcounts[], const int sdispls[], MPI_Datatype sendtype,
                   void* recvbuf, const int recvcounts[], const int rdispls[], MPI_Datatype recvtype, MPI_Comm comm,
                   MPI_Request* request) {
  return tutti::mpi::start(
      Function::kAlltoallv, comm, request,
      [&](Work& work) {
        return tutti::mpi::alltoallv(work, sendbuf, sendcounts, sdispls, sendtype, recvbuf, recvcounts, rdispls,
                                     recvtype);
      },
      [&] {
        return PMPI_Ialltoallv(sendbuf, sendcounts, sdispls, sendtype, recvbuf, recvcounts, rdispls, recvtype, comm,
                               request);
      });
}

int MPI_Ialltoallw(const void* sendbuf, const int sendcounts[], const int sdispls[], const MPI_Datatype sendtypes[],
                   void* recvbuf, const int recvcounts[], const int rdispls[], const MPI_Datatype recvtypes[],
                   MPI_Comm comm, MPI_Request* request) {
  return tutti::mpi::start(
      Function::kAlltoallw, comm, request,
      [&](Work& work) {
        return tutti::mpi::alltoallw(work, sendbuf, sendcounts, sdispls, sendtypes, recvbuf, recvcounts, rdispls,
                                     recvtypes);
      },
      [&] {
        return PMPI_Ialltoallw(sendbuf, sendcounts, sdispls, sendtypes, recvbuf, recvcounts, rdispls, recvtypes, comm,
                               request);
      });
}

}  // extern "C"
