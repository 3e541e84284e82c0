// The frames of the control tree and what they say. See socket_tree.h. Ranks in frames are the job's, whatever
// communicator a frame is of; only texts hold a communicator's own numbers.
//
// Threads: any; nothing here has state.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "base/status.h"
#include "control/control_tree.h"
#include "control/rank_set.h"
#include "net/frame.h"

namespace tutti::internal::control {

enum class FrameKind : std::uint8_t {
  // Of the job.
  kBye = 1,         // a rank leaves for good
  kDeath = 2,       // a rank has died
  kContacts = 3,    // where ranks run, and where they listen
  kAttachment = 4,  // a rank has another parent
  // Of one communicator, which the frame names with its members, to these.
  kParts = 5,     // what ranks give to an all-gather
  kDecision = 6,  // what a rank has decided for all
  kNotice = 7,    // the communicator has failed
  kLeaveNotices = 8,
  kCompare = 9,   // all members are to tell what they have called
  kRefusal = 10,  // a rank has refused a call, or has called something since
  kClash = 11,    // as kNotice, to all ranks of the job: another communicator has the same id
  kClaim = 12,    // up, to the root: these members use the id
  // Of one communicator, to the nearest members.
  kCalls = 13,
  // Which ranks have not arrived? (inquiries.h)
  kAsk = 14,     // up: somebody wants to know
  kProbe = 15,   // down: are you there?
  kHere = 16,    // the receipt of either
  kAbsent = 17,  // up: a rank that has not arrived
  kAnswer = 18,  // down
};

// Of a communicator. The job's first one, of all its ranks, has 0.
using CommId = std::uint64_t;

// How a frame names its communicator: a rank that has not made its part yet finds whether it will, and a member whether
// all list the same members.
struct CommName {
  CommName(CommId comm = 0, std::string bits = {}) : id(comm), members(std::move(bits)) {}
  CommId id;
  std::string members;  // a bit for each rank of the job, up to the last member; empty: all ranks
};
std::string member_bits(const std::vector<int>& ranks);
[[nodiscard]] bool is_member(const std::string& members, int rank);
[[nodiscard]] bool any_member(const std::string& members, const RankSet& ranks);
// `ranks`: of the job.
[[nodiscard]] std::size_t count_members(const std::string& members, int ranks);

struct Header {
  FrameKind kind = FrameKind::kBye;
  CommId comm = 0;
  std::string members;  // as in CommName, of the kinds before kCalls
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

// Of some ranks.
struct Parts {
  std::uint32_t round = 0;  // which all-gather of the communicator
  int from = -1;            // the member that says it
  RankSet places;           // whose parts: their places among the members, in the order of their ranks in the job
  std::vector<std::string> bytes;  // in this order
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

// Some ranks, which have called the same, call nothing more.
struct LeaveNotice {
  RankSet places;  // theirs among the members, in the order of their ranks in the job
  CallSummary calls;
};

std::string pack_bye(int rank);
std::string pack_death(const Death& death);
std::string pack_contacts(const std::vector<Contact>& contacts);
std::string pack_attachment(const Attachment& attachment);
std::string pack_parts(const CommName& comm, const Parts& parts);
std::string pack_decision(const CommName& comm, const std::string& decision);
// `kind`: kNotice or kClash.
std::string pack_notice(const CommName& comm, const Notice& notice, FrameKind kind = FrameKind::kNotice);
std::string pack_leave_notices(const CommName& comm, const std::vector<LeaveNotice>& leave_notices);
std::string pack_compare(const CommName& comm);
std::string pack_claim(const CommName& comm);
std::string pack_refusal(const CommName& comm, const Refusal& refusal);
std::string pack_calls(CommId comm, const Calls& calls);
std::string pack_inquiry(CommId comm, FrameKind kind, const Inquiry& inquiry);
std::string pack_here(CommId comm, std::uint32_t token);
std::string pack_absence(CommId comm, const Absence& absence);
std::string pack_answer(CommId comm, const Answer& answer);

// Takes the header off a frame; the functions below take the rest. False if it is damaged. `ranks`: of the job.
bool unpack_header(net::Unpacker* unpacker, Header* header);
bool unpack_bye(net::Unpacker* unpacker, int ranks, int* rank);
bool unpack_death(net::Unpacker* unpacker, int ranks, Death* death);
bool unpack_contacts(net::Unpacker* unpacker, int ranks, std::vector<Contact>* contacts);
bool unpack_attachment(net::Unpacker* unpacker, int ranks, Attachment* attachment);
bool unpack_decision(net::Unpacker* unpacker, std::string* decision);
bool unpack_notice(net::Unpacker* unpacker, Notice* notice);
// `members`: how many there are.
bool unpack_parts(net::Unpacker* unpacker, int ranks, int members, Parts* parts);
bool unpack_leave_notices(net::Unpacker* unpacker, int members, std::vector<LeaveNotice>* leave_notices);
bool unpack_refusal(net::Unpacker* unpacker, int ranks, Refusal* refusal);
bool unpack_calls(net::Unpacker* unpacker, int ranks, Calls* calls);
bool unpack_inquiry(net::Unpacker* unpacker, Inquiry* inquiry);
bool unpack_here(net::Unpacker* unpacker, std::uint32_t* token);
bool unpack_absence(net::Unpacker* unpacker, int ranks, Absence* absence);
bool unpack_answer(net::Unpacker* unpacker, int ranks, Answer* answer);

}  // namespace tutti::internal::control
