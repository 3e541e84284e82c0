// What each collective does with tutti, blocking or not: Work knows which. Arguments are MPI's. A body that returns
// `pass` has done nothing. Whether it does depends on what is the same on all ranks, or on errors.
#ifndef TUTTI_BINDINGS_MPI_COLLECTIVES_H_
#define TUTTI_BINDINGS_MPI_COLLECTIVES_H_

#include "interface.h"
#include "progress.h"
#include "work.h"

namespace tutti::mpi {

// Calls tutti; a call that blocks lets the MPI library make progress.
template <typename Call>
Outcome run(Work& work, Call call) {
  if (work.nonblocking()) return call();
  const Inside inside;
  return call();
}

inline bool wrong(int count, MPI_Datatype type) {
  return count < 0 || type == MPI_DATATYPE_NULL;
}
inline bool wrong_root(const Work& work, int root) {
  return root < 0 || root >= work.ranks();
}

Outcome allreduce(Work& work, const void* send, void* recv, int count, MPI_Datatype type, MPI_Op op);
Outcome reduce(Work& work, const void* send, void* recv, int count, MPI_Datatype type, MPI_Op op, int root);
Outcome scan(Work& work, const void* send, void* recv, int count, MPI_Datatype type, MPI_Op op);
Outcome exscan(Work& work, const void* send, void* recv, int count, MPI_Datatype type, MPI_Op op);
Outcome reduce_scatter(Work& work, const void* send, void* recv, const int* counts, MPI_Datatype type, MPI_Op op);
Outcome reduce_scatter_block(Work& work, const void* send, void* recv, int count, MPI_Datatype type, MPI_Op op);

Outcome barrier(Work& work);
Outcome bcast(Work& work, void* buffer, int count, MPI_Datatype type, int root);
Outcome allgather(Work& work, const void* send, int send_count, MPI_Datatype send_type, void* recv, int recv_count,
                  MPI_Datatype recv_type);
Outcome gather(Work& work, const void* send, int send_count, MPI_Datatype send_type, void* recv, int recv_count,
               MPI_Datatype recv_type, int root);
Outcome scatter(Work& work, const void* send, int send_count, MPI_Datatype send_type, void* recv, int recv_count,
                MPI_Datatype recv_type, int root);
Outcome alltoall(Work& work, const void* send, int send_count, MPI_Datatype send_type, void* recv, int recv_count,
                 MPI_Datatype recv_type);

Outcome allgatherv(Work& work, const void* send, int send_count, MPI_Datatype send_type, void* recv, const int* counts,
                   const int* displs, MPI_Datatype recv_type);
Outcome gatherv(Work& work, const void* send, int send_count, MPI_Datatype send_type, void* recv, const int* counts,
                const int* displs, MPI_Datatype recv_type, int root);
Outcome scatterv(Work& work, const void* send, const int* counts, const int* displs, MPI_Datatype send_type, void* recv,
                 int recv_count, MPI_Datatype recv_type, int root);
Outcome alltoallv(Work& work, const void* send, const int* send_counts, const int* send_displs, MPI_Datatype send_type,
                  void* recv, const int* recv_counts, const int* recv_displs, MPI_Datatype recv_type);
Outcome alltoallw(Work& work, const void* send, const int* send_counts, const int* send_displs,
                  const MPI_Datatype* send_types, void* recv, const int* recv_counts, const int* recv_displs,
                  const MPI_Datatype* recv_types);

}  // namespace tutti::mpi

#endif  // TUTTI_BINDINGS_MPI_COLLECTIVES_H_
