// One call of a collective: the memory that it needs besides the caller's, and what is left to do when tutti has
// finished. Blocking calls have it on the stack, nonblocking ones until they complete.
#ifndef TUTTI_BINDINGS_MPI_WORK_H_
#define TUTTI_BINDINGS_MPI_WORK_H_

#include <tutti/tutti.h>

#include <cstddef>
#include <vector>

#include "communicators.h"
#include "datatypes.h"
#include "interface.h"
#include "operators.h"
#include "scratch.h"

namespace tutti::mpi {

// The result of a call. At most one of the three members states a failure.
struct Outcome {
  Reason reason = Reason::kNone;  // passed on: nothing has happened
  tuttiResult_t result = tuttiSuccess;
  int error = MPI_SUCCESS;  // of packing: MPI's handler has been called

  static Outcome pass(Reason reason) { return {reason, tuttiSuccess, MPI_SUCCESS}; }
  // NOLINTNEXTLINE(google-explicit-constructor): what tutti returns is the outcome.
  Outcome(tuttiResult_t of_tutti) : result(of_tutti) {}
  Outcome(Reason passed, tuttiResult_t of_tutti, int of_mpi) : reason(passed), result(of_tutti), error(of_mpi) {}
};

// A block of a buffer of the caller's.
struct Block {
  std::byte* address = nullptr;
  std::size_t count = 0;
  MPI_Datatype type = MPI_DATATYPE_NULL;
  Layout layout;

  Block(const void* buffer, std::size_t elements, MPI_Datatype of)
      : address(static_cast<std::byte*>(const_cast<void*>(buffer))), count(elements), type(of), layout(layout_of(of)) {}
  Block(const void* buffer, std::size_t elements, MPI_Datatype of, const Layout& known)
      : address(static_cast<std::byte*>(const_cast<void*>(buffer))), count(elements), type(of), layout(known) {}
  // `elements` extents further.
  [[nodiscard]] Block at(MPI_Aint elements, std::size_t length) const {
    return {address + elements * layout.extent, length, type, layout};
  }
  [[nodiscard]] std::size_t bytes() const { return count * layout.bytes; }
};

enum class Mode {
  kBlocking,
  kQueued,
  kChecked,  // only whether the call would be taken, queued: nothing is done, no memory touched
};

class Work {
 public:
  Work(Communicator& communicator, Mode mode)
      : communicator_(communicator), comm_(communicator.comm), lane_(communicator.lane), mode_(mode) {}
  // In a lane beside the communicator's.
  Work(Communicator& communicator, Mode mode, Lane& lane)
      : communicator_(communicator), comm_(lane.comm), lane_(&lane), mode_(mode) {}
  ~Work();
  Work(const Work&) = delete;
  Work& operator=(const Work&) = delete;

  [[nodiscard]] Communicator& communicator() const { return communicator_; }
  [[nodiscard]] tuttiComm_t comm() const { return comm_; }
  [[nodiscard]] int rank() const { return communicator_.rank; }
  [[nodiscard]] int ranks() const { return communicator_.ranks; }
  [[nodiscard]] bool nonblocking() const { return mode_ != Mode::kBlocking; }
  // Whether it is better left to the MPI library: nonblocking, and short. `bytes` that all ranks know: of the longest
  // buffer.
  [[nodiscard]] bool is_short(std::size_t bytes) const;
  [[nodiscard]] bool checked() const { return mode_ == Mode::kChecked; }
  // The stream of the operations; NULL to block.
  tuttiStream_t stream();

  std::byte* scratch(std::size_t bytes);
  // From and to which `other` is copied fast.
  std::byte* scratch_alike(std::size_t bytes, const std::byte* other);
  // The block's bytes as they are sent: where they lie, or packed.
  const std::byte* sent(const Block& block);
  // The `bytes` that this rank sends, copied elsewhere if they overlap the memory that it receives into. MPI allows the
  // overlap only in place, but MPI libraries accept many other cases.
  const std::byte* apart(const std::byte* from, std::size_t bytes, const std::byte* received,
                         std::size_t received_bytes);
  void pack_into(std::byte* to, const Block& block);
  // Memory for what is received: where it belongs, or what finish() unpacks.
  std::byte* received(const Block& block);
  void unpack_later(const std::byte* from, const Block& block) { unpack_later(from, block, block.bytes()); }
  // `bytes` have been received, which may be more or less than the block has: more is MPI_ERR_TRUNCATE, and what the
  // block has no room for is dropped; the rest of a block that gets less stays as it is.
  void unpack_later(const std::byte* from, const Block& block, std::size_t bytes);
  void move_later(const std::byte* from, std::byte* to, std::size_t bytes);
  // Finishes the work after the operation has succeeded. Returns MPI_SUCCESS, or an error for which the error handler
  // has been called: the first error of packing, or MPI_ERR_TRUNCATE.
  int finish();
  [[nodiscard]] int error() const { return error_; }
  // Of an operation in a stream, which uses the memory meanwhile: work that ends before waits for it.
  void begun() { runs_ = true; }
  void ended() { runs_ = false; }
  // Of one that has failed, whichever way it was called.
  void failed();

  Reduction reduction;

 private:
  struct Later {
    const std::byte* from;
    std::size_t bytes;
    Block block;
    bool own_type;
  };

  int unpack_part(const Later& later);

  Communicator& communicator_;
  tuttiComm_t comm_;
  Lane* lane_;
  Mode mode_;
  bool runs_ = false;
  int error_ = MPI_SUCCESS;
  bool truncated_ = false;
  std::vector<Scratch> scratch_;
  std::vector<Later> later_;
  const std::byte* move_from_ = nullptr;
  std::byte* move_to_ = nullptr;
  std::size_t move_bytes_ = 0;
};

// Says once which call has failed, and what tutti's error is, and calls the communicator's error handler.
// comm: tutti's, in which `result` was met.
int report_failure(const Communicator& communicator, Function function, Form form, tuttiComm_t comm,
                   tuttiResult_t result);

}  // namespace tutti::mpi

#endif  // TUTTI_BINDINGS_MPI_WORK_H_
