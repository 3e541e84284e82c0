// Calls of every kind that moves data, drawn at random, and each rank's side of one compared with a naive model. All
// bytes of its buffers are compared: results, gaps between blocks, inputs, and guards around them.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "base/types.h"
#include "trial.h"

namespace tutti::internal::test {

// The same on all ranks. Ranks are those of its communicator.
struct Move {
  enum class Operator : std::uint8_t {
    kSum,      // the library's sum
    kAdd,      // a function that commutes
    kCompose,  // a function that does not
  };
  std::uint32_t number = 0;  // determines the data
  int comm = 0;
  bool transfer = false;  // from `root` to `peer`; else a collective
  Collective collective = Collective::kBarrier;
  int root = 0;
  int peer = 0;
  std::size_t element_bytes = 1;
  bool own_type = false;  // made by tuttiTypeCreate
  Operator op = Operator::kSum;
  bool in_place = false;
  std::size_t count = 0;            // if counts are equal
  std::vector<std::size_t> counts;  // otherwise by rank; for an all-to-all at [from * ranks + to]

  [[nodiscard]] std::string text() const;
};

// Any collective, or with `transfer` a send and its receive. A buffer has about `most_bytes` at most.
Move draw_move(std::mt19937& random, bool transfer, int ranks, std::size_t most_bytes);
// With different counts, and otherwise equal.
Move draw_another(std::mt19937& random, const Move& move, int ranks, std::size_t most_bytes);

// One rank's side of a collective, of a send or of a receive. REQUIRES: prepare, issue, release, and check when the
// operation is complete; it must not move from `issue` until then.
class Side {
 public:
  // `sends`: of a transfer.
  Side(Move move, int rank, int ranks, bool sends);
  Side(const Side&) = delete;
  Side& operator=(const Side&) = delete;

  // `registered`: in memory from tuttiMemAlloc. False if memory is missing.
  bool prepare(bool registered, std::size_t misalign);
  // Makes the datatype and the operator of the call.
  tuttiResult_t issue(tuttiComm_t comm, void* stream);
  // Releases that datatype and operator, which queued operations keep.
  tuttiResult_t release(tuttiComm_t comm);
  // Empty, or what is wrong.
  [[nodiscard]] std::string check() const;
  [[nodiscard]] const Move& move() const { return move_; }
  // Fills the buffer that the operation writes; checks that it still has the fill.
  void fill_output(std::byte value);
  [[nodiscard]] bool output_is(std::byte value) const;

 private:
  // Of a buffer with a block for each rank, or with one block. In elements.
  struct Blocks {
    std::vector<std::size_t> count;
    std::vector<std::size_t> at;
    std::size_t size = 0;
  };
  // The contents of an output at `to`: the inputs of the ranks from `first` to before `last`, at `from`, combined.
  struct Piece {
    std::size_t to;
    std::size_t count;
    int first;
    int last;
    std::size_t from;
  };
  struct Buffer {
    Memory memory;
    std::byte* begin = nullptr;  // with guards
    std::byte* data = nullptr;
    std::vector<std::byte> expected;  // from `begin` on
  };
  using Combine = void (*)(const std::byte* earlier, const std::byte* later, std::byte* result, std::size_t size);
  struct Context {
    Combine combine = nullptr;
    std::size_t size = 0;
    tuttiDataType_t datatype = tuttiUint8;
    std::atomic<bool> wrong{false};
  };
  static void call(const void* in, void* inout, std::size_t count, tuttiDataType_t datatype, void* context);

  [[nodiscard]] Blocks blocks(bool sent, int rank) const;
  [[nodiscard]] std::size_t elements(bool sent) const;
  [[nodiscard]] std::vector<Piece> pieces() const;
  [[nodiscard]] const CollectiveInfo& info() const { return info_of(move_.collective); }
  [[nodiscard]] bool all_to_all() const { return info().origin == Origin::kPeer; }
  bool open(Buffer* buffer, std::size_t elements, bool registered, std::size_t misalign);
  void put_input(Buffer* buffer, std::size_t at, std::size_t count);
  void expect(const Piece& piece, std::byte* target) const;
  tuttiResult_t issue_collective(tuttiComm_t comm, void* stream);
  tuttiResult_t issue_varying(tuttiComm_t comm, void* stream);

  Move move_;
  int rank_;
  int ranks_;
  bool sends_;
  Buffer in_;
  Buffer out_;
  bool shared_ = false;  // in place: both in out_
  const std::byte* from_ = nullptr;
  std::byte* to_ = nullptr;
  tuttiDataType_t type_ = tuttiUint8;
  tuttiRedOp_t op_ = tuttiSum;
  bool made_type_ = false;
  bool made_op_ = false;
  Context context_;
};

}  // namespace tutti::internal::test
