#include "algorithms/hierarchy.h"

#include <algorithm>
#include <utility>

#include "base/first_use.h"

namespace tutti::internal::algorithms {

Hierarchy::Hierarchy(std::vector<Hosts> divisions) {
  auto data = std::make_shared<Data>();
  for (Hosts& one : divisions) {
    const bool groups = one.size() > 1 && one.largest() > 1;
    const bool repeats = !data->divisions.empty() && data->divisions.back() == one;
    if (groups && !repeats) data->divisions.push_back(std::move(one));
  }
  if (data->divisions.empty()) return;
  for (const Hosts& one : data->divisions) {
    data->equal = data->equal && one.are_equal();
    data->in_order = data->in_order && one.are_in_order();
  }
  const std::size_t ranks = data->divisions.front().ranks();
  for (const Hosts& one : data->divisions) {
    if (!one.check(static_cast<int>(ranks)).is_ok()) data->trouble = "a division is not one of all ranks";
  }
  const bool computed = data->equal && data->in_order;
  for (std::size_t i = 0; i < data->divisions.size() && data->trouble == nullptr; ++i) {
    const Hosts& one = data->divisions[i];
    const Hosts* const before = i > 0 ? &data->divisions[i - 1] : nullptr;
    if (computed) {
      // If groups are equal and in order, they divide the previous groups exactly if the sizes do.
      if (before != nullptr && before->largest() % one.largest() != 0) data->trouble = "a group is in two others";
      continue;
    }
    auto& inside = data->inside.emplace_back(before != nullptr ? before->size() : 1);
    for (std::size_t g = 0; g < one.size(); ++g) {
      const std::size_t around = before != nullptr ? before->position_of(one[g].front()).host : 0;
      inside[around].push_back(static_cast<int>(g));
      for (const int rank : one[g]) {
        if (before != nullptr && before->position_of(rank).host != around) data->trouble = "a group is in two others";
      }
    }
  }
  data_ = std::move(data);
}

const std::vector<Hosts>& Hierarchy::divisions() const {
  static constinit FirstUse<const std::vector<Hosts>> none;
  return data_ == nullptr ? none.get() : data_->divisions;
}

Hierarchy Hierarchy::outermost(std::size_t count) const {
  if (count >= size()) return *this;
  return Hierarchy({divisions().begin(), divisions().begin() + static_cast<std::ptrdiff_t>(count)});
}

Status Hierarchy::check(int ranks) const {
  if (data_ == nullptr) return {};
  if (data_->trouble != nullptr) return Status::invalid_argument(data_->trouble);
  return data_->divisions.front().check(ranks);
}

Levels::Levels(const Hierarchy& hierarchy, int ranks, int me) : all_(hierarchy), ranks_(ranks), me_(me) {
  for (std::size_t level = 0; level < all_.size(); ++level) {
    const int g = group(level);
    if (computed()) {
      const int around = level == 0 ? ranks : ranks_in(level - 1);
      places_.push_back(static_cast<std::size_t>(me % around / ranks_in(level)));
      continue;
    }
    const std::vector<int>& inside = all_.inside(level, outer_group(level));
    places_.push_back(static_cast<std::size_t>(std::find(inside.begin(), inside.end(), g) - inside.begin()));
  }
  places_.push_back(all_[all_.size() - 1].position_of(me).local_rank);
}

int Levels::counterpart_in(std::size_t i, int g) const {
  for (; i + 1 < all_.size(); ++i) g = all_.inside(i + 1, g)[places_[i + 1]];
  return all_[i][static_cast<std::size_t>(g)][places_.back()];
}

Group Levels::peers(std::size_t level) const {
  if (computed()) {
    const int around = level == 0 ? ranks_ : ranks_in(level - 1);
    const int each = ranks_in(level);
    return Group::progression(me_ / around * around + me_ % each, each, around / each, me_);
  }
  if (level == all_.size()) return Group(all_[level - 1][static_cast<std::size_t>(group(level - 1))], me_);
  std::vector<int> ranks;
  for (const int g : all_.inside(level, outer_group(level))) ranks.push_back(counterpart_in(level, g));
  return Group(std::move(ranks), me_);
}

std::vector<std::vector<int>> Levels::layer(std::size_t level) const {
  const Hosts& around = all_[level - 1];
  std::vector<std::vector<int>> all(around.size());
  const int each = ranks_in(level);
  for (std::size_t g = 0; g < around.size(); ++g) {
    if (level == all_.size()) {
      all[g] = around[g];
    } else if (computed()) {
      const int first = static_cast<int>(g) * ranks_in(level - 1) + me_ % each;
      for (int r = first; r < first + ranks_in(level - 1); r += each) all[g].push_back(r);
    } else {
      for (const int one : all_.inside(level, static_cast<int>(g))) all[g].push_back(counterpart_in(level, one));
    }
  }
  return all;
}

int Levels::leader_of(std::size_t i, int g, int root) const {
  if (root >= 0 && static_cast<int>(all_[i].position_of(root).host) == g) return root;
  // In order, the first rank of the first group is the first one of all.
  for (; !computed() && i + 1 < all_.size(); ++i) g = all_.inside(i + 1, g).front();
  return all_[i][static_cast<std::size_t>(g)].front();
}

bool Levels::leads(std::size_t level, int root) const {
  return level == all_.size() || leader_of(level, group(level), root) == me_;
}

Group Levels::leaders(std::size_t level, int root) const {
  if (level == all_.size()) return Group(all_[level - 1][static_cast<std::size_t>(group(level - 1))], me_);
  std::vector<int> ranks;
  const auto add = [&](int g) { ranks.push_back(leader_of(level, g, root)); };
  if (computed()) {
    const int count = (level == 0 ? ranks_ : ranks_in(level - 1)) / ranks_in(level);
    ranks.reserve(static_cast<std::size_t>(count));
    for (int i = 0; i < count; ++i) add(outer_group(level) * count + i);
  } else {
    for (const int g : all_.inside(level, outer_group(level))) add(g);
  }
  return Group(std::move(ranks), me_);
}

int Levels::head(std::size_t level, int root, const Group& leaders) const {
  if (level > 0) return leaders.index_of(leader_of(level - 1, group(level - 1), root));
  return root < 0 ? 0 : leaders.index_of(root);
}

}  // namespace tutti::internal::algorithms
