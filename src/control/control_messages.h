// The frames of the control tree and their contents. See socket_tree.h. Ranks in frames are the job's, for every
// communicator; only texts contain a communicator's own numbers.
//
// Threads: any; no function here has state.
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
  // About the job.
  kBye = 1,         // a rank leaves for good
  kDeath = 2,       // a rank has died
  kContacts = 3,    // where ranks run and listen
  kAttachment = 4,  // a rank has another parent
  // About one communicator, which the frame names with its members; to all of these.
  kParts = 5,     // ranks' contributions to an all-gather
  kDecision = 6,  // a decision of one rank for all
  kNotice = 7,    // the communicator has failed
  kLeaveNotices = 8,
  kCompare = 9,   // all members must report what they have called
  kRefusal = 10,  // a rank has refused a call, or has made a call since
  kClash = 11,    // like kNotice, to all ranks of the job: another communicator has the same id
  kClaim = 12,    // up, to the root: these members use the id
  // About one communicator, to the nearest members.
  kCalls = 13,
  // Which ranks are missing? (inquiries.h)
  kAsk = 14,     // up: a rank asks
  kProbe = 15,   // down: are you alive?
  kHere = 16,    // the receipt of kAsk or kProbe
  kAbsent = 17,  // up: a missing rank
  kAnswer = 18,  // down
  // About one communicator, which the frame names with its members (agreements.h).
  kProposals = 19,  // up: members' contributions to an agreement
  kAgreed = 20,     // down: its result
};

// The id of a communicator. The job's first one, of all its ranks, has 0.
using CommId = std::uint64_t;

// How a frame names its communicator. A rank that has not made its part yet sees whether it will be a member, and a
// member sees whether all list the same members.
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
  std::string members;  // as in CommName, for the kinds that name them
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
  std::vector<std::string> addresses;  // of its control-tree listener
};

struct Attachment {
  int rank = -1;
  int parent = -1;
  std::uint32_t count = 0;  // the number of its parents after the first
};

struct Notice {
  Code code = Code::kInternalError;
  std::string text;
};

// The parts of some ranks.
struct Parts {
  std::uint32_t round = 0;         // number of the all-gather in the communicator
  int from = -1;                   // the member that sends it
  RankSet places;                  // whose parts: places among the members, in the order of ranks in the job
  std::vector<std::string> bytes;  // in this order
};

// The last calls of one rank.
struct Calls {
  bool down = false;  // on the way from a non-member to members below it
  int rank = -1;
  std::vector<CallRecord> records;
};

// kAsk or kProbe. The receipt has the same token.
struct Inquiry {
  std::uint32_t token = 0;
  Question question;
};

// These ranks have called the same operations and call nothing more.
struct LeaveNotice {
  RankSet places;            // places among the members, in the order of ranks in the job
  std::uint32_t rounds = 0;  // the number of all-gathers to which each has contributed
  CallSummary calls;
  // AgreementName::hash() of the last agreements to which each has contributed, ascending.
  std::vector<std::uint64_t> agreements;
};

// The beginning of a frame of a kind that names the members.
net::Packer begin_named(FrameKind kind, const CommName& comm);
void put(net::Packer* packer, const RankSet& ranks);
// False if the set is damaged, or has other ranks than those below `ranks`.
bool take(net::Unpacker* unpacker, int ranks, RankSet* set);
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
// all: of a question for all.
std::string pack_absence(CommId comm, bool all, const Absence& absence);
std::string pack_answer(CommId comm, const Answer& answer);

// Removes the header from a frame; the functions below take the rest. False if it is damaged. `ranks`: of the job.
bool unpack_header(net::Unpacker* unpacker, Header* header);
bool unpack_bye(net::Unpacker* unpacker, int ranks, int* rank);
bool unpack_death(net::Unpacker* unpacker, int ranks, Death* death);
bool unpack_contacts(net::Unpacker* unpacker, int ranks, std::vector<Contact>* contacts);
bool unpack_attachment(net::Unpacker* unpacker, int ranks, Attachment* attachment);
bool unpack_decision(net::Unpacker* unpacker, std::string* decision);
bool unpack_notice(net::Unpacker* unpacker, Notice* notice);
// `members`: their number.
bool unpack_parts(net::Unpacker* unpacker, int ranks, int members, Parts* parts);
bool unpack_leave_notices(net::Unpacker* unpacker, int members, std::vector<LeaveNotice>* leave_notices);
bool unpack_refusal(net::Unpacker* unpacker, int ranks, Refusal* refusal);
bool unpack_calls(net::Unpacker* unpacker, int ranks, Calls* calls);
bool unpack_inquiry(net::Unpacker* unpacker, Inquiry* inquiry);
bool unpack_here(net::Unpacker* unpacker, std::uint32_t* token);
bool unpack_absence(net::Unpacker* unpacker, int ranks, bool* all, Absence* absence);
bool unpack_answer(net::Unpacker* unpacker, int ranks, Answer* answer);

}  // namespace tutti::internal::control
