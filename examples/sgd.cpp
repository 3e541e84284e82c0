// Stochastic gradient descent with data parallelism and no framework: each rank has its share of every batch, and the
// gradients are averaged by an all-reduce. Fits a linear model to generated data. Under a launcher, or
//
//   examples/run_ranks.sh 4 build/examples/example_sgd
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <random>
#include <span>
#include <tutti/tutti.hpp>
#include <vector>

namespace {

constexpr std::size_t kDimensions = 64;
constexpr int kSteps = 300;
constexpr int kBatch = 24;  // examples of each rank and step
constexpr float kRate = 0.05F;

using Vector = std::vector<float>;

Vector random_vector(std::mt19937& random) {
  std::normal_distribution<float> normal;
  Vector vector(kDimensions);
  for (float& x : vector) x = normal(random);
  return vector;
}

float dot(const Vector& a, std::span<const float> b) {
  float sum = 0;
  for (std::size_t i = 0; i < kDimensions; ++i) sum += a[i] * b[i];
  return sum;
}

// Of the mean squared error of a batch whose right parameters are `truth`.
void compute_gradient(const Vector& parameters, const Vector& truth, std::mt19937& random, std::span<float> gradient) {
  for (float& g : gradient) g = 0;
  for (int i = 0; i < kBatch; ++i) {
    const Vector input = random_vector(random);
    const float error = dot(input, parameters) - dot(input, truth);
    for (std::size_t d = 0; d < kDimensions; ++d) gradient[d] += error * input[d] / kBatch;
  }
}

float distance(const Vector& a, const Vector& b) {
  float sum = 0;
  for (std::size_t i = 0; i < kDimensions; ++i) sum += (a[i] - b[i]) * (a[i] - b[i]);
  return std::sqrt(sum);
}

// How far the parameters are from the right ones in the end.
float train(tutti::Communicator& comm) {
  std::mt19937 shared(1);
  const Vector truth = random_vector(shared);
  std::mt19937 own(static_cast<std::uint32_t>(2 + comm.rank()));
  Vector parameters(kDimensions);
  tutti::Memory<float> gradient(kDimensions);
  for (int step = 0; step < kSteps; ++step) {
    compute_gradient(parameters, truth, own, {gradient.data(), gradient.size()});
    comm.all_reduce(gradient, tuttiAvg);
    for (std::size_t d = 0; d < kDimensions; ++d) parameters[d] -= kRate * gradient[d];
  }
  return distance(parameters, truth);
}

}  // namespace

int main() {
  try {
    tutti::Communicator comm = tutti::Communicator::from_environment();
    const float error = train(comm);
    if (comm.rank() == 0) std::printf("%d ranks: the parameters are right within %g\n", comm.size(), error);
    return error < 0.01F ? 0 : 1;
  } catch (const tutti::Error& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
}
