#include "simulation/models.h"

#include <algorithm>
#include <cmath>
#include <utility>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "common/base/text.h"

namespace catchment {
namespace {

constexpr char kDistributionForms[] =
    "takes constant:MEAN, lognormal:MEAN:SIGMA, "
    "exponential:MEAN or gamma:MEAN:SHAPE, such as lognormal:120ms:0.3";
constexpr char kNoStart[] = "none";
constexpr char kNetworkForms[] = "takes BANDWIDTH:LATENCY, such as 10Gbit:50us, 100Mbit:1ms or unlimited:0us";
constexpr char kStragglerForms[] =
    "takes WORKER:TIMESx, SHARE%:TIMESx (of the workers) or SHARE%steps:TIMESx (of all steps), "
    "such as 3:10x, 1%:10x or 1%steps:10x";
constexpr char kFailureForms[] =
    "takes MEAN:AWAY or MEAN:AWAY:hang, the mean time between two failures of a worker and the time "
    "until it is back, such as 2h:30s";
constexpr char kQuadraticForms[] =
    "takes quadratic:CONDITION:NOISE, with a condition number from 1 and a standard deviation "
    "from 0, such as quadratic:100:0.1";

using Parts = std::vector<std::string>;

absl::Status Refuse(const char* forms) { return absl::InvalidArgumentError(forms); }

struct Unit {
  const char* name;
  double value;
};

// Parses a number from 0 with one of the units.
std::optional<double> ParseWithUnit(const std::string& text, const std::vector<Unit>& units) {
  const size_t letters = text.find_first_not_of("0123456789.");
  double number = 0;
  if (letters == std::string::npos || !absl::SimpleAtod(text.substr(0, letters), &number))
    return std::nullopt;
  for (const Unit& unit : units) {
    if (text.substr(letters) == unit.name && std::isfinite(number)) return number * unit.value;
  }
  return std::nullopt;
}

bool ParsePositive(const std::string& text, double* value) {
  return absl::SimpleAtod(text, value) && std::isfinite(*value) && *value > 0;
}

// Marsaglia and Tsang 2000, "A simple method for generating gamma variables"; the scale is 1.
double SampleGamma(double shape, Random* random) {
  if (shape < 1) return SampleGamma(shape + 1, random) * std::pow(1 - random->Uniform(), 1 / shape);
  const double d = shape - 1.0 / 3, c = 1 / std::sqrt(9 * d);
  while (true) {
    const double x = random->Normal();
    const double v = std::pow(1 + c * x, 3);
    if (v <= 0) continue;
    if (std::log(1 - random->Uniform()) < 0.5 * x * x + d - d * v + d * std::log(v)) return d * v;
  }
}

struct DistributionForm {
  const char* name;
  Distribution::Kind kind;
  size_t parts;
};

constexpr DistributionForm kDistributions[] = {{"constant", Distribution::kConstant, 2},
                                               {"lognormal", Distribution::kLogNormal, 3},
                                               {"exponential", Distribution::kExponential, 2},
                                               {"gamma", Distribution::kGamma, 3}};

}  // namespace

absl::StatusOr<double> ParseDuration(const std::string& text) {
  const auto seconds =
      ParseWithUnit(text, {{"ns", 1e-9}, {"us", 1e-6}, {"ms", 1e-3}, {"s", 1}, {"m", 60}, {"h", 3600}});
  if (seconds) return *seconds;
  return absl::InvalidArgumentError(absl::StrCat(
      "\"", text, "\" is not a time; a time is a number with ns, us, ms, s, m or h, such as 120ms"));
}

double Distribution::Sample(Random* random) const {
  switch (kind) {
    case kConstant:
      return mean;
    case kLogNormal:
      return mean * std::exp(shape * random->Normal() - shape * shape / 2);
    case kExponential:
      return -mean * std::log(1 - random->Uniform());
    case kGamma:
      return mean / shape * SampleGamma(shape, random);
  }
  return mean;
}

absl::StatusOr<Distribution> ParseDistribution(const std::string& text) {
  const Parts parts = absl::StrSplit(text, ':');
  for (const DistributionForm& form : kDistributions) {
    if (parts[0] != form.name) continue;
    Distribution distribution{.kind = form.kind};
    if (parts.size() != form.parts) break;
    const absl::StatusOr<double> mean = ParseDuration(parts[1]);
    if (!mean.ok()) {
      return absl::InvalidArgumentError(absl::StrCat(mean.status().message(), "; ", kDistributionForms));
    }
    distribution.mean = *mean;
    if (distribution.mean <= 0) break;
    if (form.parts == 3 && !ParsePositive(parts[2], &distribution.shape)) break;
    return distribution;
  }
  return Refuse(kDistributionForms);
}

std::string ToString(const Distribution& distribution) {
  for (const DistributionForm& form : kDistributions) {
    if (form.kind != distribution.kind) continue;
    const std::string mean = absl::StrCat(form.name, ":", Short(1000 * distribution.mean), "ms");
    return form.parts == 3 ? absl::StrCat(mean, ":", Short(distribution.shape)) : mean;
  }
  return "";
}

absl::StatusOr<Distribution> ParseStart(const std::string& text) {
  if (text == kNoStart) return Distribution{};
  absl::StatusOr<Distribution> start = ParseDistribution(text);
  if (start.ok()) return start;
  return absl::InvalidArgumentError(absl::StrCat(start.status().message(), "; or ", kNoStart));
}

std::string StartText(const Distribution& start) { return start.mean > 0 ? ToString(start) : kNoStart; }

Distribution UsualStart(const Distribution& step) {
  return {.kind = Distribution::kExponential, .mean = step.mean};
}

absl::StatusOr<NetworkModel> ParseNetwork(const std::string& text) {
  const Parts parts = absl::StrSplit(text, ':');
  if (parts.size() != 2) return Refuse(kNetworkForms);
  NetworkModel network;
  if (parts[0] != "unlimited") {
    const auto bits = ParseWithUnit(parts[0], {{"Kbit", 1e3}, {"Mbit", 1e6}, {"Gbit", 1e9}, {"Tbit", 1e12}});
    if (!bits || *bits <= 0) return Refuse(kNetworkForms);
    network.bytes_per_second = *bits / 8;
  }
  const absl::StatusOr<double> latency = ParseDuration(parts[1]);
  if (!latency.ok()) {
    return absl::InvalidArgumentError(absl::StrCat(latency.status().message(), "; ", kNetworkForms));
  }
  network.latency = *latency;
  return network;
}

std::string ToString(const NetworkModel& network) {
  const std::string bandwidth = network.bytes_per_second > 0
                                    ? absl::StrCat(Short(network.bytes_per_second * 8e-9), "Gbit")
                                    : "unlimited";
  return absl::StrCat(bandwidth, ":", Short(1e6 * network.latency), "us");
}

absl::StatusOr<StragglerModel> ParseStraggler(const std::string& text) {
  const std::pair<std::string, std::string> parts = absl::StrSplit(text, absl::MaxSplits(':', 1));
  StragglerModel model;
  model.text = text;
  absl::string_view who = parts.first;
  if (!absl::EndsWith(parts.second, "x") ||
      !absl::SimpleAtod(absl::StripSuffix(parts.second, "x"), &model.times) || !(model.times >= 1) ||
      !std::isfinite(model.times)) {
    return Refuse(kStragglerForms);
  }
  uint32_t worker = 0;
  if (absl::SimpleAtoi(who, &worker)) {
    model.worker = worker;
    return model;
  }
  model.of_steps = absl::ConsumeSuffix(&who, "steps");
  double percent = 0;
  if (!absl::ConsumeSuffix(&who, "%") || !ParsePositive(std::string(who), &percent) || percent > 100) {
    return Refuse(kStragglerForms);
  }
  model.share = percent / 100;
  return model;
}

void SetStragglers(const StragglerModel& model, v1::Job* job) {
  if (model.of_steps) return;
  const uint32_t slow =
      model.worker ? 1
                   : static_cast<uint32_t>(std::llround(model.share * static_cast<double>(job->workers())));
  for (uint32_t i = 0; i < std::min(slow, job->workers()); ++i) {
    const uint32_t worker = model.worker.value_or(job->workers() - 1 - i);
    if (worker >= job->workers()) continue;
    v1::Straggler* const straggler = job->mutable_faults()->add_stragglers();
    straggler->set_worker(worker);
    straggler->set_slowdown_factor(static_cast<float>(model.times));
  }
}

absl::StatusOr<FailureModel> ParseFailures(const std::string& text) {
  const Parts parts = absl::StrSplit(text, ':');
  const bool hangs = parts.size() == 3 && parts[2] == "hang";
  if (parts.size() != 2 && !hangs) return Refuse(kFailureForms);
  const absl::StatusOr<double> mean = ParseDuration(parts[0]), away = ParseDuration(parts[1]);
  if (!mean.ok() || !away.ok() || *mean <= 0) return Refuse(kFailureForms);
  return FailureModel{*mean, *away, hangs};
}

absl::StatusOr<QuadraticModel> ParseQuadratic(const std::string& text) {
  const Parts parts = absl::StrSplit(text, ':');
  QuadraticModel model;
  if (parts.size() != 3 || parts[0] != "quadratic" || !ParsePositive(parts[1], &model.condition) ||
      model.condition < 1 || !absl::SimpleAtod(parts[2], &model.noise) || !(model.noise >= 0) ||
      !std::isfinite(model.noise)) {
    return Refuse(kQuadraticForms);
  }
  return model;
}

}  // namespace catchment
