// Images per second through Network::Train and Network::Evaluate, on random images of MNIST's shape.
// Arguments: batch size, threads.
#include <vector>

#include "benchmark/benchmark.h"
#include "common/base/random.h"
#include "common/job/initializer.h"
#include "glog/logging.h"
#include "google/protobuf/text_format.h"
#include "kernels/cpu/cpu_backend.h"
#include "worker/model/network.h"

namespace catchment {
namespace {

constexpr char kCnn[] = R"(
  layers { conv2d { filters: 32 kernel_size: 3 } } layers { relu {} }
  layers { conv2d { filters: 64 kernel_size: 3 } } layers { relu {} }
  layers { max_pool { size: 2 } } layers { dropout { rate: 0.25 } } layers { flatten {} }
  layers { dense { units: 128 } } layers { relu {} } layers { dropout { rate: 0.5 } }
  layers { dense { units: 10 } })";

constexpr char kMlp[] = R"(
  layers { flatten {} }
  layers { dense { units: 256 } } layers { relu {} }
  layers { dense { units: 128 } } layers { relu {} }
  layers { dense { units: 10 } })";

class Bench {
 public:
  Bench(const char* text, int batch_size, int threads)
      : inputs_(batch_size * 784), labels_(batch_size), ids_(batch_size) {
    v1::Model model;
    CHECK(google::protobuf::TextFormat::ParseFromString(text, &model));
    auto network = Network::Create(model, {1, 28, 28}, 10, {.max_batch_size = batch_size},
                                   MakeCpuBackend({.threads = threads}));
    CHECK(network.ok()) << network.status();
    network_ = *std::move(network);
    weights_.resize(network_->num_parameters());
    gradient_.resize(network_->num_parameters());
    InitializeParameters(network_->layers(), 1, {0, network_->num_parameters()}, weights_.data());
    Random random(1);
    for (float& value : inputs_) value = static_cast<float>(random.Normal());
    for (int32_t& label : labels_) label = static_cast<int32_t>(random.Below(10));
    for (size_t i = 0; i < ids_.size(); ++i) ids_[i] = i;
  }

  void Train() { network_->Train(weights_, batch(), absl::MakeSpan(gradient_)); }
  void Evaluate() { network_->Evaluate(weights_, batch()); }

 private:
  Minibatch batch() const {
    return {inputs_.data(), labels_.data(), ids_.data(), static_cast<int>(labels_.size())};
  }

  std::unique_ptr<Network> network_;
  std::vector<float> inputs_, weights_, gradient_;
  std::vector<int32_t> labels_;
  std::vector<uint64_t> ids_;
};

void Train(benchmark::State& state, const char* model) {
  Bench bench(model, state.range(0), state.range(1));
  for (auto _ : state) bench.Train();
  state.SetItemsProcessed(state.iterations() * state.range(0));
}

void Evaluate(benchmark::State& state, const char* model) {
  Bench bench(model, state.range(0), state.range(1));
  for (auto _ : state) bench.Evaluate();
  state.SetItemsProcessed(state.iterations() * state.range(0));
}

BENCHMARK_CAPTURE(Train, cnn, kCnn)->Args({128, 1})->Args({128, 2})->Args({32, 1})->UseRealTime();
BENCHMARK_CAPTURE(Train, mlp, kMlp)->Args({128, 1})->Args({128, 2})->Args({32, 1})->UseRealTime();
BENCHMARK_CAPTURE(Evaluate, cnn, kCnn)->Args({128, 1})->UseRealTime();
BENCHMARK_CAPTURE(Evaluate, mlp, kMlp)->Args({128, 1})->UseRealTime();

}  // namespace
}  // namespace catchment

BENCHMARK_MAIN();
