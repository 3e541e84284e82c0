// What the environment says to the binding.
#ifndef TUTTI_BINDINGS_MPI_CONFIG_H_
#define TUTTI_BINDINGS_MPI_CONFIG_H_

namespace tutti::mpi {

// To make tutti's communicator takes 1.7 ms for two ranks, 5 ms for four that share two processors: what is gained by
// some thirty calls of 1 MiB.
constexpr int kAfter = 32;

struct Config {
  bool off = false;          // TUTTI_MPI=off: every call goes to the MPI library
  bool summary = false;      // TUTTI_MPI_SUMMARY=1: what was taken and what was not, at MPI_Finalize
  bool has_timeout = false;  // TUTTI_TIMEOUT_MS is set
  // TUTTI_MPI_AFTER: how many collectives of a communicator go to the MPI library first; all ranks take the largest.
  int after = kAfter;
};

// Read once, at the first call.
const Config& config();

}  // namespace tutti::mpi

#endif  // TUTTI_BINDINGS_MPI_CONFIG_H_
