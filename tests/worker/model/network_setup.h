// Small networks with random samples and weights, for tests.
#ifndef CATCHMENT_TESTS_WORKER_MODEL_NETWORK_SETUP_H_
#define CATCHMENT_TESTS_WORKER_MODEL_NETWORK_SETUP_H_

#include <algorithm>
#include <cmath>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "common/base/random.h"
#include "common/job/initializer.h"
#include "google/protobuf/text_format.h"
#include "gtest/gtest.h"
#include "kernels/cpu/cpu_backend.h"
#include "worker/model/network.h"

namespace catchment {

inline v1::Model Parse(const std::string& text) {
  v1::Model model;
  EXPECT_TRUE(google::protobuf::TextFormat::ParseFromString(text, &model)) << text;
  return model;
}

struct NetworkSetup {
  std::string model;
  SampleShape input;
  int classes = 4;
  int max_batch_size = 8;
  bool deterministic = false;
  int threads = 1;
  int usual_batch_size = 0;
};

inline std::unique_ptr<Network> Make(const NetworkSetup& setup) {
  auto network = Network::Create(
      Parse(setup.model), setup.input, setup.classes,
      {.max_batch_size = setup.max_batch_size, .usual_batch_size = setup.usual_batch_size, .seed = 3},
      MakeCpuBackend({.threads = setup.threads, .deterministic = setup.deterministic}));
  EXPECT_TRUE(network.ok()) << network.status();
  return *std::move(network);
}

// Random samples, and what a network says of them.
struct Samples {
  Samples(int n, const SampleShape& shape, int classes, uint64_t seed = 1)
      : size(shape.size()), inputs(n * shape.size()), labels(n), ids(n) {
    Random random(seed);
    for (float& value : inputs) value = static_cast<float>(random.Normal());
    for (int i = 0; i < n; ++i) labels[i] = static_cast<int32_t>(random.Below(classes));
    for (int i = 0; i < n; ++i) ids[i] = random.Next();
  }

  Minibatch Batch(int begin, int end) const {
    return {inputs.data() + begin * size, labels.data() + begin, ids.data() + begin, end - begin};
  }
  Minibatch Batch() const { return Batch(0, static_cast<int>(labels.size())); }

  int64_t size;
  std::vector<float> inputs;
  std::vector<int32_t> labels;
  std::vector<uint64_t> ids;
};

inline std::vector<float> InitialWeights(const Network& network, uint64_t seed = 1) {
  std::vector<float> weights(network.num_parameters());
  InitializeParameters(network.layers(), seed, {0, network.num_parameters()}, weights.data());
  return weights;
}

inline std::vector<float> GradientOf(Network* network, const std::vector<float>& weights,
                                     const Minibatch& batch) {
  std::vector<float> gradient(weights.size(), std::numeric_limits<float>::quiet_NaN());
  network->Train(weights, batch, absl::MakeSpan(gradient));
  return gradient;
}

inline void ExpectClose(const std::vector<float>& got, const std::vector<double>& want, double tolerance) {
  ASSERT_EQ(got.size(), want.size());
  double largest = 0;
  for (double value : want) largest = std::max(largest, std::fabs(value));
  for (size_t i = 0; i < got.size(); ++i)
    ASSERT_NEAR(got[i], want[i], tolerance * largest) << "parameter " << i;
}

}  // namespace catchment

#endif  // CATCHMENT_TESTS_WORKER_MODEL_NETWORK_SETUP_H_
