// The frames of the control tree and what they say. See control_tree.h.
//
// Threads: any; nothing here has state.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "base/status.h"
#include "bootstrap/control_tree.h"
#include "net/frame.h"

namespace tutti::internal::control {

enum class Kind : std::uint8_t {
  kGather = 1,
  kAll = 2,
  kNotice = 3,
  kLeaveNotice = 4,
  kCalls = 5,
  // Which ranks have not arrived? (socket_tree_inquiry.cc)
  kAsk = 6,      // up: somebody wants to know
  kProbe = 7,    // down: are you there?
  kHere = 8,     // the receipt of either
  kAbsent = 9,   // up: a rank that has not arrived
  kAnswer = 10,  // down

  kCompare = 11,  // all ranks are to tell what they have called
};
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

// kAsk or kProbe. The receipt bears the same token.
struct Inquiry {
  std::uint32_t token = 0;
  Question question;
};

// A rank calls nothing more.
struct LeaveNotice {
  int rank = -1;
  CallSummary calls;
};

std::string pack_notice(const Notice& notice);
std::string pack_leave_notice(const LeaveNotice& leave_notice);
std::string pack_parts(Kind kind, const Parts& parts);
std::string pack_calls(const Calls& calls);
std::string pack_inquiry(Kind kind, const Inquiry& inquiry);
std::string pack_here(std::uint32_t token);
std::string pack_absence(const Absence& absence);
std::string pack_answer(const Answer& answer);
// All ranks are to tell what they have called.
std::string pack_compare();

// The rest of a message whose kind has been taken off. False if it is damaged.
bool unpack_notice(net::Unpacker* unpacker, Notice* notice);
// Adds to what *parts holds.
bool unpack_parts(net::Unpacker* unpacker, int ranks, Parts* parts);
bool unpack_calls(net::Unpacker* unpacker, int ranks, Calls* calls);
bool unpack_inquiry(net::Unpacker* unpacker, Inquiry* inquiry);
bool unpack_absence(net::Unpacker* unpacker, int ranks, Absence* absence);
bool unpack_answer(net::Unpacker* unpacker, int ranks, Answer* answer);
bool unpack_leave_notice(net::Unpacker* unpacker, int ranks, LeaveNotice* leave_notice);

}  // namespace tutti::internal::control
