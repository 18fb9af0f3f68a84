// Samples per second that one worker's training of a job's model reaches by itself: random samples of the
// data's shape, Network::Train, and SGD with momentum on the weights. Prints the number.
//
//   train_speed [--device=cuda] [--precision=BFLOAT16] [--update=false] JOB BATCH_SIZE THREADS SECONDS
//
// Without --update the weights stay as they are: where servers move them, a worker's step is its gradient.
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "common/base/clock.h"
#include "common/base/random.h"
#include "common/job/data_sources.h"
#include "common/job/initializer.h"
#include "common/job/job_text.h"
#include "common/job/validate.h"
#include "common/program/command_line.h"
#include "glog/logging.h"
#include "kernels/cuda/loader.h"
#include "kernels/device/device.h"
#include "worker/model/network.h"

namespace catchment {
namespace {

struct Options {
  std::string device = "cpu";
  std::string precision;
  bool update = true;
};

// Ends the program with the reason where the device cannot be used.
std::unique_ptr<Backend> MakeBackend(const v1::Job& job, const std::string& name, int threads) {
  const auto device = ResolveDevice(name, v1::CPU);
  CHECK(device.ok()) << device.status();
  auto choice = ChooseDevice(*device, {.cpu = {.threads = threads},
                                       .precision = job.computation().precision(),
                                       .cuda_plugin = CudaPluginPath()});
  if (!choice.ok()) {
    std::fprintf(stderr, "%s\n", std::string(choice.status().message()).c_str());
    std::exit(1);
  }
  std::fprintf(stderr, "%s\n", choice->explanation.c_str());
  return std::move(choice->backend);
}

class Trainer {
 public:
  Trainer(const v1::Job& job, const Options& options, int batch_size, int threads)
      : update_(options.update), labels_(batch_size), ids_(batch_size) {
    const DataShape shape = ShapeOf(job.data());
    auto network = Network::Create(job.model(), shape.input, shape.target, {.max_batch_size = batch_size},
                                   MakeBackend(job, options.device, threads));
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
    for (int32_t& label : labels_) label = static_cast<int32_t>(random.Below(shape.target.classes));
    // As a worker does.
    for (const std::vector<float>* vector : {&inputs_, &weights_, &gradient_})
      pinned_.push_back(network_->Pin(*vector));
  }

  void Step() {
    network_->Train(weights_, {inputs_.data(), labels_.data(), ids_.data(), static_cast<int>(labels_.size())},
                    absl::MakeSpan(gradient_));
    if (!update_) return;
    for (size_t i = 0; i < weights_.size(); ++i) {
      momentum_[i] = 0.9f * momentum_[i] + gradient_[i];
      weights_[i] -= 0.001f * momentum_[i];
    }
  }

 private:
  const bool update_;
  std::unique_ptr<Network> network_;
  std::vector<float> inputs_, weights_, gradient_, momentum_;
  std::vector<int32_t> labels_;
  std::vector<uint64_t> ids_;
  std::vector<std::unique_ptr<Pinning>> pinned_;
};

double SamplesPerSecond(const v1::Job& job, const Options& options, int batch_size, int threads,
                        double seconds) {
  constexpr int kWarmUp = 3;
  Trainer trainer(job, options, batch_size, threads);
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
  catchment::Options options;
  catchment::FlagSet flags;
  flags.AddString("device", "DEVICE", &options.device, "auto, cpu, cuda or cuda:INDEX. Default cpu.");
  flags.AddString("precision", "NAME", &options.precision, "Replaces the job's computation.precision.");
  flags.AddSwitch("update", &options.update,
                  "Also updates the weights, by SGD with momentum, on the processor.");
  const auto words = flags.Parse({argv + 1, argv + argc});
  CHECK(words.ok()) << words.status();
  if (words->size() != 4) {
    std::fprintf(stderr, "usage: train_speed [FLAGS] JOB BATCH_SIZE THREADS SECONDS\n%s",
                 flags.Describe(80).c_str());
    return 2;
  }
  auto loaded = catchment::LoadJob((*words)[0]);
  CHECK(loaded.ok()) << loaded.status();
  catchment::v1::Computation::Precision precision;
  if (!options.precision.empty()) {
    CHECK(catchment::v1::Computation::Precision_Parse(options.precision, &precision))
        << "--precision=" << options.precision << " is none of FLOAT32, TF32, BFLOAT16, FLOAT16";
    loaded->mutable_computation()->set_precision(precision);
  }
  const auto job = catchment::FillDefaultsAndValidate(*loaded);
  CHECK(job.ok()) << job.status();
  std::printf("%.1f\n",
              catchment::SamplesPerSecond(*job, options, std::atoi((*words)[1].c_str()),
                                          std::atoi((*words)[2].c_str()), std::atof((*words)[3].c_str())));
}
