// The frames of the control tree and what they say. See control_tree.h.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "base/status.h"
#include "communicator/bootstrap.h"
#include "net/frame.h"

namespace tutti::control {

enum class Kind : std::uint8_t { kGather = 1, kAll = 2, kNotice = 3, kGoodbye = 4, kCalls = 5 };
using Parts = std::map<int, std::string>;  // by rank

struct Notice {
  Code code = Code::kInternalError;
  int origin = -1;
  int failed = -1;  // the rank that died; -1: the origin itself reports its failure
  std::string text;
};

// What one rank has called lately.
struct Calls {
  int rank = -1;
  std::vector<CallRecord> records;
};

std::string pack_notice(const Notice& notice);
std::string pack_goodbye(int rank);
std::string pack_parts(Kind kind, const Parts& parts);
std::string pack_calls(const Calls& calls);

// The rest of a message whose kind has been taken off. False if it is damaged.
bool unpack_notice(net::Unpacker* unpacker, Notice* notice);
// Adds to what *parts holds.
bool unpack_parts(net::Unpacker* unpacker, int ranks, Parts* parts);
bool unpack_calls(net::Unpacker* unpacker, int ranks, Calls* calls);

}  // namespace tutti::control
