// Sends and receives of Backend between CPU tensors of two ranks, and the channels in which they go.
#include <chrono>
#include <exception>
#include <future>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <tuple>
#include <utility>

#include "backend.h"
#include "departures.h"
#include "failure.h"
#include "run.h"
#include "shared_threads.h"
#include "watchdog.h"

namespace tutti_torch {
namespace {

constexpr int kLooksForDead = 30;
constexpr std::chrono::milliseconds kPauseForDead{50};

}  // namespace

std::string Backend::no_pair(int peer, Clock::time_point deadline) const {
  if (closing_) return "the process group has been shut down";
  // A dead rank never joins; the group's communicator knows whether a rank is dead.
  const tuttiComm_t comm = collectives_->comm();
  tuttiResult_t failed = tuttiSuccess;
  if (comm != nullptr && tuttiCommGetAsyncError(comm, &failed) == tuttiSuccess && failed != tuttiSuccess)
    return failure_text(failed, comm);
  if (std::string left = told_of_departure(*own_store_, peer); !left.empty()) return left;
  if (Clock::now() < deadline) return {};
  return c10::str(kTimedOut, "rank ", peer,
                  " has called no send or recv that matches the first one to or from it, for ", comm_timeout_.count(),
                  " ms");
}

// REQUIRES: messages_mutex_. A new entry if there is none, or if its channel has been ended.
Backend::Messages& Backend::messages_of(const Direction& direction) {
  Messages& messages = messages_[direction];
  if (messages.channel == nullptr || !messages.channel->was_ended()) return messages;
  ended_messages_.emplace_back();
  std::swap(ended_messages_.back(), messages);
  messages.ended = ended_messages_.back().ended + 1;
  messages.receives = ended_messages_.back().receives;
  return messages;
}

std::pair<std::shared_ptr<Channel>, std::shared_ptr<TaggedReceives>> Backend::messages(const Direction& direction) {
  const std::lock_guard<std::mutex> lock(messages_mutex_);
  const auto [from, to, tagged] = direction;
  if (closing_) refuse(from == rank_ ? "send" : "recv", "the process group has been shut down");
  Messages& messages = messages_of(direction);
  if (messages.channel != nullptr) return {messages.channel, messages.receives};
  std::string name = (tagged ? "tagged/" : "messages/") + std::to_string(from) + "/" + std::to_string(to);
  if (messages.ended > 0) name += "/" + std::to_string(messages.ended);
  auto opening = std::make_shared<Channel>(name, PairRanks{from, to}, own_store_, rank_);
  std::shared_ptr<TaggedReceives> its_receives = messages.receives;
  if (tagged && to == rank_) {
    its_receives = std::make_shared<TaggedReceives>(opening, from, comm_timeout_, messages.receives);
    opening->look_also([weak = std::weak_ptr(its_receives)] {
      if (const auto receives = weak.lock()) receives->fail_late();
    });
  }
  Watchdog::get().add(opening);
  const auto done = std::make_shared<std::promise<void>>();
  auto joined = done->get_future();
  SharedThreads::get().run([this, direction, name, channel = opening, receives = its_receives, done]() mutable {
    join_messages(direction, name, std::exchange(channel, nullptr), std::exchange(receives, nullptr));
    done->set_value();
  });
  // Only here, after all that can fail: a failure before would leave a channel that no thread opens.
  messages.channel = std::move(opening);
  messages.receives = std::move(its_receives);
  messages.joined = std::move(joined);
  return {messages.channel, messages.receives};
}

void Backend::join_messages(const Direction& direction, const std::string& name,
                            const std::shared_ptr<Channel>& channel, const std::shared_ptr<TaggedReceives>& receives) {
  const PairRanks ranks{direction.from, direction.to};
  const int own = direction.from == rank_ ? 0 : 1;
  const int peer = own == 0 ? direction.to : direction.from;
  const auto deadline = Clock::now() + comm_timeout_;
  const auto why_none = [&] { return no_pair(peer, deadline); };
  try {
    const Pair pair{collectives_->comm(), direction.from, direction.to};
    channel->open(join_pair(*own_store_, name, pair, own, comm_timeout_, why_none));
    if (receives != nullptr) receives->start();
    return;
  } catch (const c10::Error&) {
    // A rank that has died is soon known of, in the words of the whole group.
    std::string why;
    for (int look = 0; look < kLooksForDead && why.empty(); ++look) {
      why = why_none();
      if (why.empty()) std::this_thread::sleep_for(kPauseForDead);
    }
    if (why.empty())
      why = c10::str("no connection to rank ", peer, ": ",
                     told_of_pair(reason_of(std::current_exception(), "init"), ranks));
    channel->fail(why);
  } catch (const std::exception& e) {
    channel->fail(e.what());
  }
  if (receives != nullptr) receives->fail(tuttiSystemError);
}

void Backend::check_peer(const char* name, int peer) const {
  const bool is_rank = peer >= 0 && peer < size_;
  if (is_rank && peer != rank_) return;
  refuse(name, is_rank ? "a rank cannot exchange messages with itself" : c10::str("invalid rank: ", peer));
}

namespace {

MessageHeader header_of(const at::Tensor& tensor, int tag) {
  const Moved what = moved(tensor);
  return {tag, static_cast<std::int64_t>(what.count(tensor)), static_cast<std::int64_t>(what.type)};
}

}  // namespace

WorkPtr Backend::send(Tensors& tensors, int to, int tag) {
  if (!device_of(tensors).is_cpu()) return transfer_on_device(true, tensors, to);
  const auto find = [&] {
    check_peer("send", to);
    return messages({rank_, to, tag != 0}).first;
  };
  return run_in(find, [&] {
    const at::Tensor& tensor = check_single("send", tensors);
    Operation operation(c10d::OpType::SEND, "send", "tutti:send", {tensor}, {});
    operation.route = {rank_, to};
    operation.call = [data = operation.read(tensor).data_ptr(), what = moved(tensor),
                      count = moved(tensor).count(tensor)](tuttiComm_t comm, void* stream) {
      return tuttiSend(data, count, what.type, 1, comm, stream);
    };
    if (tag != 0) {
      const auto header = std::make_shared<MessageHeader>(header_of(tensor, tag));
      operation.call = send_with_header(header, std::move(operation.call));
      operation.after = [header] {};
    }
    return operation;
  });
}

WorkPtr Backend::recv(Tensors& tensors, int from, int tag) {
  if (!device_of(tensors).is_cpu()) return transfer_on_device(false, tensors, from);
  std::shared_ptr<TaggedReceives> receives;
  const auto find = [&] {
    check_peer("recv", from);
    std::shared_ptr<Channel> channel;
    std::tie(channel, receives) = messages({from, rank_, tag != 0});
    return channel;
  };
  return run_in(find, [&] {
    const at::Tensor& tensor = check_single("recv", tensors);
    Operation operation(c10d::OpType::RECV, "recv", "tutti:recv", {}, {tensor});
    operation.sender = from;
    operation.route = {from, rank_};
    void* const data = operation.write(tensor).data_ptr();
    operation.call = [data, what = moved(tensor), count = moved(tensor).count(tensor)](tuttiComm_t comm, void* stream) {
      return tuttiRecv(data, count, what.type, 0, comm, stream);
    };
    if (tag != 0) {
      operation.receives = receives;
      operation.wanted = {header_of(tensor, tag), data, nullptr};
    }
    return operation;
  });
}

}  // namespace tutti_torch
