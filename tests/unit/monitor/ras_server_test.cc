// The duty that answers clients of NCCL's RAS protocol, in a process with a rank of a communicator whose other rank it
// must ask.
#include <poll.h>

#include <chrono>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "catch_compat.h"
#include "control/control_tree.h"
#include "monitor/live_communicators.h"
#include "monitor/ras.h"
#include "net/socket.h"
#include "observe/event_ring.h"
#include "temporary_folder.h"
#include "variable.h"

namespace tutti::internal::test {
namespace {

constexpr std::uint64_t kId = 0xabc;
constexpr std::int64_t kLongMs = 100'000;

// Its ranks are asked, and answer when the test says so.
class Surveyed final : public monitor::Surveyor {
 public:
  [[nodiscard]] monitor::PeerPlace place_of(int /*rank*/) const override { return {"b", 77}; }
  [[nodiscard]] std::vector<int> dead() const override { return {}; }
  void ask_all(std::int64_t /*patience_ms*/) override { ++asked_; }
  [[nodiscard]] int asked() const { return asked_; }

 private:
  int asked_ = 0;
};

// One round of the monitor's loop; returns how long it waited.
std::chrono::nanoseconds turn(monitor::Duty& duty, int most_ms) {
  net::PollSet set;
  set.clear(most_ms);
  duty.prepare(&set);
  const auto begun = std::chrono::steady_clock::now();
  REQUIRE(set.wait().is_ok());
  const auto waited = std::chrono::steady_clock::now() - begun;
  duty.advance(set);
  return waited;
}

TEST_CASE("monitor: when the clients that asked have gone, the answers of other ranks let the server sleep") {
  const TemporaryFolder folder;
  const std::string path = folder.file("socket");
  const Variable address("TUTTI_RAS_ADDR", "unix:" + path);
  const auto ring = observe::EventRing::open(kId, 0, 2);
  Surveyed surveyor;
  const monitor::LiveCommunicator live(kId, surveyor);
  const auto server = monitor::make_ras();
  REQUIRE(server != nullptr);
  {
    auto to = net::Address::unix_path(path);
    REQUIRE(to.is_ok());
    auto client = net::start_connect(*to);
    REQUIRE(client.is_ok());
    const std::string line = "STATUS\n";
    const Deadline limit = Deadline::after_ms(kLongMs);
    REQUIRE(net::send_all(client->get(), std::as_bytes(std::span(line)), limit).is_ok());
    while (surveyor.asked() == 0 && !limit.passed()) turn(*server, 10);
    REQUIRE(surveyor.asked() == 1);
  }
  turn(*server, 10);
  monitor::deliver_survey(kId, Answer{});
  // Without a client that takes the answer.
  bool sleeps = false;
  for (int i = 0; i < 1000 && !sleeps; ++i) sleeps = turn(*server, 500) > std::chrono::milliseconds(300);
  CHECK(sleeps);
}

}  // namespace
}  // namespace tutti::internal::test
