#include "scratch.h"

#include <tutti/tutti.h>

#include <algorithm>
#include <atomic>
#include <bit>
#include <mutex>
#include <utility>
#include <vector>

namespace tutti::mpi {
namespace {

// Smaller pieces are what malloc keeps by itself.
constexpr std::size_t kLargeBytes = std::size_t{32} << 10U;
constexpr std::size_t kMostKeptBytes = std::size_t{128} << 20U;
constexpr std::size_t kMostKept = kMostKeptBytes / kLargeBytes;
// Each holds a file open, whether a call uses it or not.
constexpr int kMostMapped = 64;
std::atomic<int> mapped_pieces{0};

bool is_kept(std::size_t bytes) {
  return bytes >= kLargeBytes && bytes <= kMostKeptBytes;
}

// Pieces that no call uses, the one that was used last at the end.
class Kept {
 public:
  Kept() { pieces_.reserve(kMostKept); }

  Piece take(std::size_t bytes) {
    const std::lock_guard lock(mutex_);
    const auto found =
        std::find_if(pieces_.rbegin(), pieces_.rend(), [&](const auto& kept) { return kept.first == bytes; });
    if (found == pieces_.rend()) return nullptr;
    Piece piece = std::move(found->second);
    pieces_.erase(std::next(found).base());
    kept_bytes_ -= bytes;
    return piece;
  }

  // Takes no memory: destructors call it.
  void give(Piece piece, std::size_t bytes) noexcept {
    const std::lock_guard lock(mutex_);
    auto oldest = pieces_.begin();
    for (; kept_bytes_ + bytes > kMostKeptBytes; ++oldest) kept_bytes_ -= oldest->first;
    pieces_.erase(pieces_.begin(), oldest);
    pieces_.emplace_back(bytes, std::move(piece));
    kept_bytes_ += bytes;
  }

  // The mapped one that has not been used for longest. False: there is none.
  bool free_mapped() {
    const std::lock_guard lock(mutex_);
    const auto found =
        std::find_if(pieces_.begin(), pieces_.end(), [](const auto& kept) { return kept.second.get_deleter().mapped; });
    if (found == pieces_.end()) return false;
    kept_bytes_ -= found->first;
    pieces_.erase(found);
    return true;
  }

 private:
  std::mutex mutex_;
  std::vector<std::pair<std::size_t, Piece>> pieces_;
  std::size_t kept_bytes_ = 0;
};

// Never freed: a program may leave a call's memory behind when it calls exit.
Kept& kept() {
  static auto* const kKept = new Kept;
  return *kKept;
}

// Peers read large blocks from where they are packed.
Piece mapped(std::size_t bytes) {
  void* memory = nullptr;
  bool counted = mapped_pieces.fetch_add(1) < kMostMapped;
  while (!counted && kept().free_mapped()) counted = mapped_pieces.load() <= kMostMapped;
  if (!counted || tuttiMemAlloc(&memory, bytes) != tuttiSuccess) {
    mapped_pieces.fetch_sub(1);
    return nullptr;
  }
  return Piece(static_cast<std::byte*>(memory), Free{true});
}

}  // namespace

void Free::operator()(std::byte* piece) const {
  if (mapped) {
    tuttiMemFree(piece);
    mapped_pieces.fetch_sub(1);
  } else {
    delete[] piece;
  }
}

Scratch::Scratch(std::size_t bytes) : bytes_(std::max<std::size_t>(1, bytes)), kept_(is_kept(bytes_)) {
  // Few sizes, so that kept pieces serve.
  if (kept_) {
    bytes_ = std::bit_ceil(bytes_);
    piece_ = kept().take(bytes_);
    if (piece_ == nullptr) piece_ = mapped(bytes_);
  }
  if (piece_ == nullptr) piece_ = Piece(new std::byte[bytes_], Free{});
}

Scratch::~Scratch() {
  if (piece_ != nullptr && kept_) kept().give(std::move(piece_), bytes_);
}

}  // namespace tutti::mpi
