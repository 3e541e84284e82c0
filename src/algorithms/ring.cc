#include "algorithms/ring.h"

#include <span>
#include <utility>

namespace tutti::internal::algorithms {
namespace {

struct Ring {
  Group members;
  std::vector<Part> parts;  // by index of member

  [[nodiscard]] const Part& part(int k) const { return parts[static_cast<std::size_t>(members.wrap(k))]; }
};

// Round by round: a lane that several rings share carries each round of all of them.
void reduce_scatter(Builder& b, std::span<const Ring> rings, Completes completes) {
  const int n = rings.front().members.size();
  for (int k = 1; k < n; ++k) {
    for (const Ring& ring : rings) {
      const Group& g = ring.members;
      const int i = g.index();
      for (std::size_t q = 0; q < ring.parts.front().size(); ++q) {
        b.send(g.rank(i + 1), ring.part(i - k)[q]);
        b.recv_reduce(g.rank(i - 1), ring.part(i - k - 1)[q], completes_if(k == n - 1, completes));
      }
    }
  }
}

void all_gather(Builder& b, std::span<const Ring> rings) {
  const int n = rings.front().members.size();
  for (int k = 0; k < n - 1; ++k) {
    for (const Ring& ring : rings) {
      const Group& g = ring.members;
      const int i = g.index();
      for (std::size_t q = 0; q < ring.parts.front().size(); ++q) {
        b.send(g.rank(i + 1), ring.part(i - k)[q]);
        b.recv(g.rank(i - 1), ring.part(i - k - 1)[q]);
      }
    }
  }
}

// Host after host; in each host the channel starts at another member.
Group members_of_channel(const Builder& b, const Hosts& hosts, int channel, int channels) {
  std::vector<int> ranks;
  for (const auto& host : hosts) {
    const std::size_t first = host.size() * static_cast<std::size_t>(channel) / static_cast<std::size_t>(channels);
    for (std::size_t i = 0; i < host.size(); ++i) ranks.push_back(host[(first + i) % host.size()]);
  }
  return Group(std::move(ranks), b.rank());
}

// `share` returns the part of c for a channel.
template <class Share>
std::vector<Ring> rings_of(const Builder& b, const Hosts& hosts, int channels, Share share) {
  std::vector<Ring> rings;
  for (int channel = 0; channel < channels; ++channel) {
    Ring ring{members_of_channel(b, hosts, channel, channels), {}};
    for (int i = 0; i < ring.members.size(); ++i) ring.parts.push_back({share(channel, i, ring.members.rank(i))});
    rings.push_back(std::move(ring));
  }
  return rings;
}

// The block of each rank is cut into one part for each channel.
std::vector<Ring> rings_of_blocks(const Builder& b, const Hosts& hosts, int channels, ChunkRange c) {
  const auto ranks = static_cast<std::uint32_t>(b.shape().ranks);
  return rings_of(b, hosts, channels, [&](int channel, int /*index*/, int rank) {
    return c.part(static_cast<std::uint32_t>(rank), ranks)
        .part(static_cast<std::uint32_t>(channel), static_cast<std::uint32_t>(channels));
  });
}

}  // namespace

void ring_reduce_scatter(Builder& b, const Group& g, const std::vector<Part>& parts, Completes completes) {
  const Ring ring{g, parts};
  reduce_scatter(b, {&ring, 1}, completes);
}

void ring_all_gather(Builder& b, const Group& g, const std::vector<Part>& parts) {
  const Ring ring{g, parts};
  all_gather(b, {&ring, 1});
}

void ring_all_reduce(Builder& b, const Group& g, ChunkRange c, Completes completes) {
  const Ring ring{g, equal_parts(c, g.size())};
  reduce_scatter(b, {&ring, 1}, completes);
  all_gather(b, {&ring, 1});
}

void channel_rings_reduce_scatter(Builder& b, const Hosts& hosts, int channels, ChunkRange c, Completes completes) {
  reduce_scatter(b, rings_of_blocks(b, hosts, channels, c), completes);
}

void channel_rings_all_gather(Builder& b, const Hosts& hosts, int channels, ChunkRange c) {
  all_gather(b, rings_of_blocks(b, hosts, channels, c));
}

void channel_rings_all_reduce(Builder& b, const Hosts& hosts, int channels, ChunkRange c, Completes completes) {
  const auto ranks = static_cast<std::uint32_t>(b.shape().ranks);
  const auto rings = rings_of(b, hosts, channels, [&](int channel, int index, int /*rank*/) {
    return c.part(static_cast<std::uint32_t>(channel), static_cast<std::uint32_t>(channels))
        .part(static_cast<std::uint32_t>(index), ranks);
  });
  reduce_scatter(b, rings, completes);
  all_gather(b, rings);
}

}  // namespace tutti::internal::algorithms
