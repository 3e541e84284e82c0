#include "control/tree_dial.h"

#include <string>
#include <vector>

#include "net/address.h"
#include "os/clock.h"

namespace tutti::internal::control {
namespace {

// Soon after a leave notice, a rank whose host refuses may have left as well: the ranks that would forward its notice
// have left with it, or died. It counts as dead after this time.
constexpr std::int64_t kLeavingMs = 5000;

}  // namespace

std::unique_ptr<net::Dial> TreeDialler::dial(int rank, DialPurpose purpose) const {
  const Contact* const contact = view_.contact(rank);
  if (contact == nullptr) return nullptr;
  std::vector<net::Address> targets;
  for (const std::string& text : contact->addresses) {
    if (Result<net::Address> address = net::parse_address(text); address.is_ok()) targets.push_back(*address);
  }
  if (targets.empty()) return nullptr;
  const auto index = static_cast<std::uint16_t>(purpose);
  const net::Claim claim{net::Purpose::kTree, view_.rank(), index, static_cast<std::uint16_t>(index + 1), 0,
                         encryption_};
  const net::DialOptions options{.patient = false,
                                 .first_is_sure = net::leads_to_peer(targets, view_.contact(view_.rank())->addresses)};
  return std::make_unique<net::Dial>(targets, secret_, claim, rank, options);
}

bool TreeDialler::counts_as_dead(int rank, std::int64_t refused_ns) const {
  const std::int64_t now = now_ns();
  const std::int64_t recent_ns = now - kLeavingMs * kNsPerMs;
  const bool leaving =
      !agreements_.await(rank) && (view_.last_bye_ns() > recent_ns || comms_.may_have_left(rank, recent_ns));
  return now - refused_ns >= (leaving ? kLeavingMs : kRefusedMs) * kNsPerMs;
}

}  // namespace tutti::internal::control
