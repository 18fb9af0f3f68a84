// Samples per second that one worker's training of a job's model reaches by itself: random samples of the
// data's shape, Network::Train, and SGD with momentum on the weights. Prints the number.
//
//   train_speed JOB BATCH_SIZE THREADS SECONDS
#include <cstdio>
#include <cstdlib>
#include <vector>

#include "common/clock.h"
#include "common/initializer.h"
#include "common/job/data_shape.h"
#include "common/job/job_file.h"
#include "common/job/validate.h"
#include "common/random.h"
#include "glog/logging.h"
#include "kernels/cpu/cpu_backend.h"
#include "worker/model/network.h"

namespace catchment {
namespace {

class Trainer {
 public:
  Trainer(const v1::Job& job, int batch_size, int threads) : labels_(batch_size), ids_(batch_size) {
    const DataShape shape = ShapeOf(job.data());
    auto network = Network::Create(job.model(), shape.input, shape.num_classes,
                                   {.max_batch_size = batch_size}, MakeCpuBackend({.threads = threads}));
    CHECK(network.ok()) << network.status();
    network_ = *std::move(network);
    const int64_t parameters = network_->num_parameters();
    weights_.resize(parameters);
    gradient_.resize(parameters);
    momentum_.resize(parameters);
    InitializeParameters(network_->layers(), 1, {0, parameters}, weights_.data());
    Random random(1);
    inputs_.resize(batch_size * shape.input.size());
    for (float& value : inputs_) value = static_cast<float>(random.Normal());
    for (int32_t& label : labels_) label = static_cast<int32_t>(random.Below(shape.num_classes));
  }

  void Step() {
    network_->Train(weights_, {inputs_.data(), labels_.data(), ids_.data(), static_cast<int>(labels_.size())},
                    absl::MakeSpan(gradient_));
    for (size_t i = 0; i < weights_.size(); ++i) {
      momentum_[i] = 0.9f * momentum_[i] + gradient_[i];
      weights_[i] -= 0.001f * momentum_[i];
    }
  }

 private:
  std::unique_ptr<Network> network_;
  std::vector<float> inputs_, weights_, gradient_, momentum_;
  std::vector<int32_t> labels_;
  std::vector<uint64_t> ids_;
};

double SamplesPerSecond(const v1::Job& job, int batch_size, int threads, double seconds) {
  constexpr int kWarmUp = 3;
  Trainer trainer(job, batch_size, threads);
  for (int i = 0; i < kWarmUp; ++i) trainer.Step();
  const SteadyClock clock;
  const double start = clock.Now();
  int64_t samples = 0;
  for (; clock.Now() - start < seconds; samples += batch_size) trainer.Step();
  return static_cast<double>(samples) / (clock.Now() - start);
}

}  // namespace
}  // namespace catchment

int main(int argc, char** argv) {
  CHECK_EQ(argc, 5) << "usage: train_speed JOB BATCH_SIZE THREADS SECONDS";
  const auto loaded = catchment::LoadJob(argv[1]);
  CHECK(loaded.ok()) << loaded.status();
  const auto job = catchment::FillDefaultsAndValidate(*loaded);
  CHECK(job.ok()) << job.status();
  std::printf("%.1f\n",
              catchment::SamplesPerSecond(*job, std::atoi(argv[2]), std::atoi(argv[3]), std::atof(argv[4])));
}
