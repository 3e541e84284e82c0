// The frames of the control tree and what they say. See socket_tree.h. Ranks in frames are the job's, whatever
// communicator a frame is of; only texts hold a communicator's own numbers.
//
// Threads: any; nothing here has state.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/status.h"
#include "bootstrap/control_tree.h"
#include "net/frame.h"

namespace tutti::internal::control {

enum class Kind : std::uint8_t {
  // Of the job.
  kBye = 1,    // over one connection: the rank at its other end leaves for good
  kDeath = 2,  // to all: a rank has died
  // Of one communicator, which the frame names, to all ranks of the job.
  kMembers = 3,  // a rank has made its part of the communicator: before all else that it says there
  kPart = 4,     // what a rank gives to an all-gather
  kNotice = 5,   // the communicator has failed
  kLeaveNotice = 6,
  kCompare = 7,  // all members are to tell what they have called
  // Likewise, to the nearest members.
  kCalls = 8,
  // Which ranks have not arrived? (socket_tree_inquiry.cc)
  kAsk = 9,      // up: somebody wants to know
  kProbe = 10,   // down: are you there?
  kHere = 11,    // the receipt of either
  kAbsent = 12,  // up: a rank that has not arrived
  kAnswer = 13,  // down
};

// Of a communicator. The job's first one, of all its ranks, has 0.
using CommId = std::uint64_t;

struct Header {
  Kind kind = Kind::kBye;
  CommId comm = 0;
};

struct Death {
  int rank = -1;
  std::string host;
  std::int32_t pid = 0;
};

struct Notice {
  Code code = Code::kInternalError;
  std::string text;
};

struct Members {
  int from = -1;
  std::vector<int> ranks;  // those of the communicator, in rising order
};

struct Part {
  std::uint32_t round = 0;  // which all-gather of the communicator
  int rank = -1;
  std::string bytes;
};

// What one rank has called lately.
struct Calls {
  bool down = false;  // on the way from a rank that is no member to members below it
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

std::string pack_bye();
std::string pack_death(const Death& death);
std::string pack_members(CommId comm, const Members& members);
std::string pack_part(CommId comm, const Part& part);
std::string pack_notice(CommId comm, const Notice& notice);
std::string pack_leave_notice(CommId comm, const LeaveNotice& leave_notice);
std::string pack_compare(CommId comm);
std::string pack_calls(CommId comm, const Calls& calls);
std::string pack_inquiry(CommId comm, Kind kind, const Inquiry& inquiry);
std::string pack_here(CommId comm, std::uint32_t token);
std::string pack_absence(CommId comm, const Absence& absence);
std::string pack_answer(CommId comm, const Answer& answer);

// Takes the header off a frame; the functions below take the rest. False if it is damaged. `ranks`: of the job.
bool unpack_header(net::Unpacker* unpacker, Header* header);
bool unpack_death(net::Unpacker* unpacker, int ranks, Death* death);
bool unpack_members(net::Unpacker* unpacker, int ranks, Members* members);
bool unpack_part(net::Unpacker* unpacker, int ranks, Part* part);
bool unpack_notice(net::Unpacker* unpacker, Notice* notice);
bool unpack_leave_notice(net::Unpacker* unpacker, int ranks, LeaveNotice* leave_notice);
bool unpack_calls(net::Unpacker* unpacker, int ranks, Calls* calls);
bool unpack_inquiry(net::Unpacker* unpacker, Inquiry* inquiry);
bool unpack_here(net::Unpacker* unpacker, std::uint32_t* token);
bool unpack_absence(net::Unpacker* unpacker, int ranks, Absence* absence);
bool unpack_answer(net::Unpacker* unpacker, int ranks, Answer* answer);

}  // namespace tutti::internal::control
