#include "communicator/split_exchange.h"

#include <fmt/core.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "net/frame.h"

namespace tutti::internal {
namespace {

// An error that another rank has reported.
Status told_by(int rank, Code code, const std::string& why) {
  if (code == Code::kInvalidArgument || code == Code::kInvalidUsage) {
    return Status::invalid_usage(fmt::format("rank {} was refused: {}", rank, why));
  }
  return Status::remote(fmt::format("rank {} cannot make the new communicator: {}", rank, why));
}

// A rank has sent a message that no correct rank sends.
Status broken(std::size_t rank) {
  return Status::remote(fmt::format("protocol error: rank {} sent damaged data", rank));
}

// Never empty.
std::string reason_of(const Status& status) {
  return status.message().empty() ? "no reason is known" : status.message().substr(0, kMostReasonBytes);
}

}  // namespace

Result<SplitExchange::Answer> SplitExchange::ask(const SplitWish& wish) {
  const auto n = static_cast<std::size_t>(epoch_.ranks());
  const bool refuses = !wish.refused.is_ok();
  const std::string text = refuses                    ? reason_of(wish.refused)
                           : wish.settings != nullptr ? epoch_.pack_settings(*wish.settings)
                                                      : std::string();
  if (!refuses && text.size() > kMostSettingsBytes) {
    SplitWish refused = wish;
    refused.refused = Status::invalid_argument(fmt::format(
        "config takes {} bytes, and a split tells at most {}. Shorten its texts", text.size(), kMostSettingsBytes));
    return ask(refused);
  }
  const SplitRequest own{wish.color, wish.key, epoch_.draw_id(), static_cast<std::int32_t>(wish.refused.code()),
                         static_cast<std::uint32_t>(text.size())};
  std::vector<SplitRequest> requests(n);
  constexpr std::size_t kWords = sizeof own / sizeof(std::uint64_t);
  if (Status s = all_gather(&own, requests.data(), kWords, DataType::kUint64); !s.is_ok()) return s;
  for (std::size_t r = 0; r < n; ++r) {
    if (!is_possible(requests[r], epoch_.membership().job_ranks[r])) return failures_.fail("split", broken(r));
  }
  if (std::memcmp(&requests[static_cast<std::size_t>(epoch_.rank())], &own, sizeof own) != 0) {
    return failures_.fail("split", broken(static_cast<std::size_t>(epoch_.rank())));
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
  return Answer{std::move(requests), std::move(*texts)};
}

SplitGroup SplitExchange::group_of(const SplitWish& wish, Answer answer, std::vector<std::string>* texts) const {
  SplitGroup group;
  group.members = members_of(answer.requests, wish.color);
  group.id = answer.requests[static_cast<std::size_t>(group.members.front())].id;
  for (const int member : group.members) {
    if (!answer.texts.empty()) texts->push_back(std::move(answer.texts[static_cast<std::size_t>(member)]));
  }
  group.settings = wish.settings != nullptr ? *wish.settings : epoch_.settings();
  return group;
}

Status SplitExchange::all_gather(const void* own, void* all, std::size_t count, DataType type) {
  Call call;
  call.collective = Collective::kAllGather;
  call.send = own;
  call.recv = all;
  call.count = count;
  call.type = type;
  call.op = ReduceOp::kSplit;
  return run_(call);
}

Result<std::vector<std::string>> SplitExchange::exchange_texts(const std::string& own,
                                                               std::span<const std::uint32_t> bytes) {
  const std::size_t most = *std::max_element(bytes.begin(), bytes.end());
  std::vector<std::string> texts;
  if (most == 0) return texts;
  std::string padded = own;
  padded.resize(most);
  std::string all(most * bytes.size(), '\0');
  if (Status s = all_gather(padded.data(), all.data(), most, DataType::kUint8); !s.is_ok()) return s;
  for (std::size_t r = 0; r < bytes.size(); ++r) texts.push_back(all.substr(r * most, bytes[r]));
  return texts;
}

Status SplitExchange::agree(Status own) {
  const std::string text = own.is_ok() ? std::string() : reason_of(own);
  const bool of_another = own.code() == Code::kRemoteError;
  const SplitOutcome told{static_cast<std::uint32_t>(text.size()) | (of_another ? SplitOutcome::kOfAnother : 0)};
  std::vector<SplitOutcome> outcomes(static_cast<std::size_t>(epoch_.ranks()));
  if (Status s = all_gather(&told, outcomes.data(), 1, DataType::kUint32); !s.is_ok()) return s;
  for (std::size_t r = 0; r < outcomes.size(); ++r) {
    if (!is_possible(outcomes[r])) return failures_.fail("split", broken(r));
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

Result<std::vector<std::string>> exchange_settings(const Epoch& parent, const Epoch& child, const GroupWish& wish,
                                                   Deadline deadline) {
  const std::string own = wish.settings != nullptr ? parent.pack_settings(*wish.settings) : std::string();
  if (child.tree() == nullptr) return std::vector<std::string>{own};
  net::Packer packer;
  // One member's list may be the beginning of another's longer one.
  packer.number(static_cast<std::uint32_t>(wish.members.size()));
  for (const int member : wish.members) packer.number(static_cast<std::uint32_t>(member));
  const std::string members = packer.bytes();
  auto all = child.all_gather(members + own, deadline);
  if (!all.is_ok()) return all.status();
  std::vector<std::string> texts;
  for (std::size_t r = 0; r < all->size(); ++r) {
    const std::string& told = (*all)[r];
    if (!told.starts_with(members)) {
      return Status::invalid_usage(
          fmt::format("rank {} of the group lists other ranks than rank {}, or in another order", r, child.rank()));
    }
    texts.push_back(told.substr(members.size()));
  }
  return texts;
}

}  // namespace tutti::internal
