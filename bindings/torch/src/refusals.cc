#include "refusals.h"

#include <exception>

namespace tutti_torch {

// An unreachable store is not an error here: calls in progress no longer need it, and later calls report it.
void Refusals::refuse(std::uint64_t number, const std::string& why) {
  if (refused_ == number) return;
  try {
    const std::string key = prefix_ + std::to_string(number);
    static_cast<c10d::Store&>(*store_).set(key + "/why", "rank " + std::to_string(rank_) + " refused " + why);
    store_->add(key, 1);
    refused_ = number;
  } catch (const std::exception&) {
  }
}

void Refusals::withdraw(std::uint64_t number) {
  if (refused_ != number) return;
  refused_ = 0;
  try {
    store_->add(prefix_ + std::to_string(number), -1);
  } catch (const std::exception&) {
  }
}

std::string Refusals::look(std::uint64_t number) {
  const std::string key = prefix_ + std::to_string(number);
  if (!store_->check({key}) || store_->add(key, 0) <= 0) return {};
  return store_->get_to_str(key + "/why");
}

void Refusals::end(const std::string& why) {
  try {
    static_cast<c10d::Store&>(*store_).set(prefix_ + "ended", why);
  } catch (const std::exception&) {
  }
}

std::string Refusals::why_ended() {
  const std::string key = prefix_ + "ended";
  return store_->check({key}) ? store_->get_to_str(key) : std::string();
}

}  // namespace tutti_torch
