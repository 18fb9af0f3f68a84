#include "tests/benchmarks/scaling_case.h"

#include <algorithm>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "common/base/text.h"
#include "common/job/model_shapes.h"
#include "glog/logging.h"

namespace catchment {
namespace {

constexpr int64_t kMaxParameters = 1'000'000'000;
constexpr int64_t kMaxMembers = 1000;
constexpr int64_t kMaxStepMs = 600'000;

// A program with its libraries and gRPC's buffers.
constexpr int64_t kProcessBytes = 20 << 20;

double UsualStepMs(int64_t parameters) {
  if (parameters <= 100'000) return 100;
  return parameters <= 3'000'000 ? 1000 : 5000;
}

// Flags may be repeated, and hold several values with commas between them.
std::vector<std::string> Values(const std::vector<std::string>& flags, std::vector<std::string> defaults) {
  std::vector<std::string> values = absl::StrSplit(absl::StrJoin(flags, ","), ',', absl::SkipEmpty());
  return values.empty() ? defaults : values;
}

absl::StatusOr<std::vector<int64_t>> Numbers(const std::string& flag, const std::vector<std::string>& texts,
                                             int64_t most) {
  std::vector<int64_t> numbers;
  for (const std::string& text : texts) {
    int64_t number = 0;
    if (!absl::SimpleAtoi(text, &number) || number < 1 || number > most) {
      return absl::InvalidArgumentError(absl::StrCat(
          "--", flag, "=", text, ": takes whole numbers from 1 to ", most, ", with commas between"));
    }
    numbers.push_back(number);
  }
  return numbers;
}

absl::Status CheckPresets(const std::vector<std::string>& presets) {
  static const std::vector<std::string>* const kKnown =
      new std::vector<std::string>{"sync", "downpour", "easgd"};
  for (const std::string& preset : presets) {
    if (std::find(kKnown->begin(), kKnown->end(), preset) != kKnown->end()) continue;
    return absl::InvalidArgumentError(
        absl::StrCat("--presets=", preset, ": there are ", absl::StrJoin(*kKnown, ", ")));
  }
  return absl::OkStatus();
}

// Returns the fraction of the parameters in the first layer of the synthetic model.
double FirstLayerShare(int64_t parameters) {
  v1::Model model;
  model.mutable_synthetic()->set_parameters(static_cast<uint64_t>(parameters));
  const absl::StatusOr<std::vector<LayerShape>> layers = InferShapes(model, SampleShape::Vector(1), 1);
  CHECK(layers.ok()) << layers.status();
  return static_cast<double>(layers->front().tensors.front().size()) / static_cast<double>(parameters);
}

}  // namespace

std::string ScalingCase::Describe() const {
  return absl::StrCat(preset, ", ", Plural(parameters, "parameter"), ", ", Short(step_ms), " ms, ",
                      Plural(workers, "worker"));
}

absl::StatusOr<std::vector<ScalingCase>> ChooseScalingCases(const ScalingChoice& choice) {
  const std::vector<std::string> presets = Values(choice.presets, {"sync", "downpour", "easgd"});
  if (absl::Status status = CheckPresets(presets); !status.ok()) return status;
  const auto parameters =
      Numbers("parameters", Values(choice.parameters, {"14000", "1200000", "11000000"}), kMaxParameters);
  if (!parameters.ok()) return parameters.status();
  auto workers =
      Numbers("workers", Values(choice.workers, {"1", "2", "4", "8", "16", "32", "60"}), kMaxMembers);
  if (!workers.ok()) return workers.status();
  const auto steps = Numbers("step_ms", Values(choice.step_ms, {}), kMaxStepMs);
  if (!steps.ok()) return steps.status();
  if (steps->size() > 1) return absl::InvalidArgumentError("--step_ms takes one number, for all sizes");
  workers->push_back(1);
  std::sort(workers->begin(), workers->end());
  workers->erase(std::unique(workers->begin(), workers->end()), workers->end());

  std::vector<ScalingCase> cases;
  for (const int64_t size : *parameters) {
    const double step_ms = steps->empty() ? UsualStepMs(size) : static_cast<double>(steps->front());
    for (const std::string& preset : presets) {
      for (const int64_t count : *workers) cases.push_back({preset, size, step_ms, static_cast<int>(count)});
    }
  }
  return cases;
}

std::string ScalingJobText(const ScalingCase& c) {
  const std::string every_step =
      c.preset == "easgd" ? "\n  contribution { elastic { communication_period: 1 } }" : "";
  return absl::StrCat("name: \"scaling\"\nmodel { synthetic { parameters: ", c.parameters,
                      " step_ms: ", c.step_ms, " } }\n", "data { synthetic { samples: 4000000000 } }\n",
                      "algorithm {\n  preset: \"", c.preset, "\"", every_step, "\n}\n",
                      "workers: ", c.workers, "\nepochs: 1000000\ncheckpoint { every_updates: 0 }\n");
}

double SynchronousBound(const ScalingCase& c, double bytes_per_second) {
  const double first_layer = FirstLayerShare(c.parameters);
  const auto update_seconds = [&](int workers) {
    const double transfer = 2.0 * workers * static_cast<double>(c.bytes()) / bytes_per_second;
    return std::max(c.step_seconds() + transfer * first_layer, transfer);
  };
  return update_seconds(1) / update_seconds(c.workers);
}

int64_t EstimateScalingBytes(const ScalingCase& c) {
  // In units of the weights' size: a worker has weights, a gradient and messages in flight, and with EASGD a
  // difference; the server has weights, momentum and messages that wait to be applied or read, a little more
  // than one for each worker.
  const double per_worker = c.preset == "easgd" ? 5.5 : 4.5;
  return static_cast<int64_t>(static_cast<double>(c.bytes()) * (per_worker * c.workers + 3)) +
         kProcessBytes * (c.workers + 1);
}

}  // namespace catchment
