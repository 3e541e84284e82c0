// If one rank of a group refuses a call for its arguments, the others wait in that call. So the rank writes the call
// and the reason to the store, and ranks that have waited for a while read them there.
#pragma once

#include <cstdint>
#include <string>
#include <torch/csrc/distributed/c10d/Store.hpp>
#include <utility>

namespace tutti_torch {

// Of one channel. One thread at a time.
class Refusals {
 public:
  Refusals(c10::intrusive_ptr<c10d::Store> store, const std::string& channel, int rank)
      : store_(std::move(store)), prefix_("refused/" + channel + "/"), rank_(rank) {}
  // This rank has refused its operation `number`, counted from 1.
  void refuse(std::uint64_t number, const std::string& why);
  // It has called it after all.
  void withdraw(std::uint64_t number);
  // Why a rank has refused it; empty: none has. Throws if the store cannot be asked.
  std::string look(std::uint64_t number);
  // Nothing of it goes on, for this reason. Empty: no rank has said so. Throws as look().
  void end(const std::string& why);
  std::string why_ended();

 private:
  const c10::intrusive_ptr<c10d::Store> store_;
  const std::string prefix_;
  const int rank_;
  std::uint64_t refused_ = 0;  // the last; 0: none
};

}  // namespace tutti_torch
