#include "algorithms/costs.h"

#include <algorithm>
#include <cmath>

namespace tutti::internal::algorithms::costs {
namespace {

// One level of the machine: n members over one kind of link.
struct Level {
  int n;
  LinkCosts link;
  double gamma;
  double turns = 1;  // members that share a processor, where that costs this link; at least 1
  double alpha = link.alpha_us;
  double beta = link.beta_us_per_byte;  // where one member of a host uses the link at a time
  double shared_beta = beta;            // where all do
  double message = link.message_us;
  double incast = n > 2 ? link.incast : 1;

  [[nodiscard]] double others() const { return n - 1; }
  [[nodiscard]] double rounds() const { return ceil_log2(n); }
  // How many of them run at once; of two and more at least two, as if no message stayed on its processor.
  [[nodiscard]] int running() const { return std::max(std::min(n, 2), static_cast<int>(std::lround(n / turns))); }
};

Level shared_memory(int n, const Costs& k) {
  return {n, k.within_host, k.gamma_us_per_byte, std::max(1.0, k.ranks_per_cpu)};
}

// `sharing` members of a host use its link at once.
Level network(int n, double sharing, const Costs& k) {
  Level level{n, k.between_hosts, k.gamma_us_per_byte};
  level.shared_beta = level.beta * sharing;
  return level;
}

Level flat(const World& w, const Costs& k) {
  if (w.hosts.size() <= 1) return shared_memory(w.ranks, k);
  return network(w.ranks, static_cast<double>(w.hosts.largest()), k);
}

Level inside_hosts(const World& w, const Costs& k) {
  return shared_memory(w.hosts.empty() ? w.ranks : static_cast<int>(w.hosts.largest()), k);
}

Level between_hosts(const World& w, const Costs& k) {
  return network(std::max(1, static_cast<int>(w.hosts.size())), 1, k);
}

// What a ring combines it sends on in the same pass over the bytes; only the last combination stands alone.
double ring(const Level& l, double bytes, double gamma, double forward_gamma) {
  if (l.n == 1) return 0;
  return l.others() * (l.alpha + bytes / l.n * l.beta) + bytes / l.n * (gamma + (l.n - 2) * forward_gamma);
}
// A message to, or from, each of the others at once, without its bytes.
double burst(const Level& l) {
  return l.n == 1 ? 0 : l.alpha + (l.n - 2) * l.message;
}
// A block from, or to, each of the others at once.
double exchange(const Level& l, double bytes, double gamma) {
  return burst(l) + l.others() * bytes / l.n * (l.shared_beta * l.incast + gamma);
}
// The work with one message, its sender's and its receiver's.
double work(const Level& l, double bytes, double gamma) {
  return l.message + bytes * (l.beta + gamma);
}
// For in_turns(): a level all of whose costs count as often as its members take turns.
Level all_in_turns(Level l) {
  if (l.link.messages_in_turns) return l;
  l.alpha *= l.turns;
  l.message *= l.turns;
  return l;
}
// Of a one-way algorithm (costs.h). `path`: what its longest path takes; `all`: the work of all members together. Both
// as all_in_turns() says.
double in_turns(const Level& l, double path, double all) {
  return (path + (l.turns - 1) * all / l.n) / l.turns;
}
// Children of the root of a tree.
double children_of_root(int n, int radix) {
  std::int64_t sum = 0;
  for (std::int64_t unit = 1; unit < n; unit *= radix) sum += std::min<std::int64_t>(radix, (n + unit - 1) / unit) - 1;
  return static_cast<double>(sum);
}
// A child costs an alpha, although the messages to several are under way at once: no radix but 2 is taken before it has
// been measured to be faster.
double k_nomial(const Level& level, double bytes, double gamma, int radix) {
  const Level l = all_in_turns(level);
  const double path =
      children_of_root(l.running(), radix) * l.alpha + children_of_root(l.n, radix) * bytes * (l.beta + gamma);
  return in_turns(l, path, l.others() * work(l, bytes, gamma));
}
double binomial(const Level& l, double bytes, double gamma) {
  return k_nomial(l, bytes, gamma, 2);
}
// To one and back to all: who waits for what comes back gives its turn away, so each hop counts.
double k_nomial_both(const Level& l, double bytes, int radix) {
  return children_of_root(l.n, radix) * (2 * l.alpha + bytes * (2 * l.beta + l.gamma));
}
// Links one after the other, each carrying the vector once, piece by piece, and in `pieces` at least: `hops` of them
// are waited for, and at the first piece all `depth`.
double pipeline(const Level& l, double hops, double depth, double bytes, double gamma, int pieces = 1) {
  if (l.n == 1) return 0;
  const double piece = std::min(bytes / pieces, l.link.piece_bytes);
  return hops * l.alpha + (bytes + (depth - 1) * piece) * (l.beta + gamma) + (pieces - 1) * l.message;
}
double chain(const Level& level, double depth, double bytes, double gamma, int pieces) {
  const Level l = all_in_turns(level);
  const double path = pipeline(l, l.running() - 1, depth, bytes, gamma, pieces);
  return in_turns(l, path, l.others() * (work(l, bytes, gamma) + (pieces - 1) * l.message));
}
double chain(const Level& l, double bytes, double gamma, int pieces = 1) {
  return chain(l, l.others(), bytes, gamma, pieces);
}
// From each member to the next: the links between members of one processor are no more than these members' work.
double chain_in_order(const Level& l, double bytes, double gamma, int pieces) {
  return chain(l, l.running() - 1, bytes, gamma, pieces);
}
// Each of the two trees carries half of the vector, and an inner member serves two children.
double double_tree(const Level& level, double bytes, double gamma) {
  const Level l = all_in_turns(level);
  const double path = pipeline(l, 2 * ceil_log2(l.running()), 2 * l.rounds(), bytes, gamma);
  return in_turns(l, path, l.others() * (work(l, bytes, gamma) + l.message));
}
// As k_nomial_both().
double double_tree_both(const Level& l, double bytes) {
  return pipeline(l, 2 * l.rounds(), 2 * l.rounds(), bytes, l.gamma) +
         pipeline(l, 2 * l.rounds(), 2 * l.rounds(), bytes, 0);
}
double chain_both(const Level& l, double bytes) {
  return pipeline(l, l.others(), l.others(), bytes, l.gamma) + pipeline(l, l.others(), l.others(), bytes, 0);
}
// One member exchanges `bytes` with each of the others.
double star(const Level& level, double bytes, double gamma) {
  const Level l = all_in_turns(level);
  return in_turns(l, burst(l) + l.others() * bytes * (l.beta + gamma), l.others() * work(l, bytes, gamma));
}
// Member r sends to member r + 1, then to r + 2, r + 4, and so on.
double doubling_prefix(const Level& level, double bytes, double gamma) {
  const Level l = all_in_turns(level);
  double messages = 0;
  for (std::int64_t distance = 1; distance < l.n; distance *= 2) messages += static_cast<double>(l.n - distance);
  const double path = ceil_log2(l.running()) * (l.alpha + bytes * (l.shared_beta + gamma));
  return in_turns(l, path, messages * work(l, bytes, gamma));
}
double doubling(const Level& l, double bytes) {
  const int p = power_of_two_below(l.n);
  const double rounds = ceil_log2(p) * (l.alpha + bytes * (l.shared_beta + l.gamma));
  const double fold = p == l.n ? 0 : 2 * (l.alpha + bytes * l.shared_beta) + bytes * l.gamma;
  return rounds + fold;
}
double halving(const Level& l, double bytes) {
  const int p = power_of_two_below(l.n);
  const double fold = p == l.n ? 0 : l.alpha + bytes * (l.shared_beta + l.gamma);
  return fold + ceil_log2(p) * l.alpha + (p - 1.0) / p * bytes * (l.shared_beta + l.gamma);
}

}  // namespace

double ring_reduce_scatter(const World& w, double bytes, const Costs& k) {
  return ring(flat(w, k), bytes, k.gamma_us_per_byte, k.forward_gamma_us_per_byte);
}
double ring_all_gather(const World& w, double bytes, const Costs& k) {
  return ring(flat(w, k), bytes, 0, 0);
}
double ring_all_reduce(const World& w, double bytes, const Costs& k) {
  return ring_reduce_scatter(w, bytes, k) + ring_all_gather(w, bytes, k);
}

double doubling_all_reduce(const World& w, double bytes, const Costs& k) {
  return doubling(flat(w, k), bytes);
}
double bruck_all_gather(const World& w, double bytes, const Costs& k) {
  const Level l = flat(w, k);
  return l.rounds() * l.alpha + l.others() / l.n * bytes * l.shared_beta;
}

double doubling_all_gather(const World& w, double bytes, const Costs& k) {
  const Level l = flat(w, k);
  const int p = power_of_two_below(l.n);
  // Measured where all hosts have one rank; and of two ranks all algorithms are pairs.
  const bool has_others = l.n > 2 && w.hosts.size() == static_cast<std::size_t>(w.ranks);
  const double alpha = l.alpha - (has_others ? l.link.paired_round_saves_us : 0);
  const double fold = p == l.n ? 0 : 2 * alpha + (bytes + bytes / l.n) * l.shared_beta;
  return ceil_log2(p) * alpha + (p - 1.0) / p * bytes * l.shared_beta + fold;
}

double halving_doubling_all_reduce(const World& w, double bytes, const Costs& k) {
  const Level l = flat(w, k);
  const int p = power_of_two_below(l.n);
  const double gather = ceil_log2(p) * l.alpha + (p - 1.0) / p * bytes * l.shared_beta;
  const double back = p == l.n ? 0 : l.alpha + bytes * l.shared_beta;
  return halving(l, bytes) + gather + back;
}
double halving_reduce_scatter(const World& w, double bytes, const Costs& k) {
  const Level l = flat(w, k);
  const double back = power_of_two_below(l.n) == l.n ? 0 : l.alpha + bytes / l.n * l.shared_beta;
  return halving(l, bytes) + back;
}

double k_nomial_broadcast(const World& w, double bytes, const Costs& k, int radix) {
  return k_nomial(flat(w, k), bytes, 0, radix);
}
double k_nomial_reduce(const World& w, double bytes, const Costs& k, int radix) {
  return k_nomial(flat(w, k), bytes, k.gamma_us_per_byte, radix);
}
double k_nomial_all_reduce(const World& w, double bytes, const Costs& k, int radix) {
  return k_nomial_both(flat(w, k), bytes, radix);
}
double k_nomial_gather(const World& w, double bytes, const Costs& k, int radix) {
  const Level l = flat(w, k);
  return children_of_root(l.n, radix) * l.alpha + l.others() / l.n * bytes * (l.beta + l.gamma);
}
double ordered_binomial_reduce(const World& w, double bytes, const Costs& k) {
  return k_nomial_reduce(w, bytes, k, 2);
}

double chain_broadcast(const World& w, double bytes, const Costs& k, int pieces) {
  return chain(flat(w, k), bytes, 0, pieces);
}
double chain_reduce(const World& w, double bytes, const Costs& k, int pieces) {
  return chain(flat(w, k), bytes, k.gamma_us_per_byte, pieces);
}

double ordered_chains_reduce(const World& w, double bytes, const Costs& k) {
  const Level l = flat(w, k);
  const double second = l.n > 2 ? bytes * (l.beta + l.gamma) : 0;
  return chain(l, bytes, l.gamma) + second;
}

double double_tree_broadcast(const World& w, double bytes, const Costs& k) {
  return double_tree(flat(w, k), bytes, 0);
}
double double_tree_reduce(const World& w, double bytes, const Costs& k) {
  return double_tree(flat(w, k), bytes, k.gamma_us_per_byte);
}
double double_tree_all_reduce(const World& w, double bytes, const Costs& k) {
  return double_tree_both(flat(w, k), bytes);
}

double direct_all_reduce(const World& w, double bytes, const Costs& k) {
  const Level l = flat(w, k);
  return burst(l) + l.others() * bytes * (l.shared_beta + l.gamma);
}
double direct_reduce_scatter(const World& w, double bytes, const Costs& k) {
  return exchange(flat(w, k), bytes, k.gamma_us_per_byte);
}
double direct_all_gather(const World& w, double bytes, const Costs& k) {
  return exchange(flat(w, k), bytes, 0);
}
double direct_two_phase_all_reduce(const World& w, double bytes, const Costs& k) {
  return direct_reduce_scatter(w, bytes, k) + direct_all_gather(w, bytes, k);
}
double direct_broadcast(const World& w, double bytes, const Costs& k) {
  return star(flat(w, k), bytes, 0);
}
double direct_reduce(const World& w, double bytes, const Costs& k) {
  return star(flat(w, k), bytes, k.gamma_us_per_byte);
}

double direct_gather(const World& w, double bytes, const Costs& k) {
  const Level l = flat(w, k);
  return burst(l) + l.others() * bytes / l.n * l.beta;
}
double direct_all_to_all(const World& w, double bytes, const Costs& k) {
  return direct_all_gather(w, bytes, k);
}
// No two send to one at once. Yet over TCP within a machine, the one place where that could be measured, bytes take as
// long as sent all at once (3, 4 and 8 ranks, 256 KiB to 16 MiB: 0.6 to 1.35 times, 1.0 on the whole).
double pairwise_all_to_all(const World& w, double bytes, const Costs& k) {
  const Level l = flat(w, k);
  return l.others() * (l.alpha + bytes / l.n * l.shared_beta * l.incast);
}
double bruck_all_to_all(const World& w, double bytes, const Costs& k) {
  const Level l = flat(w, k);
  return l.rounds() * (l.alpha + bytes / 2 * (l.shared_beta + l.gamma));
}

double doubling_scan(const World& w, double bytes, const Costs& k) {
  return doubling_prefix(flat(w, k), bytes, k.gamma_us_per_byte);
}
double chain_scan(const World& w, double bytes, const Costs& k, int pieces) {
  return chain_in_order(flat(w, k), bytes, k.gamma_us_per_byte, pieces);
}
double doubling_exscan(const World& w, double bytes, const Costs& k) {
  return doubling_prefix(flat(w, k), bytes, 2 * k.gamma_us_per_byte);
}
double chain_exscan(const World& w, double bytes, const Costs& k, int pieces) {
  return chain_in_order(flat(w, k), bytes, 2 * k.gamma_us_per_byte, pieces);
}

double hierarchical_all_reduce(const World& w, double bytes, const Costs& k) {
  const Level in = inside_hosts(w, k);
  const Level out = between_hosts(w, k);
  if (!w.hosts.are_equal()) {
    return chain_both(in, bytes) + ring(out, bytes, out.gamma, 0) + ring(out, bytes, 0, 0);
  }
  // A host's members share its link, each with its part of the vector: together the vector once.
  const double between = ring(out, bytes, 0, 0) * 2 + out.others() / out.n * bytes / in.n * out.gamma;
  return exchange(in, bytes, in.gamma) + between + exchange(in, bytes, 0);
}
double hierarchical_doubling_all_reduce(const World& w, double bytes, const Costs& k) {
  const Level in = inside_hosts(w, k);
  return k_nomial_both(in, bytes, 2) + doubling(between_hosts(w, k), bytes);
}

double hierarchical_broadcast(const World& w, double bytes, const Costs& k) {
  return binomial(between_hosts(w, k), bytes, 0) + binomial(inside_hosts(w, k), bytes, 0);
}
double hierarchical_reduce(const World& w, double bytes, const Costs& k) {
  const double gamma = k.gamma_us_per_byte;
  return binomial(between_hosts(w, k), bytes, gamma) + binomial(inside_hosts(w, k), bytes, gamma);
}
// Between the hosts the vector goes piece by piece; inside, only the last piece is not on its way meanwhile.
double hierarchical_chain_broadcast(const World& w, double bytes, const Costs& k) {
  const Level out = between_hosts(w, k);
  return chain(out, bytes, 0) + chain(inside_hosts(w, k), std::min(bytes, out.link.piece_bytes), 0);
}
double hierarchical_chain_reduce(const World& w, double bytes, const Costs& k) {
  const double gamma = k.gamma_us_per_byte;
  const Level out = between_hosts(w, k);
  return chain(out, bytes, gamma) + chain(inside_hosts(w, k), std::min(bytes, out.link.piece_bytes), gamma);
}

double hierarchical_reduce_scatter(const World& w, double bytes, const Costs& k) {
  const Level in = inside_hosts(w, k);
  const Level out = between_hosts(w, k);
  return exchange(in, bytes, in.gamma) + ring(out, bytes, 0, 0) + out.others() / out.n * bytes / in.n * out.gamma;
}
double hierarchical_all_gather(const World& w, double bytes, const Costs& k) {
  return ring(between_hosts(w, k), bytes, 0, 0) + exchange(inside_hosts(w, k), bytes, 0);
}

}  // namespace tutti::internal::algorithms::costs
