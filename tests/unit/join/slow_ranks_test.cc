// Ranks that are alive, but read late while they are sent much data. The kernel's limit for unread data was 15 s.
#include <sys/mman.h>

#include <atomic>
#include <csignal>
#include <new>
#include <string>

#include "by_hand.h"
#include "catch_compat.h"
#include "join/tree_builder.h"
#include "ranks.h"

using namespace tutti::internal;
using tutti::internal::test::Child;
using tutti::internal::test::connect_to;
using tutti::internal::test::on_threads;
using tutti::internal::test::registration_of;

namespace {

constexpr std::int64_t kInitMs = 120'000;
constexpr int kLateMs = 19'000;
constexpr std::size_t kMuch = std::size_t{16} << 20;  // more than the buffers of a connection hold

Settings loopback() {
  Settings settings;
  settings.interface = "lo";
  return settings;
}

Deadline init_deadline() {
  return Deadline::after_ms(kInitMs);
}

void sleep_ms(int ms) {
  std::this_thread::sleep_for(std::chrono::milliseconds(ms));
}

// The same number of bytes for every rank, with different contents.
std::string part_of(int rank, std::size_t bytes) {
  return std::string(bytes, static_cast<char>('a' + rank));
}

Status join_soon(const UniqueIdBytes& id, int rank, int ranks, Job* job) {
  Result<Job> joined = join(id, rank, ranks, loopback(), init_deadline());
  if (joined.is_ok()) *job = std::move(*joined);
  return joined.status();
}

Status gather(ControlTree* tree, int rank, int ranks, std::size_t bytes) {
  auto all = tree->all_gather(part_of(rank, bytes), init_deadline());
  if (!all.is_ok()) return all.status();
  for (int r = 0; r < ranks; ++r) {
    if ((*all)[static_cast<std::size_t>(r)] != part_of(r, bytes)) return Status::internal("wrong part");
  }
  return {};
}

// Joins by hand, and connects to its parent late.
Status join_late(const UniqueIdBytes& id, int rank, int ranks, std::size_t bytes, Job* job) {
  const RootContact contact = decode_unique_id(id).value();
  net::ByteStream root = connect_to(contact.addresses, contact.secret, {net::Purpose::kRoot, rank, 0, 1}, -1);
  UniqueFd listener = net::listen_tcp(0, 0).value();
  const std::string own = "127.0.0.1:" + std::to_string(net::local_address(listener.get())->port());
  const Registration registration = registration_of(rank, ranks, kInitMs, {own});
  if (Status s = net::send_frame(&root, registration.serialize(), init_deadline()); !s.is_ok()) return s;
  Result<std::string> answer = net::recv_frame(&root, kMaxPlacementBytes, init_deadline());
  if (!answer.is_ok()) return answer.status();
  const Placement placement = Placement::parse(*answer).value();
  sleep_ms(kLateMs);
  const Settings settings = loopback();
  const Secret session = session_secret(contact.secret, placement.nonce).value();
  Status s = connect_tree({rank, ranks, settings, init_deadline()}, session, Encryption::kOff, registration, placement,
                          std::move(listener), std::move(root), job);
  return s.is_ok() ? gather(job->tree.get(), rank, ranks, bytes) : s;
}

}  // namespace

TEST_CASE("init succeeds if a rank that waits for a late child receives much data meanwhile") {
  constexpr int kRanks = 6;  // rank 5 is below rank 1
  const std::size_t bytes = kMuch / 4;
  Result<UniqueIdBytes> id = create_unique_id(loopback());
  REQUIRE(id.is_ok());
  std::vector<Status> statuses(kRanks);
  std::vector<Job> jobs(kRanks);  // no rank leaves before all are done
  on_threads(kRanks, [&](int rank) {
    Status& status = statuses[static_cast<std::size_t>(rank)];
    Job& job = jobs[static_cast<std::size_t>(rank)];
    if (rank == 5) {
      status = join_late(*id, rank, kRanks, bytes, &job);
      return;
    }
    status = join_soon(*id, rank, kRanks, &job);
    if (status.is_ok()) status = gather(job.tree.get(), rank, kRanks, bytes);
  });
  for (const Status& status : statuses) CHECK(status.message() == "");
}

TEST_CASE("a rank that is stopped while it receives much data is waited for", "[fork]") {
  constexpr int kRanks = 3;
  struct Shared {
    std::atomic<bool> joined{false};
  };
  void* const memory = ::mmap(nullptr, sizeof(Shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  REQUIRE(memory != MAP_FAILED);
  auto* const shared = new (memory) Shared();
  Result<UniqueIdBytes> id = create_unique_id(loopback());
  REQUIRE(id.is_ok());
  Child stopped([&]() -> int {
    Result<Job> job = join(*id, 2, kRanks, loopback(), init_deadline());
    if (!job.is_ok() || !gather(job->tree.get(), 2, kRanks, 1).is_ok()) return 1;
    shared->joined = true;
    const Status s = gather(job->tree.get(), 2, kRanks, kMuch);
    job->tree->leave();
    return s.is_ok() ? 0 : 2;
  });
  std::vector<Status> statuses(2);
  std::vector<Job> jobs(2);
  on_threads(2, [&](int rank) {
    Status& status = statuses[static_cast<std::size_t>(rank)];
    Job& job = jobs[static_cast<std::size_t>(rank)];
    status = join_soon(*id, rank, kRanks, &job);
    if (status.is_ok()) status = gather(job.tree.get(), rank, kRanks, 1);
    if (!status.is_ok()) return;
    if (rank == 0) {
      if (!test::eventually([&] { return shared->joined.load(); })) status = Status::internal("rank 2 is late");
      stopped.kill(SIGSTOP);
    } else {
      sleep_ms(kLateMs);
      stopped.kill(SIGCONT);
    }
    if (status.is_ok()) status = gather(job.tree.get(), rank, kRanks, kMuch);
  });
  for (const Status& status : statuses) CHECK(status.message() == "");
  CHECK(stopped.wait() == 0);
  ::munmap(memory, sizeof(Shared));
}

// Ranks 1 and 2 join by hand: rank 2 never connects to rank 0, and rank 1 sends it announcements without end.
TEST_CASE("init names a rank that sends too much before the control tree is connected") {
  constexpr int kRanks = 3;
  Result<UniqueIdBytes> id = create_unique_id(loopback());
  REQUIRE(id.is_ok());
  const RootContact contact = decode_unique_id(*id).value();
  std::vector<Status> statuses(kRanks);
  on_threads(kRanks, [&](int rank) {
    if (rank == 0) {
      Job job;
      statuses[0] = join_soon(*id, 0, kRanks, &job);
      return;
    }
    Status& status = statuses[static_cast<std::size_t>(rank)];
    net::ByteStream root = connect_to(contact.addresses, contact.secret, {net::Purpose::kRoot, rank, 0, 1}, -1);
    const Registration registration = registration_of(rank, kRanks, kInitMs, {"127.0.0.1:9"});
    status = net::send_frame(&root, registration.serialize(), init_deadline());
    const std::string answer = net::recv_frame(&root, kMaxPlacementBytes, init_deadline()).value();
    if (rank == 1) {
      const Placement placement = Placement::parse(answer).value();
      std::vector<net::Address> parent;
      for (const std::string& text : placement.parent_addresses) parent.push_back(net::parse_address(text).value());
      const Secret session = session_secret(contact.secret, placement.nonce).value();
      net::ByteStream up = connect_to(parent, session, {net::Purpose::kTree, rank, 0, 1}, 0);
      const std::string much(std::size_t{1} << 20, 'x');
      for (int sent_mib = 0; sent_mib < 400; ++sent_mib) {
        if (!net::send_frame(&up, much, init_deadline()).is_ok()) break;
      }
    }
    (void)net::recv_frame(&root, kMaxPlacementBytes, init_deadline());  // until rank 0 has failed
  });
  CHECK(statuses[0].code() == Code::kRemoteError);
  CHECK(statuses[0].message().find("rank 1 ") != std::string::npos);
  CHECK(statuses[0].message().find("before the control tree was connected") != std::string::npos);
  const std::size_t at = statuses[0].message().find(" sent ");
  REQUIRE(at != std::string::npos);
  CHECK(std::stoull(statuses[0].message().substr(at + 6)) < 80'000'000);  // not everything that could have been read
}
