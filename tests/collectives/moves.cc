#include "moves.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <utility>

#include "elements.h"

namespace tutti::internal::test {
namespace {

constexpr std::byte kUntouched{0xa5};
constexpr std::size_t kGuardBytes = 16;

// The bytes of what `rank` gives.
void fill(std::byte* target, std::uint32_t move, int rank, std::size_t first, std::size_t bytes) {
  const std::uint32_t key = move * 2654435761u + static_cast<std::uint32_t>(rank) * 0x9e3779b9u;
  for (std::size_t i = first; i < first + bytes; ++i) {
    const std::uint32_t x = (key ^ static_cast<std::uint32_t>(i)) * 0x85ebca6bu;
    *target++ = low(x >> 24);
  }
}

tuttiDataType_t type_of(std::size_t element_bytes) {
  switch (element_bytes) {
    case 2: return tuttiUint16;
    case 4: return tuttiUint32;
    case 8: return tuttiUint64;
    default: return tuttiUint8;
  }
}

std::size_t draw_count(std::mt19937& random, std::size_t most) {
  switch (random() % 6) {
    case 0: return random() % 4;
    case 1: return random() % (most + 1);
    default: return 1 + random() % std::min<std::size_t>(most + 1, 200);
  }
}

void draw_counts(std::mt19937& random, int ranks, std::size_t most_bytes, Move* m) {
  const auto n = static_cast<std::size_t>(ranks);
  const std::size_t blocks = m->transfer ? 1 : blocks_of(m->collective, ranks);
  const std::size_t most = most_bytes / m->element_bytes / blocks;
  m->count = draw_count(random, most);
  if (m->transfer || !varies(m->collective)) return;
  const bool matrix = m->collective == Collective::kAllToAllV;
  m->counts.resize(matrix ? n * n : n);
  for (std::size_t& c : m->counts) c = random() % 5 == 0 ? 0 : draw_count(random, most);
  if (!matrix || !m->in_place) return;
  // In place, a rank sends each as much as it gets from it.
  for (std::size_t a = 0; a < n; ++a) {
    for (std::size_t b = 0; b < a; ++b) m->counts[a * n + b] = m->counts[b * n + a];
  }
}

}  // namespace

std::string Move::text() const {
  std::string s = transfer ? "transfer" : name_of(collective);
  if (transfer || has_root(collective)) s.append(transfer ? " from " : " root ").append(std::to_string(root));
  if (transfer) s.append(" to ").append(std::to_string(peer));
  s.append(" of ").append(std::to_string(count)).append(" x ").append(std::to_string(element_bytes)).append(" bytes");
  if (own_type) s += " (a datatype of its own)";
  constexpr const char* kOperators[] = {", sum", ", add", ", compose"};
  if (!transfer && reduces(collective)) s += kOperators[static_cast<int>(op)];
  if (!counts.empty()) s += ", counts";
  for (const std::size_t c : counts) s.append(" ").append(std::to_string(c));
  return s + (in_place ? ", in place" : "") + ", communicator " + std::to_string(comm);
}

Move draw_move(std::mt19937& random, bool transfer, int ranks, std::size_t most_bytes) {
  const auto any = [&] { return static_cast<int>(random() % static_cast<unsigned>(ranks)); };
  Move m;
  m.number = static_cast<std::uint32_t>(random());
  m.transfer = transfer;
  m.root = any();
  m.peer = any();
  m.own_type = random() % 3 == 0;
  constexpr std::array<std::size_t, 4> kTypes = {1, 2, 4, 8};
  constexpr std::array<std::size_t, 6> kOwnTypes = {1, 3, 12, 24, 100, 1000};
  m.element_bytes = m.own_type ? kOwnTypes[random() % kOwnTypes.size()] : kTypes[random() % kTypes.size()];
  if (!transfer) {
    m.collective = static_cast<Collective>(random() % kCollectives);
    m.in_place = random() % 3 == 0;
    if (reduces(m.collective)) {
      const bool sum = !m.own_type && random() % 4 != 0;
      m.op = sum ? Move::Operator::kSum : random() % 2 == 0 ? Move::Operator::kAdd : Move::Operator::kCompose;
    }
  }
  draw_counts(random, ranks, most_bytes, &m);
  return m;
}

Move draw_another(std::mt19937& random, const Move& move, int ranks, std::size_t most_bytes) {
  Move m = move;
  m.number = static_cast<std::uint32_t>(random());
  draw_counts(random, ranks, most_bytes, &m);
  return m;
}

Side::Side(Move move, int rank, int ranks, bool sends)
    : move_(std::move(move)), rank_(rank), ranks_(ranks), sends_(sends) {}

Side::Blocks Side::blocks(bool sent, int rank) const {
  const auto n = static_cast<std::size_t>(ranks_);
  const auto me = static_cast<std::size_t>(rank);
  Blocks b;
  b.count.assign(move_.transfer ? 1 : blocks_of(move_.collective, ranks_), move_.count);
  for (std::size_t k = 0; k < n && !move_.counts.empty(); ++k) {
    const bool matrix = all_to_all();
    b.count[k] = move_.counts[!matrix ? k : sent ? me * n + k : k * n + me];
  }
  b.at.resize(b.count.size());
  // With displacements: gaps, and the blocks backwards on every other rank.
  const bool placed = !move_.counts.empty() && move_.collective != Collective::kReduceScatterV && move_.number % 3 != 0;
  const bool backwards = placed && (move_.number + me) % 2 == 0;
  const std::size_t gap = placed ? (move_.number + me) % 3 : 0;
  for (std::size_t i = 0; i < b.count.size(); ++i) {
    const std::size_t k = backwards ? b.count.size() - 1 - i : i;
    b.size += gap;
    b.at[k] = b.size;
    b.size += b.count[k];
  }
  b.size += gap;
  return b;
}

std::size_t Side::elements(bool sent) const {
  if (move_.transfer) return sent == sends_ ? move_.count : 0;
  if (!info().has_data) return 0;
  const Holds holds = sent ? info().input : info().output;
  if (!has_any(holds, rank_, move_.root)) return 0;
  const Blocks b = blocks(sent, rank_);
  return holds == Holds::kOwnBlock ? b.count[static_cast<std::size_t>(rank_)] : b.size;
}

std::vector<Side::Piece> Side::pieces() const {
  if (move_.transfer) {
    if (sends_) return {};
    return {{0, move_.count, move_.root, move_.root + 1, 0}};
  }
  if (!info().has_data || !has_any(info().output, rank_, move_.root)) return {};
  const Blocks got = blocks(false, rank_);
  const auto me = static_cast<std::size_t>(rank_);
  const bool own = gets_own_block(move_.collective);
  switch (info().origin) {
    case Origin::kAllCombined: return {{0, own ? got.count[me] : got.size, 0, ranks_, own ? got.at[me] : 0}};
    case Origin::kRoot: {
      const Blocks sent = blocks(true, move_.root);
      return {{0, own ? sent.count[me] : sent.size, move_.root, move_.root + 1, own ? sent.at[me] : 0}};
    }
    case Origin::kPrefix: return {{0, got.size, 0, rank_ + 1, 0}};
    case Origin::kPrefixBefore: return {{0, got.size, 0, rank_, 0}};
    case Origin::kOwner:
    case Origin::kPeer: break;
  }
  std::vector<Piece> all;
  for (int r = 0; r < ranks_; ++r) {
    const auto k = static_cast<std::size_t>(r);
    all.push_back({got.at[k], got.count[k], r, r + 1, all_to_all() ? blocks(true, r).at[me] : 0});
  }
  return all;
}

bool Side::open(Buffer* buffer, std::size_t elements, bool registered, std::size_t misalign) {
  const std::size_t bytes = elements * move_.element_bytes;
  const std::size_t before = kGuardBytes + misalign;
  buffer->expected.assign(before + bytes + kGuardBytes, kUntouched);
  buffer->begin = buffer->memory.get(buffer->expected.size(), registered);
  if (buffer->begin == nullptr) return false;
  std::memset(buffer->begin, static_cast<int>(kUntouched), buffer->expected.size());
  buffer->data = buffer->begin + before;
  return true;
}

void Side::put_input(Buffer* buffer, std::size_t at, std::size_t count) {
  const std::size_t bytes = count * move_.element_bytes;
  std::byte* const target = buffer->data + at * move_.element_bytes;
  fill(target, move_.number, rank_, 0, bytes);
  if (bytes != 0) std::memcpy(buffer->expected.data() + (target - buffer->begin), target, bytes);
}

// REQUIRES: `target` has the piece's place.
void Side::expect(const Piece& piece, std::byte* target) const {
  const std::size_t size = move_.element_bytes;
  const std::size_t bytes = piece.count * size;
  fill(target, move_.number, piece.first, piece.from * size, bytes);
  std::vector<std::byte> next(piece.last - piece.first > 1 ? bytes : 0);
  const Combine combine = move_.op == Move::Operator::kCompose ? &compose : &add;
  for (int r = piece.first + 1; r < piece.last; ++r) {
    fill(next.data(), move_.number, r, piece.from * size, bytes);
    for (std::size_t i = 0; i < bytes; i += size) combine(target + i, &next[i], target + i, size);
  }
}

bool Side::prepare(bool registered, std::size_t misalign) {
  const std::size_t sent = elements(true);
  const std::size_t received = elements(false);
  shared_ = move_.in_place && sent != 0 && received != 0;
  if (!open(&in_, shared_ ? 0 : sent, registered, misalign)) return false;
  if (!open(&out_, shared_ ? std::max(sent, received) : received, registered, misalign)) return false;
  from_ = in_.data;
  to_ = out_.data;
  if (shared_) {
    // The buffer that holds a block lies in the one that holds all of them.
    const auto me = static_cast<std::size_t>(rank_);
    std::size_t at = 0;
    if (info().input == Holds::kOwnBlock) at = blocks(false, rank_).at[me];
    if (gets_own_block(move_.collective)) to_ += blocks(true, rank_).at[me] * move_.element_bytes;
    from_ = out_.data + at * move_.element_bytes;
    put_input(&out_, at, sent);
  } else {
    put_input(&in_, 0, sent);
  }
  std::byte* const output = out_.expected.data() + (to_ - out_.begin);
  for (const Piece& piece : pieces()) {
    if (piece.last > piece.first) expect(piece, output + piece.to * move_.element_bytes);
  }
  return true;
}

void Side::call(const void* in, void* inout, std::size_t count, tuttiDataType_t datatype, void* context) {
  auto& c = *static_cast<Context*>(context);
  if (datatype != c.datatype || count == 0) c.wrong = true;
  for (std::size_t i = 0; i < count; ++i) {
    auto* const later = static_cast<std::byte*>(inout) + i * c.size;
    c.combine(static_cast<const std::byte*>(in) + i * c.size, later, later, c.size);
  }
}

tuttiResult_t Side::issue(tuttiComm_t comm, void* stream) {
  type_ = type_of(move_.element_bytes);
  if (move_.own_type) {
    if (const auto r = tuttiTypeCreate(&type_, move_.element_bytes, comm); r != tuttiSuccess) return r;
    made_type_ = true;
  }
  if (move_.transfer) {
    return sends_ ? tuttiSend(from_, move_.count, type_, move_.peer, comm, stream)
                  : tuttiRecv(to_, move_.count, type_, move_.root, comm, stream);
  }
  if (move_.op != Move::Operator::kSum) {
    const bool commutes = move_.op == Move::Operator::kAdd;
    context_.combine = commutes ? &add : &compose;
    context_.size = move_.element_bytes;
    context_.datatype = type_;
    if (const auto r = tuttiRedOpCreate(&op_, &Side::call, &context_, commutes ? 1 : 0, comm); r != tuttiSuccess)
      return r;
    made_op_ = true;
  }
  return varies(move_.collective) ? issue_varying(comm, stream) : issue_collective(comm, stream);
}

tuttiResult_t Side::issue_collective(tuttiComm_t comm, void* stream) {
  const std::size_t count = move_.count;
  const int root = move_.root;
  switch (move_.collective) {
    case Collective::kAllReduce: return tuttiAllReduce(from_, to_, count, type_, op_, comm, stream);
    case Collective::kReduceScatter: return tuttiReduceScatter(from_, to_, count, type_, op_, comm, stream);
    case Collective::kAllGather: return tuttiAllGather(from_, to_, count, type_, comm, stream);
    case Collective::kBroadcast: return tuttiBroadcast(from_, to_, count, type_, root, comm, stream);
    case Collective::kReduce: return tuttiReduce(from_, to_, count, type_, op_, root, comm, stream);
    case Collective::kGather: return tuttiGather(from_, to_, count, type_, root, comm, stream);
    case Collective::kScatter: return tuttiScatter(from_, to_, count, type_, root, comm, stream);
    case Collective::kAllToAll: return tuttiAlltoAll(from_, to_, count, type_, comm, stream);
    case Collective::kScan: return tuttiScan(from_, to_, count, type_, op_, comm, stream);
    case Collective::kExscan: return tuttiExscan(from_, to_, count, type_, op_, comm, stream);
    default: return tuttiBarrier(comm, stream);
  }
}

tuttiResult_t Side::issue_varying(tuttiComm_t comm, void* stream) {
  const Blocks sent = blocks(true, rank_);
  const Blocks got = blocks(false, rank_);
  const bool packed = move_.number % 3 == 0;
  const std::size_t* const send_at = packed ? nullptr : sent.at.data();
  const std::size_t* const recv_at = packed ? nullptr : got.at.data();
  const std::size_t* const send_counts = sent.count.data();
  const std::size_t* const recv_counts = got.count.data();
  const std::size_t own = got.count[static_cast<std::size_t>(rank_)];
  const int root = move_.root;
  switch (move_.collective) {
    case Collective::kAllGatherV: return tuttiAllGatherV(from_, own, to_, recv_counts, recv_at, type_, comm, stream);
    case Collective::kReduceScatterV: return tuttiReduceScatterV(from_, to_, recv_counts, type_, op_, comm, stream);
    case Collective::kAllToAllV:
      return tuttiAlltoAllV(from_, send_counts, send_at, to_, recv_counts, recv_at, type_, comm, stream);
    case Collective::kGatherV: return tuttiGatherV(from_, own, to_, recv_counts, recv_at, type_, root, comm, stream);
    default: return tuttiScatterV(from_, send_counts, send_at, to_, own, type_, root, comm, stream);
  }
}

tuttiResult_t Side::release(tuttiComm_t comm) {
  tuttiResult_t result = tuttiSuccess;
  if (made_op_) result = tuttiRedOpDestroy(op_, comm);
  if (made_type_) {
    const tuttiResult_t type = tuttiTypeDestroy(type_, comm);
    result = result == tuttiSuccess ? type : result;
  }
  made_op_ = made_type_ = false;
  return result;
}

std::string Side::check() const {
  const std::string who = move_.text() + ", rank " + std::to_string(rank_) + " of " + std::to_string(ranks_) +
                          (move_.transfer ? sends_ ? " (sends)" : " (receives)" : "") + ": ";
  if (context_.wrong) return who + "the operator's function was called with what it should not be";
  for (const Buffer* b : {&in_, &out_}) {
    if (std::memcmp(b->begin, b->expected.data(), b->expected.size()) == 0) continue;
    const auto differ = std::mismatch(b->expected.begin(), b->expected.end(), b->begin).first - b->expected.begin();
    return who + "byte " + std::to_string(differ - (b->data - b->begin)) + " of its " +
           (b == &in_ ? "input"
            : shared_ ? "buffer"
                      : "output") +
           " is wrong";
  }
  return {};
}

void Side::fill_output(std::byte value) {
  std::fill_n(out_.begin, out_.expected.size(), value);
}

bool Side::output_is(std::byte value) const {
  return std::all_of(out_.begin, out_.begin + out_.expected.size(), [&](std::byte b) { return b == value; });
}

}  // namespace tutti::internal::test
