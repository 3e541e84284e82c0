#include "work.h"

#include <array>
#include <atomic>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <string>
#include <string_view>

#include "config.h"
#include "exceptions.h"
#include "progress.h"
#include "recovery.h"

namespace tutti::mpi {

Work::~Work() {
  if (runs_) {
    const Inside inside;
    if (tuttiStreamSynchronize(stream()) != tuttiSuccess) failed();
  }
  for (Later& later : later_) {
    if (later.own_type) PMPI_Type_free(&later.block.type);
  }
}

void Work::failed() {
  for (Scratch& scratch : scratch_) scratch.keep_no_more();
}

tuttiStream_t Work::stream() {
  if (!nonblocking()) return nullptr;
  if (lane_->stream == nullptr) tuttiStreamCreate(&lane_->stream);
  return lane_->stream;
}

bool Work::is_short(std::size_t bytes) const {
  return nonblocking() && bytes < static_cast<std::size_t>(config().nonblocking_bytes);
}

std::byte* Work::scratch(std::size_t bytes) {
  static std::byte never_touched{};
  if (checked()) return &never_touched;
  return scratch_.emplace_back(bytes).data();
}

// Some processors (Zen 3: 2 GB/s in place of 40) stumble over long copies whose source lies 1 to 31 bytes before the
// target, modulo pages: this one lies where `other` does.
std::byte* Work::scratch_alike(std::size_t bytes, const std::byte* other) {
  constexpr std::size_t kShortCopy = 2048;
  constexpr std::uintptr_t kPage = 4096;
  if (bytes < kShortCopy || checked()) return scratch(bytes);
  std::byte* const base = scratch(bytes + kPage);
  return base + (reinterpret_cast<std::uintptr_t>(other) - reinterpret_cast<std::uintptr_t>(base)) % kPage;
}

void Work::pack_into(std::byte* to, const Block& block) {
  if (checked()) return;
  const int error = pack(block.address, block.count, block.type, block.layout, to, communicator_.handle);
  if (error != MPI_SUCCESS) error_ = error;
}

const std::byte* Work::sent(const Block& block) {
  if (block.layout.dense) return block.address;
  std::byte* packed = scratch(block.bytes());
  pack_into(packed, block);
  return packed;
}

const std::byte* Work::apart(const std::byte* from, std::size_t bytes, const std::byte* received,
                             std::size_t received_bytes) {
  if (from >= received + received_bytes || received >= from + bytes || checked()) return from;
  std::byte* copy = scratch_alike(bytes, from);
  std::memcpy(copy, from, bytes);
  return copy;
}

std::byte* Work::received(const Block& block) {
  if (block.layout.dense) return block.address;
  std::byte* packed = scratch(block.bytes());
  unpack_later(packed, block);
  return packed;
}

void Work::unpack_later(const std::byte* from, const Block& block, std::size_t bytes) {
  if ((block.count == 0 && bytes == 0) || checked()) return;
  later_.push_back({from, bytes, block, false});
  // The program may free its datatype before a nonblocking call is complete.
  if (!nonblocking() || block.layout.predefined) return;
  if (PMPI_Type_dup(block.type, &later_.back().block.type) == MPI_SUCCESS) later_.back().own_type = true;
}

void Work::move_later(const std::byte* from, std::byte* to, std::size_t bytes) {
  move_from_ = from;
  move_to_ = to;
  move_bytes_ = bytes;
}

int Work::unpack_part(const Later& later) {
  const Block& block = later.block;
  const std::byte* from = later.from;
  if (later.bytes > block.bytes()) {
    truncated_ = true;
    return unpack(from, block.address, block.count, block.type, block.layout, communicator_.handle);
  }
  Scratch whole(block.bytes());
  pack_into(whole.data(), block);
  if (later.bytes > 0) std::memcpy(whole.data(), from, later.bytes);
  return unpack(whole.data(), block.address, block.count, block.type, block.layout, communicator_.handle);
}

int Work::finish() {
  for (const Later& later : later_) {
    const Block& block = later.block;
    const int error = later.bytes == block.bytes() ? unpack(later.from, block.address, block.count, block.type,
                                                            block.layout, communicator_.handle)
                                                   : unpack_part(later);
    if (error != MPI_SUCCESS) error_ = error;
  }
  if (move_bytes_ > 0) std::memmove(move_to_, move_from_, move_bytes_);
  if (truncated_) error_ = raise_error(communicator_.handle, MPI_ERR_TRUNCATE);
  return error_;
}

namespace {

// The error code, of the class MPI_ERR_OTHER, that error handlers get and whose text programs may query. Created at the
// first error, so that programs without an error keep their usual codes. Not with MPICH 4, where codes that are added
// to a predefined class have the texts of other codes.
int failure_code() {
#if defined(MPICH)
  return MPI_ERR_OTHER;
#else
  static const int kCode = [] {
    int code = MPI_ERR_OTHER;
    if (PMPI_Add_error_code(MPI_ERR_OTHER, &code) != MPI_SUCCESS) return MPI_ERR_OTHER;
    PMPI_Add_error_string(code, "tutti: a collective has failed; standard error says which, and why");
    return code;
  }();
  return kCode;
#endif
}

const char* text_of_failure(tuttiComm_t comm) {
  const char* const text = comm != nullptr ? tuttiGetLastError(comm) : "";
  return text[0] != '\0' ? text : tuttiGetLastError(nullptr);
}

void say_failure(const Communicator& communicator, Function function, Form form, const char* text) {
  std::array<char, MPI_MAX_OBJECT_NAME> name{};
  int length = 0;
  PMPI_Comm_get_name(communicator.handle, name.data(), &length);
  if (name[0] == '\0') std::snprintf(name.data(), name.size(), "a communicator of %d ranks", communicator.ranks);
  std::fprintf(stderr, "tutti: rank %d: %s on %s: %s\n", communicator.rank, name_of(function, form).data(), name.data(),
               text);
}

// A call as tutti describes it, as "operation 3, gather(count 4, uint8, root 0)", and that without its count.
struct Described {
  std::string call;
  std::string kind;
};

Described describe_call(std::string_view text, std::size_t at) {
  Described described;
  described.call = text.substr(at, text.find(')', at) - at);
  described.kind = described.call;
  const std::size_t count = described.call.find("(count");
  if (count == std::string::npos) return described;
  const std::size_t next = described.call.find(", ", count);
  described.kind.erase(count + 1, next == std::string::npos ? std::string::npos : next + 1 - count);
  return described;
}

// Whether the two calls that the text of a tuttiMismatch names differ only in their counts.
bool only_counts_differ(std::string_view text) {
  constexpr std::string_view kCall = "operation ";
  constexpr std::string_view kRuns = "runs ";
  const auto next = [&](std::size_t from) { return text.find(std::string(kRuns) + std::string(kCall), from); };
  const std::size_t first = next(0);
  const std::size_t second = first == std::string_view::npos ? first : next(first + 1);
  if (second == std::string_view::npos) return false;
  const Described one = describe_call(text, first + kRuns.size());
  const Described other = describe_call(text, second + kRuns.size());
  return one.kind == other.kind && one.call != other.call;
}

}  // namespace

int report_failure(const Communicator& communicator, Function function, Form form, tuttiComm_t comm,
                   tuttiResult_t result) {
  static std::atomic<bool> said{false};
  const std::string text = text_of_failure(comm);  // tutti's own may change while the MPI library makes progress
  int error = class_of_recoverable(communicator, result, text);
  if (result == tuttiMismatch && only_counts_differ(text)) error = MPI_ERR_TRUNCATE;
  // A revocation is the program's own doing.
  if (!is_revocation(error) && !said.exchange(true)) say_failure(communicator, function, form, text.c_str());
  return raise_error(communicator.handle, error == MPI_SUCCESS ? failure_code() : error);
}

}  // namespace tutti::mpi
