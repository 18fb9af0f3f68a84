#include "tests/benchmarks/scaling_case.h"

#include <algorithm>
#include <set>

#include "absl/strings/str_cat.h"
#include "common/base/text.h"
#include "common/job/model_shapes.h"
#include "glog/logging.h"

namespace catchment {
namespace {

// A program with its libraries and gRPC's buffers.
constexpr int64_t kProcessBytes = 20 << 20;

double UsualStepMs(int64_t parameters) {
  if (parameters <= 100'000) return 100;
  return parameters <= 3'000'000 ? 1000 : 5000;
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

std::vector<ScalingCase> MakeScalingCases(const ScalingChoice& choice) {
  std::set<int64_t> workers(choice.workers.begin(), choice.workers.end());
  workers.insert(1);
  std::vector<ScalingCase> cases;
  for (const int64_t size : choice.parameters) {
    const double step_ms = choice.step_ms > 0 ? choice.step_ms : UsualStepMs(size);
    for (const std::string& preset : choice.presets) {
      for (const int64_t count : workers) cases.push_back({preset, size, step_ms, static_cast<int>(count)});
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
