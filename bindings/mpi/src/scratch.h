// Memory for packed blocks. Large pieces are kept from call to call, because the kernel clears each page of new memory.
// Transforms of 64^3 numbers by mpi4py-fft, whose MPI_Alltoallw packs 1 MiB on either side, took 2.5 times as long with
// new memory for each call.
#ifndef TUTTI_BINDINGS_MPI_SCRATCH_H_
#define TUTTI_BINDINGS_MPI_SCRATCH_H_

#include <cstddef>
#include <memory>

namespace tutti::mpi {

struct Free {
  bool mapped = false;  // by peers: it is tutti's, and counted
  void operator()(std::byte* piece) const;
};
using Piece = std::unique_ptr<std::byte[], Free>;

// Owns a piece; from any thread.
class Scratch {
 public:
  // At least one byte, so the address is never NULL. The contents are undefined.
  explicit Scratch(std::size_t bytes);
  ~Scratch();
  Scratch(Scratch&&) noexcept = default;
  Scratch(const Scratch&) = delete;
  Scratch& operator=(const Scratch&) = delete;
  Scratch& operator=(Scratch&&) = delete;

  [[nodiscard]] std::byte* data() const { return piece_.get(); }
  // After an operation that has failed: a peer may still write into it, which must not meet another call's data.
  void keep_no_more() { kept_ = false; }

 private:
  std::size_t bytes_;
  bool kept_;
  Piece piece_;
};

}  // namespace tutti::mpi

#endif  // TUTTI_BINDINGS_MPI_SCRATCH_H_
