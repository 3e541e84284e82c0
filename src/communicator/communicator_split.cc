// How a communicator is made of some ranks of another.
//
// Ranks tell each other over the communicator that is split what they ask for, by all-gathers that are numbered as all
// operations are. From that each derives the group that it belongs to; of the address book, of what transports were
// told, of listeners and control tree the new communicator uses the old one's. Before anybody returns, all have said
// that theirs stands: so no rank ever dials another that does not know of the new communicator yet.
#include <fmt/core.h>

#include <algorithm>
#include <cstring>

#include "communicator/communicator.h"
#include "communicator/queue_task.h"
#include "join/join.h"
#include "join/root_service.h"
#include "net/frame.h"
#include "transport/adapter.h"
#include "transport/registry.h"

namespace tutti::internal {
namespace {

// Of an error that another rank has met.
Status told_by(int rank, Code code, const std::string& why) {
  if (code == Code::kInvalidArgument || code == Code::kInvalidUsage) {
    return Status::invalid_usage(fmt::format("rank {} was refused: {}", rank, why));
  }
  return Status::remote(fmt::format("rank {} cannot make the new communicator: {}", rank, why));
}

// Of a rank that tells what no rank can tell.
Status broken(std::size_t rank) {
  return Status::remote(fmt::format("protocol error: rank {} sent damaged data", rank));
}

// Never empty.
std::string reason_of(const Status& status) {
  return status.message().empty() ? "no reason is known" : status.message().substr(0, kMostReasonBytes);
}

Transport* find(const Transports& transports, std::string_view name) {
  const auto at =
      std::find_if(transports.begin(), transports.end(), [&](const auto& entry) { return entry->name() == name; });
  return at == transports.end() ? nullptr : at->get();
}

struct ToldSettings {
  std::string transports;
  std::string of_rank;  // RankSettings
};

Result<ToldSettings> unpack_settings(const std::string& text) {
  net::Unpacker unpacker(text);
  ToldSettings told;
  told.transports = unpacker.text();
  told.of_rank = unpacker.text();
  if (!unpacker.complete()) return Status::remote("protocol error: the settings of a split cannot be read");
  return told;
}

}  // namespace

Status Communicator::check_split(const Settings& settings) const {
  const auto fixed = [](const char* field) {
    return Status::invalid_argument(fmt::format(
        "{} differs from that of the communicator that is split, whose sockets and devices the new one uses", field));
  };
  if (settings.interface != settings_.interface) return fixed("config.interface");
  if (settings.port_low != settings_.port_low || settings.port_high != settings_.port_high) {
    return fixed("config.port_range");
  }
  if (settings.verbs != settings_.verbs) return fixed("config.verbs");
  auto transports = parse_transports(settings.transports);
  if (!transports.is_ok()) return transports.status();
  const bool by_network = thread_ranks_ != nullptr && thread_ranks_->network() != nullptr;
  bool any_network = false;
  for (const auto& transport : *transports) {
    if (find(membership_.transports, transport->name()) == nullptr) {
      return Status::invalid_argument(
          fmt::format("config.transports names {}, which is none of those of the communicator that is split ({})",
                      transport->name(), settings_.transports));
    }
    auto network = transport->make_thread_network(1);
    if (!network.is_ok()) return network.status();
    any_network = any_network || *network != nullptr;
  }
  if (by_network && !any_network) {
    return Status::invalid_argument(fmt::format(
        "config.transports \"{}\" needs sockets, and the communicator that is split has none: its ranks are "
        "threads that share memory",
        settings.transports));
  }
  return {};
}

Result<std::unique_ptr<Communicator>> Communicator::split(const SplitWish& wish) {
  process_rank_.touch();
  const InFloatMode standard;  // what ranks derive from costs must not depend on it
  try {
    // What streams have still to come to is before it, on all ranks.
    if (is_on_device()) wait_for_queue();
    return split_unguarded(wish);
  } catch (...) {
    // The peers wait for what this rank cannot tell.
    return fail("split", Status::of_exception());
  }
}

Result<std::unique_ptr<Communicator>> Communicator::split_unguarded(const SplitWish& wish) {
  const auto n = static_cast<std::size_t>(ranks());
  const bool refuses = !wish.refused.is_ok();
  const std::string text = refuses                    ? reason_of(wish.refused)
                           : wish.settings != nullptr ? pack_settings(*wish.settings)
                                                      : std::string();
  if (!refuses && text.size() > kMostSettingsBytes) {
    SplitWish refused = wish;
    refused.refused = Status::invalid_argument(fmt::format(
        "config takes {} bytes, and a split tells at most {}. Shorten its texts", text.size(), kMostSettingsBytes));
    return split_unguarded(refused);
  }
  const SplitRequest own{wish.color, wish.key, family_->next_id(), static_cast<std::int32_t>(wish.refused.code()),
                         static_cast<std::uint32_t>(text.size())};
  std::vector<SplitRequest> requests(n);
  constexpr std::size_t kWords = sizeof own / sizeof(std::uint64_t);
  if (Status s = exchange_of_split(&own, requests.data(), kWords, DataType::kUint64); !s.is_ok()) return s;
  for (std::size_t r = 0; r < n; ++r) {
    if (!is_possible(requests[r], membership_.job_ranks[r])) return fail("split", broken(r));
  }
  if (std::memcmp(&requests[static_cast<std::size_t>(rank())], &own, sizeof own) != 0) {
    return fail("split", broken(static_cast<std::size_t>(rank())));
  }
  std::vector<std::uint32_t> bytes(n);
  std::transform(requests.begin(), requests.end(), bytes.begin(), [](const auto& r) { return r.text_bytes; });
  auto texts = exchange_texts(text, bytes);
  if (!texts.is_ok()) return texts.status();
  if (refuses) return wish.refused;
  for (std::size_t r = 0; r < n; ++r) {
    const Code code = code_of(requests[r].refused);
    if (code != Code::kSuccess) return told_by(static_cast<int>(r), code, (*texts)[r]);
  }
  std::unique_ptr<Communicator> child;
  Status made;
  if (wish.color != kNoColor) {
    made = guarded([&] {
      SplitGroup group;
      group.members = members_of(requests, wish.color);
      group.id = requests[static_cast<std::size_t>(group.members.front())].id;
      for (const int member : group.members) {
        if (!texts->empty()) group.texts.push_back(std::move((*texts)[static_cast<std::size_t>(member)]));
      }
      group.settings = wish.settings != nullptr ? *wish.settings : settings_;
      auto result = make_child(group);
      if (result.is_ok()) child = std::move(*result);
      return result.status();
    });
  }
  if (Status s = agree(std::move(made)); !s.is_ok()) {
    // A rank that died or failed in the middle of that may have been the last to agree: others may have theirs. Ranks
    // in the text have the numbers of the communicator that is split.
    if (child != nullptr && failure_->failed()) {
      child->tell_peers(
          failure_->status().with_context("the communicator that was split failed (with its numbers of ranks)"));
    }
    return s;
  }
  return child;
}

Status Communicator::exchange_of_split(const void* own, void* all, std::size_t count, DataType type) {
  Call call;
  call.collective = Collective::kAllGather;
  call.send = own;
  call.recv = all;
  call.count = count;
  call.type = type;
  call.op = ReduceOp::kSplit;
  return run(call);
}

Result<std::vector<std::string>> Communicator::exchange_texts(const std::string& own,
                                                              std::span<const std::uint32_t> bytes) {
  const std::size_t most = *std::max_element(bytes.begin(), bytes.end());
  std::vector<std::string> texts;
  if (most == 0) return texts;
  std::string padded = own;
  padded.resize(most);
  std::string all(most * bytes.size(), '\0');
  if (Status s = exchange_of_split(padded.data(), all.data(), most, DataType::kUint8); !s.is_ok()) return s;
  for (std::size_t r = 0; r < bytes.size(); ++r) texts.push_back(all.substr(r * most, bytes[r]));
  return texts;
}

Status Communicator::agree(Status own) {
  const std::string text = own.is_ok() ? std::string() : reason_of(own);
  const bool of_another = own.code() == Code::kRemoteError;
  const SplitOutcome told{static_cast<std::uint32_t>(text.size()) | (of_another ? SplitOutcome::kOfAnother : 0)};
  std::vector<SplitOutcome> outcomes(static_cast<std::size_t>(ranks()));
  if (Status s = exchange_of_split(&told, outcomes.data(), 1, DataType::kUint32); !s.is_ok()) return s;
  for (std::size_t r = 0; r < outcomes.size(); ++r) {
    if (!is_possible(outcomes[r])) return fail("split", broken(r));
  }
  std::vector<std::uint32_t> bytes(outcomes.size());
  std::transform(outcomes.begin(), outcomes.end(), bytes.begin(), [](const auto& o) { return o.text_bytes(); });
  auto texts = exchange_texts(text, bytes);
  if (!texts.is_ok()) return texts.status();
  if (!own.is_ok() && !of_another) return own;
  auto cause = std::find_if(outcomes.begin(), outcomes.end(),
                            [](const auto& o) { return o.text_bytes() != 0 && !o.of_another(); });
  if (cause == outcomes.end() && !own.is_ok()) return own;
  if (cause == outcomes.end()) {
    cause = std::find_if(outcomes.begin(), outcomes.end(), [](const auto& o) { return o.text_bytes() != 0; });
  }
  if (cause == outcomes.end()) return {};
  const auto r = static_cast<std::size_t>(cause - outcomes.begin());
  return told_by(static_cast<int>(r), Code::kSystemError, (*texts)[r]);
}

std::string Communicator::pack_settings(const Settings& settings) const {
  auto self = RankSettings::unpack(membership_.peers[static_cast<std::size_t>(rank())].settings);
  RankSettings told = self.is_ok() ? *self : RankSettings();
  told.topology.clear();  // what comes of these files is inherited
  told.tuning.clear();
  told.algorithm = settings.algorithm;
  told.strict = settings.strict;
  told.reads_processes = reads_processes(settings);
  told.on_device = memory::is_device_name(settings.device);
  net::Packer packer;
  packer.text(settings.transports).text(told.pack());
  return packer.bytes();
}

Result<std::unique_ptr<Communicator>> Communicator::make_child(const SplitGroup& group) {
  std::unique_ptr<Communicator> child(new Communicator);
  const Status made = guarded([&] { return child->set_up_from(*this, group); });
  if (made.is_ok()) return child;
  return made;
}

Status Communicator::set_up_from(const Communicator& parent, const SplitGroup& group) {
  if (Status s = join_tree_of(parent, group, {}); !s.is_ok()) return s;
  if (Status s = link_as_in(parent, group); !s.is_ok()) return s;
  return complete_split();
}

Status Communicator::join_tree_of(const Communicator& parent, const SplitGroup& group, ControlTree::GivesUp gives_up) {
  const auto self = std::find(group.members.begin(), group.members.end(), parent.rank());
  membership_.rank = static_cast<int>(self - group.members.begin());
  family_ = parent.family_;
  own_wakeup_fd_ = parent.own_wakeup_fd_;
  settings_ = group.settings;
  std::string id(sizeof group.id, '\0');
  std::memcpy(id.data(), &group.id, sizeof group.id);
  auto secret = session_secret(parent.secret_, id);
  if (!secret.is_ok()) return secret.status();
  secret_ = *secret;
  if (group.members.size() == 1) return {};
  auto tree = parent.tree_->split(group.id, group.members, std::move(gives_up));
  if (!tree.is_ok()) return tree.status();
  tree_ = std::move(*tree);
  return {};
}

Status Communicator::link_as_in(const Communicator& parent, const SplitGroup& group) {
  const auto n = static_cast<int>(group.members.size());
  // Rank 0's hold for all.
  std::string transports = parent.settings_.transports;
  auto membership = membership_from(parent, group, &transports);
  if (!membership.is_ok()) return membership.status();
  membership_ = std::move(*membership);
  settings_.transports = transports;
  settings_.algorithm = membership_.algorithm;
  settings_.strict = membership_.strict;
  if (parent.thread_ranks_ != nullptr) {
    auto thread_ranks = parent.thread_ranks_->split(group.id, group.members, membership_.transports);
    if (!thread_ranks.is_ok()) return thread_ranks.status();
    thread_ranks_ = std::move(*thread_ranks);
  }
  if (Status s = prepare(); !s.is_ok()) return s;
  if (parent.connector_ != nullptr && n > 1) {
    const auto apart = [&](const PeerInfo& peer) {
      Transport* const transport = membership_.connecting(rank(), peer.rank);
      return peer.rank != rank() && (transport == nullptr || transport->shared_connections() == nullptr);
    };
    const auto more = std::count_if(membership_.peers.begin(), membership_.peers.end(), apart);
    if (more > 0) descriptors_ = reserve_descriptors(static_cast<int>(more) + 1, settings_);
    connector_ = parent.connector_->split(group.id, group.members, settings_);
    if (Status s = membership_.hear(membership_.peers); !s.is_ok()) return s;
  }
  make_link_maker();
  return open_windows(Deadline::after_ms(settings_.init_timeout_ms));
}

Status Communicator::complete_split() {
  if (Status s = complete(); !s.is_ok()) return s;
  process_rank_.touch();
  return {};
}

Result<Membership> Communicator::membership_from(const Communicator& parent, const SplitGroup& group,
                                                 std::string* transports) const {
  std::vector<PeerInfo> peers;
  for (std::size_t r = 0; r < group.members.size(); ++r) {
    PeerInfo peer = parent.membership_.peers[static_cast<std::size_t>(group.members[r])];
    peer.rank = static_cast<std::int32_t>(r);
    if (!group.texts.empty() && !group.texts[r].empty()) {
      auto told = unpack_settings(group.texts[r]);
      if (!told.is_ok()) return told.status();
      peer.settings = std::move(told->of_rank);
      if (r == 0) *transports = std::move(told->transports);
    } else if (r == 0) {
      // What holds for all is inherited, and not what this rank had wanted.
      auto own = RankSettings::unpack(peer.settings);
      if (!own.is_ok()) return own.status();
      own->algorithm = parent.membership_.algorithm;
      own->strict = parent.membership_.strict;
      peer.settings = own->pack();
    }
    peers.push_back(std::move(peer));
  }
  auto allowed = parse_transports(*transports);
  if (!allowed.is_ok()) return allowed.status();
  for (const auto& transport : *allowed) {
    const Transport* const before = find(parent.membership_.transports, transport->name());
    if (before == nullptr) return Status::remote("protocol error: rank 0 names a transport that its ranks do not have");
    transport->inherit(*before);
  }
  const SplitFrom from{parent.membership_, group.members};
  return make_membership(rank(), std::move(peers), std::move(*allowed), &from);
}

}  // namespace tutti::internal
