// How some ranks of a communicator make another one without the rest.
//
// The members know each other, and the id that one of them has drawn. They tell each other what a split tells all
// ranks, over the new communicator's own part of the control tree, which keeps what comes before its rank does. So
// nothing here is an operation of the communicator that the group is made of.
#include <fmt/core.h>

#include <algorithm>

#include "base/float_mode.h"
#include "communicator/communicator.h"
#include "communicator/queue_task.h"
#include "net/frame.h"

namespace tutti::internal {

Result<std::unique_ptr<Communicator>> Communicator::make_group(const GroupWish& wish) const {
  std::unique_ptr<Communicator> child(new Communicator);
  const Status made = guarded([&] { return child->set_up_group(*this, wish); });
  if (made.is_ok()) return child;
  // Leaving alone would not tell the others why.
  child->tell_peers(made);
  return wish.refused.is_ok() ? made.with_context("with the group's numbers of ranks") : made;
}

Status Communicator::set_up_group(const Communicator& parent, const GroupWish& wish) {
  const InFloatMode standard;  // what ranks derive from costs must not depend on it
  SplitGroup group;
  group.id = wish.id;
  group.members = wish.members;
  group.settings = wish.settings != nullptr ? *wish.settings : parent.settings_;
  const Deadline deadline = Deadline::after_ms(group.settings.init_timeout_ms);
  // A group can be made of a communicator that had failed before. An abort or a revoke meanwhile ends that.
  const bool failed_before = parent.failure_->failed();
  const auto gives_up = [&parent, failed_before]() -> Status {
    const bool ended =
        !failed_before && parent.failure_->failed() && parent.failure_->status().code() == Code::kAborted;
    if (!ended && !parent.aborted_.load(std::memory_order_acquire)) return {};
    return Status::aborted("the communicator that the group is made of has been aborted or revoked");
  };
  if (Status s = join_tree_of(parent, group, gives_up); !s.is_ok()) return s;
  if (!wish.refused.is_ok()) return wish.refused;
  const std::string own = wish.settings != nullptr ? parent.pack_settings(*wish.settings) : std::string();
  auto texts = exchange_settings(wish, own, deadline);
  if (!texts.is_ok()) return texts.status();
  group.texts = std::move(*texts);
  if (Status s = link_as_in(parent, group); !s.is_ok()) return s;
  if (tree_ != nullptr) {
    // No rank dials another that does not know of the new communicator yet.
    auto all_stand = tree_->all_gather({}, deadline);
    if (!all_stand.is_ok()) return all_stand.status();
  }
  return complete_split();
}

Result<std::vector<std::string>> Communicator::exchange_settings(const GroupWish& wish, const std::string& own,
                                                                 Deadline deadline) {
  if (tree_ == nullptr) return std::vector<std::string>{own};
  net::Packer packer;
  packer.number(static_cast<std::uint32_t>(wish.members.size()));  // a list may be the beginning of a longer one
  for (const int member : wish.members) packer.number(static_cast<std::uint32_t>(member));
  const std::string members = packer.bytes();
  auto all = tree_->all_gather(members + own, deadline);
  if (!all.is_ok()) return all.status();
  std::vector<std::string> texts;
  for (std::size_t r = 0; r < all->size(); ++r) {
    const std::string& told = (*all)[r];
    if (!told.starts_with(members)) {
      return Status::invalid_usage(
          fmt::format("rank {} of the group lists other ranks than rank {}, or in another order", r, rank()));
    }
    texts.push_back(told.substr(members.size()));
  }
  return texts;
}

}  // namespace tutti::internal
