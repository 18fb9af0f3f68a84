// Prints, for docs/results/gpu.md, what a training step of the examples makes a GPU do, as counted by the
// emulator, and the time of a model.
//
//   step_counts [--kernels] [JOB BATCH_SIZE SMALL_BATCH PRECISION]...
//
// Without arguments: the table of the documentation, from the repository's root. Memory accesses are executed
// with batches of SMALL_BATCH and twice that, and extrapolated. --kernels adds the kernels of each step,
// those that access the most memory first.
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <string>
#include <vector>

#include "common/job/data_sources.h"
#include "common/job/job_text.h"
#include "common/job/validate.h"
#include "glog/logging.h"
#include "tests/kernels/cuda/ptx/step_record.h"

namespace catchment::ptx {
namespace {

struct Row {
  std::string job;
  int batch_size, small_batch;
  std::string precision;
};

// For resnet50's smallest images, 7 x 7, a batch of 11 is the smallest whose sums have as many parts as those
// of 64.
const Row kRows[] = {{"mnist_mlp", 128, 32, "TF32"},        {"mnist_mlp", 128, 32, "BFLOAT16"},
                     {"mnist_cnn", 128, 32, "TF32"},        {"mnist_cnn", 128, 32, "BFLOAT16"},
                     {"hep_lstm", 100, 20, "TF32"},         {"hep_lstm", 100, 20, "BFLOAT16"},
                     {"resnet20_cifar10", 128, 16, "TF32"}, {"resnet20_cifar10", 128, 16, "BFLOAT16"},
                     {"resnet50", 64, 11, "TF32"},          {"resnet50", 64, 11, "BFLOAT16"}};

CatchmentCudaPrecision PrecisionOf(const std::string& name) {
  const std::map<std::string, CatchmentCudaPrecision> precisions = {{"FLOAT32", CATCHMENT_CUDA_FLOAT32},
                                                                    {"TF32", CATCHMENT_CUDA_TF32},
                                                                    {"BFLOAT16", CATCHMENT_CUDA_BFLOAT16},
                                                                    {"FLOAT16", CATCHMENT_CUDA_FLOAT16}};
  const auto found = precisions.find(name);
  CHECK(found != precisions.end()) << name << " is none of FLOAT32, TF32, BFLOAT16, FLOAT16";
  return found->second;
}

StepSpec SpecOf(const Row& row) {
  const auto loaded = LoadJob(row.job);
  CHECK(loaded.ok()) << loaded.status();
  const auto job = FillDefaultsAndValidate(*loaded);
  CHECK(job.ok()) << job.status();
  const DataShape shape = ShapeOf(job->data());
  return {job->model(), shape.input, shape.target, PrecisionOf(row.precision)};
}

void PrintKernels(const std::vector<Operation>& operations) {
  struct Total {
    int launches = 0;
    double bytes = 0, instructions = 0;
  };
  std::map<std::string, Total> by_name;
  for (const Operation& operation : operations) {
    if (operation.kind != Operation::Kind::kKernel) continue;
    Total& total = by_name[operation.name];
    ++total.launches;
    total.bytes += operation.bytes_read + operation.bytes_written;
    total.instructions += operation.instructions;
  }
  std::vector<std::pair<std::string, Total>> sorted(by_name.begin(), by_name.end());
  std::sort(sorted.begin(), sorted.end(),
            [](const auto& a, const auto& b) { return a.second.bytes > b.second.bytes; });
  for (const auto& [name, total] : sorted) {
    std::printf("    %5d launches %10.2f MB %10.1f million instructions  %s\n", total.launches,
                total.bytes / 1e6, total.instructions / 1e6, name.c_str());
  }
}

void Print(const Row& row, bool kernels) {
  const StepSpec spec = SpecOf(row);
  const std::vector<Operation> operations = ExtrapolateStep(spec, row.batch_size, row.small_batch);
  const StepCounts counts = Count(operations);
  const double seconds = ModelSeconds(operations, spec.precision);
  std::printf("| %s, batch %d, %s | %ld | %ld | %.3f | %.3f | %ld, %.1f MB | %ld, %ld | %.2f |\n",
              row.job.c_str(), row.batch_size, row.precision.c_str(), counts.launches, counts.products,
              counts.kernel_bytes / 1e9, counts.product_bytes / 1e9, counts.staged_copies,
              counts.staged_bytes / 1e6, counts.waits, counts.waits_before_last_launch, 1e3 * seconds);
  if (kernels) PrintKernels(operations);
  std::fflush(stdout);
}

int Main(std::vector<std::string> arguments) {
  const bool kernels = !arguments.empty() && arguments.front() == "--kernels";
  if (kernels) arguments.erase(arguments.begin());
  CHECK_EQ(arguments.size() % 4, 0u)
      << "usage: step_counts [--kernels] [JOB BATCH_SIZE SMALL_BATCH PRECISION]...";
  std::printf(
      "| model | launches | products | GB of kernels | GB of products | staged copies | waits, before the "
      "last launch | ms, modelled |\n| --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: |\n");
  if (arguments.empty()) {
    for (Row row : kRows) {
      row.job = "examples/" + row.job + ".textproto";
      Print(row, kernels);
    }
  }
  for (size_t i = 0; i < arguments.size(); i += 4) {
    Print({arguments[i], std::atoi(arguments[i + 1].c_str()), std::atoi(arguments[i + 2].c_str()),
           arguments[i + 3]},
          kernels);
  }
  return 0;
}

}  // namespace
}  // namespace catchment::ptx

int main(int argc, char** argv) { return catchment::ptx::Main({argv + 1, argv + argc}); }
