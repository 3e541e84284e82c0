// The frames of the control tree and what they say. See socket_tree.h. Ranks in frames are the job's, whatever
// communicator a frame is of; only texts hold a communicator's own numbers.
//
// Threads: any; nothing here has state.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/status.h"
#include "control/control_tree.h"
#include "net/frame.h"

namespace tutti::internal::control {

enum class Kind : std::uint8_t {
  // Of the job.
  kBye = 1,         // a rank leaves for good
  kDeath = 2,       // a rank has died
  kContact = 3,     // where a rank runs, and where it listens
  kAttachment = 4,  // a rank has another parent
  // Of one communicator, which the frame names, to all ranks of the job.
  kMembers = 5,   // a rank has made its part of the communicator: before all else that it says there
  kPart = 6,      // what a rank gives to an all-gather
  kDecision = 7,  // what a rank has decided for all
  kNotice = 8,    // the communicator has failed
  kLeaveNotice = 9,
  kCompare = 10,  // all members are to tell what they have called
  kRefusal = 11,  // a rank has refused a call, or has called something since
  // Likewise, to the nearest members.
  kCalls = 12,
  // Which ranks have not arrived? (socket_tree_inquiry.cc)
  kAsk = 13,     // up: somebody wants to know
  kProbe = 14,   // down: are you there?
  kHere = 15,    // the receipt of either
  kAbsent = 16,  // up: a rank that has not arrived
  kAnswer = 17,  // down
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

struct Contact {
  int rank = -1;
  std::string host;
  std::int32_t pid = 0;
  std::vector<std::string> addresses;  // of its tree listener
};

struct Attachment {
  int rank = -1;
  int parent = -1;
  std::uint32_t count = 0;  // how many the rank has had after its first
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

std::string pack_bye(int rank);
std::string pack_death(const Death& death);
std::string pack_contact(const Contact& contact);
std::string pack_attachment(const Attachment& attachment);
std::string pack_members(CommId comm, const Members& members);
std::string pack_part(CommId comm, const Part& part);
std::string pack_decision(CommId comm, const std::string& decision);
std::string pack_notice(CommId comm, const Notice& notice);
std::string pack_leave_notice(CommId comm, const LeaveNotice& leave_notice);
std::string pack_compare(CommId comm);
std::string pack_refusal(CommId comm, const Refusal& refusal);
std::string pack_calls(CommId comm, const Calls& calls);
std::string pack_inquiry(CommId comm, Kind kind, const Inquiry& inquiry);
std::string pack_here(CommId comm, std::uint32_t token);
std::string pack_absence(CommId comm, const Absence& absence);
std::string pack_answer(CommId comm, const Answer& answer);

// Takes the header off a frame; the functions below take the rest. False if it is damaged. `ranks`: of the job.
bool unpack_header(net::Unpacker* unpacker, Header* header);
bool unpack_bye(net::Unpacker* unpacker, int ranks, int* rank);
bool unpack_death(net::Unpacker* unpacker, int ranks, Death* death);
bool unpack_contact(net::Unpacker* unpacker, int ranks, Contact* contact);
bool unpack_attachment(net::Unpacker* unpacker, int ranks, Attachment* attachment);
bool unpack_members(net::Unpacker* unpacker, int ranks, Members* members);
bool unpack_part(net::Unpacker* unpacker, int ranks, Part* part);
bool unpack_decision(net::Unpacker* unpacker, std::string* decision);
bool unpack_notice(net::Unpacker* unpacker, Notice* notice);
bool unpack_leave_notice(net::Unpacker* unpacker, int ranks, LeaveNotice* leave_notice);
bool unpack_refusal(net::Unpacker* unpacker, int ranks, Refusal* refusal);
bool unpack_calls(net::Unpacker* unpacker, int ranks, Calls* calls);
bool unpack_inquiry(net::Unpacker* unpacker, Inquiry* inquiry);
bool unpack_here(net::Unpacker* unpacker, std::uint32_t* token);
bool unpack_absence(net::Unpacker* unpacker, int ranks, Absence* absence);
bool unpack_answer(net::Unpacker* unpacker, int ranks, Answer* answer);

}  // namespace tutti::internal::control
