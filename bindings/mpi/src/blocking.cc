// The blocking collectives of MPI's C interface.
#include "interface.h"
#include "serve.h"

using tutti::mpi::Function;
using tutti::mpi::Work;

extern "C" {

int MPI_Allreduce(const void* sendbuf, void* recvbuf, int count, MPI_Datatype datatype, MPI_Op op, MPI_Comm comm) {
  return tutti::mpi::serve(
      Function::kAllreduce, comm,
      [&](Work& work) { return tutti::mpi::allreduce(work, sendbuf, recvbuf, count, datatype, op); },
      [&] { return PMPI_Allreduce(sendbuf, recvbuf, count, datatype, op, comm); });
}

int MPI_Reduce(const void* sendbuf, void* recvbuf, int count, MPI_Datatype datatype, MPI_Op op, int root,
               MPI_Comm comm) {
  return tutti::mpi::serve(
      Function::kReduce, comm,
      [&](Work& work) { return tutti::mpi::reduce(work, sendbuf, recvbuf, count, datatype, op, root); },
      [&] { return PMPI_Reduce(sendbuf, recvbuf, count, datatype, op, root, comm); });
}

int MPI_Scan(const void* sendbuf, void* recvbuf, int count, MPI_Datatype datatype, MPI_Op op, MPI_Comm comm) {
  return tutti::mpi::serve(
      Function::kScan, comm, [&](Work& work) { return tutti::mpi::scan(work, sendbuf, recvbuf, count, datatype, op); },
      [&] { return PMPI_Scan(sendbuf, recvbuf, count, datatype, op, comm); });
}

int MPI_Exscan(const void* sendbuf, void* recvbuf, int count, MPI_Datatype datatype, MPI_Op op, MPI_Comm comm) {
  return tutti::mpi::serve(
      Function::kExscan, comm,
      [&](Work& work) { return tutti::mpi::exscan(work, sendbuf, recvbuf, count, datatype, op); },
      [&] { return PMPI_Exscan(sendbuf, recvbuf, count, datatype, op, comm); });
}

int MPI_Reduce_scatter(const void* sendbuf, void* recvbuf, const int recvcounts[], MPI_Datatype datatype, MPI_Op op,
                       MPI_Comm comm) {
  return tutti::mpi::serve(
      Function::kReduceScatter, comm,
      [&](Work& work) { return tutti::mpi::reduce_scatter(work, sendbuf, recvbuf, recvcounts, datatype, op); },
      [&] { return PMPI_Reduce_scatter(sendbuf, recvbuf, recvcounts, datatype, op, comm); });
}

int MPI_Reduce_scatter_block(const void* sendbuf, void* recvbuf, int recvcount, MPI_Datatype datatype, MPI_Op op,
                             MPI_Comm comm) {
  return tutti::mpi::serve(
      Function::kReduceScatterBlock, comm,
      [&](Work& work) { return tutti::mpi::reduce_scatter_block(work, sendbuf, recvbuf, recvcount, datatype, op); },
      [&] { return PMPI_Reduce_scatter_block(sendbuf, recvbuf, recvcount, datatype, op, comm); });
}

int MPI_Barrier(MPI_Comm comm) {
  return tutti::mpi::serve(
      Function::kBarrier, comm, [&](Work& work) { return tutti::mpi::barrier(work); },
      [&] { return PMPI_Barrier(comm); });
}

int MPI_Bcast(void* buffer, int count, MPI_Datatype datatype, int root, MPI_Comm comm) {
  return tutti::mpi::serve(
      Function::kBcast, comm, [&](Work& work) { return tutti::mpi::bcast(work, buffer, count, datatype, root); },
      [&] { return PMPI_Bcast(buffer, count, datatype, root, comm); });
}

int MPI_Allgather(const void* sendbuf, int sendcount, MPI_Datatype sendtype, void* recvbuf, int recvcount,
                  MPI_Datatype recvtype, MPI_Comm comm) {
  return tutti::mpi::serve(
      Function::kAllgather, comm,
      [&](Work& work) {
        return tutti::mpi::allgather(work, sendbuf, sendcount, sendtype, recvbuf, recvcount, recvtype);
      },
      [&] { return PMPI_Allgather(sendbuf, sendcount, sendtype, recvbuf, recvcount, recvtype, comm); });
}

int MPI_Gather(const void* sendbuf, int sendcount, MPI_Datatype sendtype, void* recvbuf, int recvcount,
               MPI_Datatype recvtype, int root, MPI_Comm comm) {
  return tutti::mpi::serve(
      Function::kGather, comm,
      [&](Work& work) {
        return tutti::mpi::gather(work, sendbuf, sendcount, sendtype, recvbuf, recvcount, recvtype, root);
      },
      [&] { return PMPI_Gather(sendbuf, sendcount, sendtype, recvbuf, recvcount, recvtype, root, comm); });
}

int MPI_Scatter(const void* sendbuf, int sendcount, MPI_Datatype sendtype, void* recvbuf, int recvcount,
                MPI_Datatype recvtype, int root, MPI_Comm comm) {
  return tutti::mpi::serve(
      Function::kScatter, comm,
      [&](Work& work) {
        return tutti::mpi::scatter(work, sendbuf, sendcount, sendtype, recvbuf, recvcount, recvtype, root);
      },
      [&] { return PMPI_Scatter(sendbuf, sendcount, sendtype, recvbuf, recvcount, recvtype, root, comm); });
}

int MPI_Alltoall(const void* sendbuf, int sendcount, MPI_Datatype sendtype, void* recvbuf, int recvcount,
                 MPI_Datatype recvtype, MPI_Comm comm) {
  return tutti::mpi::serve(
      Function::kAlltoall, comm,
      [&](Work& work) {
        return tutti::mpi::alltoall(work, sendbuf, sendcount, sendtype, recvbuf, recvcount, recvtype);
      },
      [&] { return PMPI_Alltoall(sendbuf, sendcount, sendtype, recvbuf, recvcount, recvtype, comm); });
}

int MPI_Allgatherv(const void* sendbuf, int sendcount, MPI_Datatype sendtype, void* recvbuf, const int recvcounts[],
                   const int displs[], MPI_Datatype recvtype, MPI_Comm comm) {
  return tutti::mpi::serve(
      Function::kAllgatherv, comm,
      [&](Work& work) {
        return tutti::mpi::allgatherv(work, sendbuf, sendcount, sendtype, recvbuf, recvcounts, displs, recvtype);
      },
      [&] { return PMPI_Allgatherv(sendbuf, sendcount, sendtype, recvbuf, recvcounts, displs, recvtype, comm); });
}

int MPI_Gatherv(const void* sendbuf, int sendcount, MPI_Datatype sendtype, void* recvbuf, const int recvcounts[],
                const int displs[], MPI_Datatype recvtype, int root, MPI_Comm comm) {
  return tutti::mpi::serve(
      Function::kGatherv, comm,
      [&](Work& work) {
        return tutti::mpi::gatherv(work, sendbuf, sendcount, sendtype, recvbuf, recvcounts, displs, recvtype, root);
      },
      [&] { return PMPI_Gatherv(sendbuf, sendcount, sendtype, recvbuf, recvcounts, displs, recvtype, root, comm); });
}

int MPI_Scatterv(const void* sendbuf, const int sendcounts[], const int displs[], MPI_Datatype sendtype, void* recvbuf,
                 int recvcount, MPI_Datatype recvtype, int root, MPI_Comm comm) {
  return tutti::mpi::serve(
      Function::kScatterv, comm,
      [&](Work& work) {
        return tutti::mpi::scatterv(work, sendbuf, sendcounts, displs, sendtype, recvbuf, recvcount, recvtype, root);
      },
      [&] { return PMPI_Scatterv(sendbuf, sendcounts, displs, sendtype, recvbuf, recvcount, recvtype, root, comm); });
}

int MPI_Alltoallv(const void* sendbuf, const int sendcounts[], const int sdispls[], MPI_Datatype sendtype,
                  void* recvbuf, const int recvcounts[], const int rdispls[], MPI_Datatype recvtype, MPI_Comm comm) {
  return tutti::mpi::serve(
      Function::kAlltoallv, comm,
      [&](Work& work) {
        return tutti::mpi::alltoallv(work, sendbuf, sendcounts, sdispls, sendtype, recvbuf, recvcounts, rdispls,
                                     recvtype);
      },
      [&] {
        return PMPI_Alltoallv(sendbuf, sendcounts, sdispls, sendtype, recvbuf, recvcounts, rdispls, recvtype, comm);
      });
}

int MPI_Alltoallw(const void* sendbuf, const int sendcounts[], const int sdispls[], const MPI_Datatype sendtypes[],
                  void* recvbuf, const int recvcounts[], const int rdispls[], const MPI_Datatype recvtypes[],
                  MPI_Comm comm) {
  return tutti::mpi::serve(
      Function::kAlltoallw, comm,
      [&](Work& work) {
        return tutti::mpi::alltoallw(work, sendbuf, sendcounts, sdispls, sendtypes, recvbuf, recvcounts, rdispls,
                                     recvtypes);
      },
      [&] {
        return PMPI_Alltoallw(sendbuf, sendcounts, sdispls, sendtypes, recvbuf, recvcounts, rdispls, recvtypes, comm);
      });
}

}  // extern "C"
