// tuttiConfig_t: its form, the domain of every field, and its precedence over the environment.
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include "catch_compat.h"
#include "tutti/tutti.h"
#include "variable.h"

namespace {

using tutti::internal::test::Variable;

tuttiConfig_t unset() {
  return TUTTI_CONFIG_INITIALIZER;
}

// The result of creating communicators in this process with `config`.
tuttiResult_t try_out(const tuttiConfig_t* config) {
  tuttiComm_t comm = nullptr;
  const tuttiResult_t result = tuttiCommInitAllConfig(&comm, 1, nullptr, config);
  CHECK((result == tuttiSuccess) == (comm != nullptr));
  if (result == tuttiSuccess) CHECK(tuttiCommDestroy(comm) == tuttiSuccess);
  return result;
}

void require_refused(const tuttiConfig_t* config, const std::vector<std::string>& expected_in_text) {
  REQUIRE(try_out(config) == tuttiInvalidArgument);
  const std::string text = tuttiGetLastError(nullptr);
  INFO(text);
  for (const std::string& expected : expected_in_text) CHECK(text.find(expected) != std::string::npos);
}

// The explanation of an all-reduce of 1 MiB by two ranks with `config`.
std::string explained(const tuttiConfig_t& config) {
  std::array<tuttiComm_t, 2> comms{};
  REQUIRE(tuttiCommInitAllConfig(comms.data(), 2, nullptr, &config) == tuttiSuccess);
  std::array<char, 128> text{};
  CHECK(tuttiCommExplain(comms[1], tuttiCollectiveAllReduce, 1 << 20, text.data(), text.size()) == tuttiSuccess);
  for (const tuttiComm_t comm : comms) CHECK(tuttiCommDestroy(comm) == tuttiSuccess);
  return text.data();
}

// The results of two ranks that call a different operation without data.
std::array<tuttiResult_t, 2> disagree(const tuttiConfig_t& config) {
  std::array<tuttiComm_t, 2> comms{};
  std::array<tuttiResult_t, 2> results{};
  REQUIRE(tuttiCommInitAllConfig(comms.data(), 2, nullptr, &config) == tuttiSuccess);
  std::vector<std::thread> threads;
  for (std::size_t r = 0; r < 2; ++r) {
    threads.emplace_back([&, r] {
      results[r] = tuttiAllReduce(nullptr, nullptr, 0, r == 0 ? tuttiInt32 : tuttiFloat32, tuttiSum, comms[r], nullptr);
    });
  }
  for (std::thread& t : threads) t.join();
  for (const tuttiComm_t comm : comms) CHECK(tuttiCommAbort(comm) == tuttiSuccess);
  return results;
}

// A caller compiled with a later version, which has two fields more.
struct Later {
  tuttiConfig_t known = unset();
  int number = 0;
  int another = 0;
  const char* text = nullptr;
  Later() { known.size = sizeof *this; }
};

}  // namespace

TEST_CASE("a configuration that was not made from the initializer is refused") {
  std::array<tuttiConfig_t, 6> wrong{};
  wrong.fill(unset());
  wrong[0].magic = 1;
  wrong[1].version = 0;
  wrong[2].size = 0;
  wrong[3].size = offsetof(tuttiConfig_t, device) - 1;
  wrong[4].size = SIZE_MAX;
  std::memset(&wrong[5], 0, sizeof wrong[5]);
  for (const tuttiConfig_t& config : wrong) require_refused(&config, {"TUTTI_CONFIG_INITIALIZER"});
  const tuttiConfig_t config = TUTTI_CONFIG_INITIALIZER;
  CHECK(try_out(&config) == tuttiSuccess);
  CHECK(try_out(nullptr) == tuttiSuccess);
}

TEST_CASE("a caller of the first version, whose struct was shorter, is served") {
  tuttiConfig_t config = unset();
  config.size = offsetof(tuttiConfig_t, device);
  config.device = "not read";
  CHECK(try_out(&config) == tuttiSuccess);
}

TEST_CASE("a later caller is served as long as it sets nothing that the library does not know") {
  Later later;
  later.known.version = TUTTI_VERSION_CODE + 1;
  CHECK(try_out(&later.known) == tuttiSuccess);
  const auto refuse_later = [&] { require_refused(&later.known, {"0.1.1", "0.1.0", "does not know"}); };
  later.number = TUTTI_CONFIG_UNDEF_INT;
  refuse_later();
  later = Later();
  ++later.known.version;
  later.another = 1;
  refuse_later();
  later.another = 0;
  later.text = "";
  refuse_later();
  later.text = nullptr;
  later.known.version = (TUTTI_MAJOR + 1) * 10000;
  require_refused(&later.known, {"1.0.0", "0.1.0", "major version"});
}

TEST_CASE("every field has the domain of its variable") {
  const struct {
    int tuttiConfig_t::*field;
    std::vector<int> wrong;
    std::vector<int> right;
    std::string name;
  } numbers[] = {{&tuttiConfig_t::timeout_ms, {0, -1, INT32_MIN + 1}, {1, INT32_MAX}, "config.timeout_ms"},
                 {&tuttiConfig_t::init_timeout_ms, {0, -1}, {10'000, INT32_MAX}, "config.init_timeout_ms"},
                 {&tuttiConfig_t::wait_notice_ms, {-1}, {0, 1}, "config.wait_notice_ms"},
                 {&tuttiConfig_t::straggler_ms, {-1}, {0, 1}, "config.straggler_ms"},
                 {&tuttiConfig_t::tcp_streams, {0, -1, 17}, {1, 16}, "config.tcp_streams"},
                 {&tuttiConfig_t::progress_threads, {0, -1, 65}, {1, 64}, "config.progress_threads"}};
  for (const auto& n : numbers) {
    tuttiConfig_t config = TUTTI_CONFIG_INITIALIZER;
    for (const int value : n.wrong) {
      config.*n.field = value;
      require_refused(&config, {n.name + "=\"" + std::to_string(value) + "\" is not a number"});
    }
    for (const int value : n.right) {
      config.*n.field = value;
      INFO(n.name);
      CHECK(try_out(&config) == tuttiSuccess);
    }
  }
  const struct {
    const char* tuttiConfig_t::*field;
    std::vector<const char*> wrong;
    std::vector<const char*> right;
    std::string name;
  } texts[] = {
      {&tuttiConfig_t::transports,
       {"pigeons", ",", "shm,", "shm,pigeons"},
       {"", "tcp", "tcp,shm"},
       "config.transports"},
      {&tuttiConfig_t::port_range, {"9-8", "0-5", "x"}, {"", "4000-4100"}, "config.port_range"},
      {&tuttiConfig_t::algorithm,
       {"nonsense", "all_reduce:nonsense", "nonsense:ring", "ring,nonsense", "barrier:ring"},
       {"", "ring", "all_reduce:ring,broadcast:chain"},
       "config.algorithm"},
      {&tuttiConfig_t::affinity, {"maybe", "MOVE"}, {"", "move", "start", "own", "keep"}, "config.affinity"},
      {&tuttiConfig_t::check, {"maybe", "on"}, {"", "strict", "off"}, "config.check"},
      {&tuttiConfig_t::cross_memory, {"maybe", "Auto"}, {"", "auto", "always", "never"}, "config.cross_memory"},
      {&tuttiConfig_t::device, {"gpu", "cuda:", "cuda:x", "cuda:-1"}, {"", "host"}, "config.device"},
      {&tuttiConfig_t::verbs, {"maybe", "mtu=3"}, {"", "mtu=4096"}, "config.verbs"}};
  for (const auto& t : texts) {
    tuttiConfig_t config = TUTTI_CONFIG_INITIALIZER;
    for (const char* value : t.wrong) {
      config.*t.field = value;
      require_refused(&config, {t.name, value});
      // The caller has set no variable.
      CHECK(std::string(tuttiGetLastError(nullptr)).find("TUTTI_") == std::string::npos);
    }
    for (const char* value : t.right) {
      config.*t.field = value;
      INFO(t.name << "=" << value);
      CHECK(try_out(&config) == tuttiSuccess);
    }
  }
}

TEST_CASE("a field that is set wins over the environment, an unset one does not") {
  const Variable transports("TUTTI_TRANSPORTS", "tcp");
  tuttiConfig_t config = TUTTI_CONFIG_INITIALIZER;
  config.transports = "shm";
  const std::string chosen = explained(config);
  config.transports = nullptr;
  const Variable algorithm("TUTTI_ALGORITHM", "direct");
  CHECK(explained(config) == "direct over tcp");
  config.transports = "shm";
  CHECK(explained(config) == "direct over shm");
  config.algorithm = "all_reduce:ring";
  CHECK(explained(config) == "ring over shm");
  const Variable other("TUTTI_ALGORITHM", chosen == "ring over shm" ? "direct" : "ring");
  config.algorithm = "";
  CHECK(explained(config) == chosen);
  const Variable strict("TUTTI_CHECK", "strict");
  CHECK(disagree(config) == std::array{tuttiMismatch, tuttiMismatch});
  config.check = "off";
  CHECK(disagree(config) == std::array{tuttiSuccess, tuttiSuccess});
  const Variable lax("TUTTI_CHECK", "off");
  config.check = "strict";
  CHECK(disagree(config) == std::array{tuttiMismatch, tuttiMismatch});
}

TEST_CASE("the configuration's timeouts apply") {
  const Variable init_timeout("TUTTI_INIT_TIMEOUT_MS", "2000000");
  const Variable timeout("TUTTI_TIMEOUT_MS", "2000000");
  tuttiConfig_t config = TUTTI_CONFIG_INITIALIZER;
  config.init_timeout_ms = 200;
  tuttiUniqueId id;
  tuttiComm_t comm = nullptr;
  REQUIRE(tuttiGetUniqueId(&id) == tuttiSuccess);
  CHECK(tuttiCommInitRankConfig(&comm, 2, id, 1, &config) == tuttiTimeout);
  CHECK(comm == nullptr);
  config = TUTTI_CONFIG_INITIALIZER;
  config.timeout_ms = 200;
  std::array<tuttiComm_t, 2> comms{};
  REQUIRE(tuttiCommInitAllConfig(comms.data(), 2, nullptr, &config) == tuttiSuccess);
  CHECK(tuttiBarrier(comms[0], nullptr) == tuttiTimeout);
  for (const tuttiComm_t each : comms) CHECK(tuttiCommAbort(each) == tuttiSuccess);
}

TEST_CASE("interface and ports are the configuration's") {
  const Variable interface("TUTTI_INTERFACE", "lo");
  tuttiConfig_t config = TUTTI_CONFIG_INITIALIZER;
  config.transports = "tcp";
  std::array<tuttiComm_t, 2> comms{};
  const auto make = [&] { return tuttiCommInitAllConfig(comms.data(), 2, nullptr, &config); };
  config.interface = "nosuch";
  CHECK(make() != tuttiSuccess);
  CHECK(std::string(tuttiGetLastError(nullptr)).find("nosuch") != std::string::npos);
  config.interface = nullptr;
  config.port_range = "1-1";  // only one of the two ranks can listen there
  CHECK(make() != tuttiSuccess);
  CHECK(std::string(tuttiGetLastError(nullptr)).find("TUTTI_PORT_RANGE") != std::string::npos);
  config.port_range = "";
  REQUIRE(make() == tuttiSuccess);
  for (const tuttiComm_t each : comms) CHECK(tuttiCommAbort(each) == tuttiSuccess);
}

TEST_CASE("a unique id of a communicator has its settings, for its ranks and others") {
  tuttiConfig_t config = TUTTI_CONFIG_INITIALIZER;
  config.port_range = "38000-38999";
  std::array<tuttiComm_t, 2> comms{};
  REQUIRE(tuttiCommInitAllConfig(comms.data(), 2, nullptr, &config) == tuttiSuccess);
  tuttiUniqueId id{};
  CHECK(tuttiCommGetUniqueId(comms[0], nullptr) == tuttiInvalidArgument);
  CHECK(tuttiCommGetUniqueId(nullptr, &id) == tuttiInvalidArgument);
  {
    const Variable ports("TUTTI_PORT_RANGE", "none");
    CHECK(tuttiGetUniqueId(&id) == tuttiInvalidUsage);
    REQUIRE(tuttiCommGetUniqueId(comms[1], &id) == tuttiSuccess);
  }
  // The port follows "TUid", the version and the number of addresses.
  std::array<unsigned char, 2> port{};
  std::memcpy(port.data(), id.internal + 6, port.size());
  const int number = port[0] + 256 * port[1];
  CHECK((38000 <= number && number <= 38999));
  constexpr int kRanks = 3;
  std::array<std::int32_t, kRanks> sums{20, 1, 21};
  std::array<tuttiResult_t, kRanks> results{};
  std::vector<std::thread> threads;
  for (int rank = 0; rank < kRanks; ++rank) {
    threads.emplace_back([&, rank] {
      std::int32_t& sum = sums[static_cast<std::size_t>(rank)];
      tuttiResult_t& result = results[static_cast<std::size_t>(rank)];
      tuttiComm_t joined = nullptr;
      result = tuttiCommInitRank(&joined, kRanks, id, rank);
      if (result == tuttiSuccess) result = tuttiAllReduce(&sum, &sum, 1, tuttiInt32, tuttiSum, joined, nullptr);
      if (result == tuttiSuccess) result = tuttiCommDestroy(joined);
      // The old one still serves its ranks.
      if (result == tuttiSuccess && rank < 2) {
        result = tuttiAllReduce(&sum, &sum, 1, tuttiInt32, tuttiSum, comms[static_cast<std::size_t>(rank)], nullptr);
      }
    });
  }
  for (std::thread& t : threads) t.join();
  for (const tuttiResult_t result : results) CHECK(result == tuttiSuccess);
  CHECK(sums == std::array<std::int32_t, kRanks>{84, 84, 42});
  // Also for a failed communicator, with a new one each time.
  REQUIRE(tuttiCommRevoke(comms[0], TUTTI_REVOKE_DEFAULT) == tuttiSuccess);
  tuttiUniqueId another{};
  REQUIRE(tuttiCommGetUniqueId(comms[0], &another) == tuttiSuccess);
  CHECK(std::memcmp(id.internal, another.internal, sizeof id.internal) != 0);
  for (const tuttiComm_t comm : comms) CHECK(tuttiCommDestroy(comm) == tuttiSuccess);
}

TEST_CASE("what rank 0 decides applies to all ranks that join") {
  tuttiUniqueId id{};
  REQUIRE(tuttiGetUniqueId(&id) == tuttiSuccess);
  std::array<tuttiConfig_t, 2> configs{unset(), unset()};
  configs[0].algorithm = "ring";
  configs[0].transports = "tcp";
  configs[1].algorithm = "all_reduce:recursive_doubling";
  configs[1].check = "strict";
  std::array<tuttiComm_t, 2> comms{};
  std::vector<std::thread> threads;
  for (std::size_t r = 0; r < 2; ++r) {
    threads.emplace_back([&, r] { (void)tuttiCommInitRankConfig(&comms[r], 2, id, static_cast<int>(r), &configs[r]); });
  }
  for (std::thread& t : threads) t.join();
  threads.clear();
  for (const tuttiComm_t comm : comms) {
    REQUIRE(comm != nullptr);
    std::array<char, 128> text{};
    CHECK(tuttiCommExplain(comm, tuttiCollectiveAllReduce, 1 << 20, text.data(), text.size()) == tuttiSuccess);
    CHECK(std::string(text.data()) == "ring over tcp");
  }
  // Strict on one rank alone, they would wait for each other.
  std::array<tuttiResult_t, 2> results{};
  for (std::size_t r = 0; r < 2; ++r) {
    threads.emplace_back([&, r] {
      results[r] = tuttiAllReduce(nullptr, nullptr, 0, tuttiInt32, tuttiSum, comms[r], nullptr);
      if (results[r] == tuttiSuccess) results[r] = tuttiCommDestroy(comms[r]);
    });
  }
  for (std::thread& t : threads) t.join();
  for (const tuttiResult_t result : results) CHECK(result == tuttiSuccess);
}

TEST_CASE("a rank whose settings are refused fails the others") {
  tuttiUniqueId id;
  REQUIRE(tuttiGetUniqueId(&id) == tuttiSuccess);
  std::array<tuttiResult_t, 3> results{};
  std::array<std::string, 3> texts;
  std::vector<std::thread> threads;
  for (std::size_t r = 0; r < 3; ++r) {
    threads.emplace_back([&, r] {
      tuttiConfig_t config = unset();
      if (r == 2) config.transports = "pigeons";
      tuttiComm_t comm = nullptr;
      results[r] = tuttiCommInitRankConfig(&comm, 3, id, static_cast<int>(r), &config);
      texts[r] = tuttiGetLastError(nullptr);
    });
  }
  for (std::thread& t : threads) t.join();
  for (std::size_t r = 0; r < 3; ++r) {
    INFO("rank " << r << ": " << texts[r]);
    CHECK(results[r] == (r == 2 ? tuttiInvalidArgument : tuttiRemoteError));
    CHECK(texts[r].find("pigeons") != std::string::npos);
    CHECK((r == 2 || texts[r].find("rank 2 (host ") != std::string::npos));
  }
}

TEST_CASE("an explanation with room for more than a line has the reason, and the other candidates' times") {
  tuttiConfig_t config = TUTTI_CONFIG_INITIALIZER;
  config.transports = "shm";
  std::array<tuttiComm_t, 2> comms{};
  REQUIRE(tuttiCommInitAllConfig(comms.data(), 2, nullptr, &config) == tuttiSuccess);
  const auto explained = [&](std::size_t size) {
    std::vector<char> text(size, 'u');
    CHECK(tuttiCommExplain(comms[0], tuttiCollectiveAllReduce, 1 << 20, text.data(), size) == tuttiSuccess);
    return std::string(text.data());
  };
  const std::string first = explained(128);
  CHECK(first.ends_with(" over shm"));
  CHECK(explained(1023) == first);
  const std::string all = explained(1024);
  INFO(all);
  REQUIRE(all.starts_with(first + "\npredicted to be fastest\n"));
  CHECK(all.back() != '\n');
  CHECK(explained(1 << 16).starts_with(all));
  std::istringstream lines(all.substr(first.size() + 1));
  std::string line;
  std::getline(lines, line);
  double last_us = 0;
  int candidates = 0;
  bool has_chosen = false;
  for (; std::getline(lines, line); ++candidates) {
    const auto colon = line.find(": predicted ");
    REQUIRE(colon != std::string::npos);
    CHECK(line.ends_with(" us"));
    const double us = std::stod(line.substr(colon + 12));
    CHECK(us > 0);
    CHECK(us >= last_us);
    last_us = us;
    has_chosen = has_chosen || line.substr(0, colon) + " over shm" == first;
  }
  CHECK(candidates > 5);
  CHECK(has_chosen);
  for (const tuttiComm_t comm : comms) CHECK(tuttiCommDestroy(comm) == tuttiSuccess);
}

TEST_CASE("texts may be overwritten when the call has returned") {
  std::array<char, 64> algorithm{"all_reduce:ring"};
  std::array<char, 64> transports{"shm"};
  tuttiConfig_t config = TUTTI_CONFIG_INITIALIZER;
  config.algorithm = algorithm.data();
  config.transports = transports.data();
  std::array<tuttiComm_t, 2> comms{};
  REQUIRE(tuttiCommInitAllConfig(comms.data(), 2, nullptr, &config) == tuttiSuccess);
  algorithm.fill('x');
  transports.fill('x');
  std::memset(&config, 0xff, sizeof config);
  std::array<char, 128> text{};
  CHECK(tuttiCommExplain(comms[0], tuttiCollectiveAllReduce, 1 << 20, text.data(), text.size()) == tuttiSuccess);
  CHECK(std::string(text.data()) == "ring over shm");
  for (const tuttiComm_t each : comms) CHECK(tuttiCommDestroy(each) == tuttiSuccess);
}

TEST_CASE("unreadable variables are refused whether they would be used or not") {
  tuttiConfig_t config = TUTTI_CONFIG_INITIALIZER;
  config.tcp_streams = 2;
  config.transports = "shm";
  config.algorithm = "ring";
  config.verbs = "mtu=4096";
  for (const char* name : {"TUTTI_TCP_STREAMS", "TUTTI_TRANSPORTS", "TUTTI_ALGORITHM", "TUTTI_VERBS"}) {
    const Variable variable(name, "many");
    CHECK(try_out(&config) == tuttiInvalidUsage);
    const std::string text = tuttiGetLastError(nullptr);
    INFO(text);
    CHECK(text.find(name) != std::string::npos);
    CHECK(text.find("many") != std::string::npos);
    tuttiUniqueId id;
    CHECK(tuttiGetUniqueId(&id) == tuttiInvalidUsage);
  }
}

TEST_CASE("explanations of what is not a collective, or has no room, are refused") {
  tuttiComm_t comm = nullptr;
  REQUIRE(tuttiCommInitAll(&comm, 1, nullptr) == tuttiSuccess);
  std::array<char, 128> text{'u'};
  for (int c = tuttiCollectiveAllReduce; c <= tuttiCollectiveScatterV; ++c) {
    tuttiCollective_t collective{};
    std::memcpy(&collective, &c, sizeof c);
    CHECK(tuttiCommExplain(comm, collective, 64, text.data(), text.size()) == tuttiSuccess);
    CHECK(std::string(text.data()).find(" over ") != std::string::npos);
  }
  text[0] = 'u';
  for (const int c : {-1, 16, 31, 256, INT32_MAX}) {
    tuttiCollective_t collective{};
    std::memcpy(&collective, &c, sizeof c);
    CHECK(tuttiCommExplain(comm, collective, 64, text.data(), text.size()) == tuttiInvalidArgument);
    CHECK(std::string(tuttiGetLastError(comm)).find("tuttiCollective_t") != std::string::npos);
  }
  for (const std::size_t room : {std::size_t{0}, std::size_t{3}}) {
    CHECK(tuttiCommExplain(comm, tuttiCollectiveBarrier, 0, text.data(), room) == tuttiInvalidArgument);
  }
  CHECK(tuttiCommExplain(comm, tuttiCollectiveBarrier, 0, nullptr, 64) == tuttiInvalidArgument);
  CHECK(text[0] == 'u');
  CHECK(tuttiCommDestroy(comm) == tuttiSuccess);
}
