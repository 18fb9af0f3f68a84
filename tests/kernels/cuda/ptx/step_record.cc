#include "tests/kernels/cuda/ptx/step_record.h"

#include <algorithm>
#include <cstdlib>
#include <utility>

#include "common/base/random.h"
#include "common/job/initializer.h"
#include "glog/logging.h"
#include "kernels/cuda/cuda_backend.h"
#include "worker/model/network.h"

extern "C" const CatchmentCudaPlugin* catchment_cuda_plugin();

namespace catchment::ptx {
namespace {

using Kind = Operation::Kind;

// A step of training with random samples.
class Trainer {
 public:
  Trainer(const StepSpec& spec, int batch_size) : labels_(batch_size), ids_(batch_size) {
    // As the recorder needs it.
    setenv("CATCHMENT_PTX_ORDER", "eager", /*overwrite=*/1);
    auto network = Network::Create(spec.model, spec.input, spec.target, {.max_batch_size = batch_size},
                                   *MakeCudaBackend(*catchment_cuda_plugin(), {.precision = spec.precision}));
    CHECK(network.ok()) << network.status();
    network_ = *std::move(network);
    const int64_t parameters = network_->num_parameters();
    weights_.resize(parameters);
    gradient_.resize(parameters);
    InitializeParameters(network_->layers(), 1, {0, parameters}, weights_.data());
    Random random(1);
    inputs_.resize(batch_size * spec.input.size());
    for (float& value : inputs_) value = static_cast<float>(random.Normal());
    for (int32_t& label : labels_) label = static_cast<int32_t>(random.Below(spec.target.classes));
    // As a worker does.
    for (const std::vector<float>* vector : {&inputs_, &weights_, &gradient_})
      pinned_.push_back(network_->Pin(*vector));
  }

  void Step() {
    network_->Train(weights_, {inputs_.data(), labels_.data(), ids_.data(), static_cast<int>(labels_.size())},
                    absl::MakeSpan(gradient_));
  }

 private:
  std::unique_ptr<Network> network_;
  std::vector<float> inputs_, weights_, gradient_;
  std::vector<int32_t> labels_;
  std::vector<uint64_t> ids_;
  std::vector<std::unique_ptr<Pinning>> pinned_;
};

// ----------------------------------------------------------------------------------------- the model of time
//
// An H100 SXM: 132 multiprocessors at 1.755 GHz, memory of 3.35 TB/s. What follows is assumed, not measured.
constexpr double kMemoryBytesPerSecond = 2.7e12;
constexpr double kClock = 1.755e9;
constexpr double kInstructionsPerSecond = 132 * 100 * kClock;  // of the 128 lanes of a multiprocessor
constexpr double kResidentThreads = 132 * 2048;
// Each thread has two accesses under way, and memory answers after this time.
constexpr double kAccessesUnderWay = 2, kMemorySeconds = 650e-9;
// An instruction of a thread waits for the one before it.
constexpr double kCyclesPerInstruction = 5;
constexpr double kMinKernelSeconds = 2.2e-6, kMinProductSeconds = 4e-6, kGapSeconds = 1e-6;
constexpr double kHostSecondsPerLaunch = 2.3e-6, kHostSecondsPerProduct = 4e-6, kHostSecondsPerCopy = 5e-6;
constexpr double kStartSeconds = 3e-6;  // from the host's call to the device's beginning
constexpr double kBusBytesPerSecond = 45e9, kBusSeconds = 3e-6;
constexpr double kHostCopyBytesPerSecond = 9e9;
// The host wakes up after it has blocked, which it does at once or after it has polled for a while.
constexpr double kWakeUpSeconds = 25e-6, kPollSeconds = 1e-6, kMaxPolledSeconds = 100e-6;

double FlopsPerSecond(CatchmentCudaPrecision precision) {
  switch (precision) {
    case CATCHMENT_CUDA_FLOAT32:
      return 42e12;
    case CATCHMENT_CUDA_TF32:
      return 230e12;
    case CATCHMENT_CUDA_BFLOAT16:
    case CATCHMENT_CUDA_FLOAT16:
      return 450e12;
  }
  return 0;
}

double KernelSeconds(const Operation& kernel) {
  const double bytes = kernel.bytes_read + kernel.bytes_written;
  const double access_bytes = kernel.accesses > 0 ? kernel.accessed_bytes / kernel.accesses : 4;
  const double threads = std::min(kernel.threads, kResidentThreads);
  const double latency_bound = threads * kAccessesUnderWay * access_bytes / kMemorySeconds;
  return kGapSeconds + std::max({kMinKernelSeconds, bytes / std::min(kMemoryBytesPerSecond, latency_bound),
                                 kernel.instructions / kInstructionsPerSecond,
                                 kernel.longest_thread * kCyclesPerInstruction / kClock});
}

double ProductSeconds(const Operation& product, CatchmentCudaPrecision precision) {
  return kGapSeconds +
         std::max({kMinProductSeconds, (product.bytes_read + product.bytes_written) / kMemoryBytesPerSecond,
                   2 * product.multiplications / FlopsPerSecond(precision)});
}

// The times up to which the host, the kernels and both directions of the bus are busy.
class Timeline {
 public:
  explicit Timeline(CatchmentCudaPrecision precision) : precision_(precision) {}

  void Add(const Operation& operation) {
    switch (operation.kind) {
      case Kind::kKernel:
        return Launch(kHostSecondsPerLaunch, KernelSeconds(operation));
      case Kind::kProduct:
        return Launch(kHostSecondsPerProduct, ProductSeconds(operation, precision_));
      case Kind::kCopyOnDevice:
        return Launch(kHostSecondsPerCopy, kMinKernelSeconds);
      case Kind::kCopyIn:
        return CopyIn(operation);
      case Kind::kCopyOut:
        return CopyOut(operation);
      case Kind::kWait:
        return Wait(operation);
    }
  }

  // After each operation.
  void Next() { ends_of_copies_out_.push_back(out_); }

  double seconds() const { return std::max({host_, kernels_, in_, out_}); }

 private:
  void Launch(double host_seconds, double seconds) {
    host_ += host_seconds;
    kernels_ = std::max(host_ + kStartSeconds, kernels_) + seconds;
  }

  static double HostCopySeconds(const Operation& copy) {
    return copy.staged ? copy.bytes_read / kHostCopyBytesPerSecond : 0;
  }

  // The kernels that follow wait for it.
  void CopyIn(const Operation& copy) {
    host_ += HostCopySeconds(copy) + kHostSecondsPerCopy;
    in_ = std::max(in_, host_ + kStartSeconds) + copy.bytes_read / kBusBytesPerSecond + kBusSeconds;
    kernels_ = std::max(kernels_, in_);
  }

  void CopyOut(const Operation& copy) {
    host_ += kHostSecondsPerCopy;
    out_ = std::max({out_, kernels_, host_ + kStartSeconds}) + copy.bytes_read / kBusBytesPerSecond +
           kBusSeconds;
    staged_seconds_ += HostCopySeconds(copy);
  }

  // The values that were staged since the last wait are then copied.
  void Wait(const Operation& wait) {
    const double end = wait.awaited > 0 ? ends_of_copies_out_[wait.awaited - 1] : 0;
    const double waited = end - host_;
    const bool blocks = waited > (wait.polled ? kMaxPolledSeconds : 0);
    host_ =
        std::max(host_, end) + (blocks ? kWakeUpSeconds : kPollSeconds) + std::exchange(staged_seconds_, 0);
  }

  const CatchmentCudaPrecision precision_;
  double host_ = 0, kernels_ = 0, in_ = 0, out_ = 0;
  double staged_seconds_ = 0;
  std::vector<double> ends_of_copies_out_;  // up to each operation
};

std::vector<Operation*> KernelsOf(std::vector<Operation>* operations) {
  std::vector<Operation*> kernels;
  for (Operation& operation : *operations) {
    if (operation.kind == Kind::kKernel) kernels.push_back(&operation);
  }
  return kernels;
}

double Extrapolate(double small, double large, double times) { return small + (large - small) * times; }

}  // namespace

std::vector<Operation> RecordStep(const StepSpec& spec, int batch_size, bool execute) {
  Recording warm_up{.execute = false, .operations = {}}, recording{.execute = execute, .operations = {}};
  Trainer trainer(spec, batch_size);
  Record(&warm_up);
  for (int i = 0; i < 2; ++i) trainer.Step();
  Record(&recording);
  trainer.Step();
  Record(nullptr);
  return recording.operations;
}

std::vector<Operation> ExtrapolateStep(const StepSpec& spec, int batch_size, int small_batch) {
  std::vector<Operation> all = RecordStep(spec, batch_size, /*execute=*/false);
  std::vector<Operation> small = RecordStep(spec, small_batch, /*execute=*/true);
  std::vector<Operation> large = RecordStep(spec, 2 * small_batch, /*execute=*/true);
  const std::vector<Operation*> kernels = KernelsOf(&all);
  const std::vector<Operation*> small_kernels = KernelsOf(&small), large_kernels = KernelsOf(&large);
  CHECK_EQ(kernels.size(), small_kernels.size()) << "the batches are not computed by the same kernels";
  CHECK_EQ(kernels.size(), large_kernels.size()) << "the batches are not computed by the same kernels";
  const double times = static_cast<double>(batch_size - small_batch) / small_batch;
  for (size_t i = 0; i < kernels.size(); ++i) {
    const Operation &of_small = *small_kernels[i], &of_large = *large_kernels[i];
    CHECK_EQ(kernels[i]->name, of_small.name) << "the batches are not computed by the same kernels";
    CHECK_EQ(kernels[i]->name, of_large.name) << "the batches are not computed by the same kernels";
    for (double Operation::*value :
         {&Operation::bytes_read, &Operation::bytes_written, &Operation::instructions,
          &Operation::longest_thread, &Operation::accesses, &Operation::accessed_bytes}) {
      kernels[i]->*value = Extrapolate(of_small.*value, of_large.*value, times);
    }
  }
  return all;
}

StepCounts Count(const std::vector<Operation>& operations) {
  StepCounts counts;
  for (const Operation& operation : operations) {
    const double bytes = operation.bytes_read + operation.bytes_written;
    switch (operation.kind) {
      case Kind::kKernel:
        ++counts.launches;
        counts.kernel_bytes += bytes;
        counts.waits_before_last_launch = counts.waits;
        break;
      case Kind::kProduct:
        ++counts.products;
        counts.product_bytes += bytes;
        counts.waits_before_last_launch = counts.waits;
        break;
      case Kind::kWait:
        ++counts.waits;
        break;
      case Kind::kCopyIn:
      case Kind::kCopyOut:
        counts.staged_copies += operation.staged ? 1 : 0;
        counts.staged_bytes += operation.staged ? operation.bytes_read : 0;
        break;
      case Kind::kCopyOnDevice:
        break;
    }
  }
  return counts;
}

double ModelSeconds(const std::vector<Operation>& operations, CatchmentCudaPrecision precision) {
  Timeline timeline(precision);
  for (const Operation& operation : operations) {
    timeline.Add(operation);
    timeline.Next();
  }
  return timeline.seconds();
}

}  // namespace catchment::ptx
