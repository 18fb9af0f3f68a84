#include "cli/simulate/simulate_door.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <optional>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "cli/job/job_door.h"
#include "cli/local/local_cluster.h"
#include "cli/local/train_monitor.h"
#include "common/base/machine.h"
#include "common/base/status_macros.h"
#include "common/job/text_format.h"
#include "simulation/simulation.h"

namespace catchment {
namespace {

using Json = nlohmann::ordered_json;
using Request = nlohmann::json;

// The share of the free memory that workers may take.
constexpr double kMemoryShare = 0.8;

// Returns the object with this name; nothing if there is none, or null.
std::optional<Request> ObjectIn(const Request& request, const char* name) {
  const auto found = request.find(name);
  if (found == request.end() || found->is_null()) return std::nullopt;
  return *found;
}

absl::StatusOr<Distribution> DistributionOf(const Request& object) {
  const auto name = object.at("kind").get<std::string>();
  Distribution distribution{.mean = object.at("mean").get<double>(), .shape = object.value("shape", 0.0)};
  if (name == "lognormal") {
    distribution.kind = Distribution::kLogNormal;
  } else if (name == "exponential") {
    distribution.kind = Distribution::kExponential;
  } else if (name == "gamma") {
    distribution.kind = Distribution::kGamma;
  } else if (name != "constant") {
    return absl::InvalidArgumentError(absl::StrCat("kind: is not a distribution: ", name));
  }
  return distribution;
}

absl::StatusOr<SimulationOptions> OptionsOf(const Request& request) {
  SimulationOptions options;
  options.out_dir = request.value("out", "");
  options.servers = request.value("servers", 1);
  if (const auto step = ObjectIn(request, "step")) {
    ASSIGN_OR_RETURN(options.step, DistributionOf(*step));
  }
  if (const auto start = ObjectIn(request, "start")) {
    ASSIGN_OR_RETURN(options.start, DistributionOf(*start));
  }
  if (const auto network = ObjectIn(request, "network"))
    options.network = {network->value("bytes_per_second", 0.0), network->value("latency", 0.0)};
  options.slow_steps = request.value("slow_steps", 0.0);
  options.slow_step_factor = request.value("slow_step_factor", 1.0);
  if (const auto failures = ObjectIn(request, "failures")) {
    options.failures = {failures->value("mean_seconds", 0.0), failures->value("away_seconds", 0.0),
                        failures->value("hangs", false)};
  }
  if (const auto quadratic = ObjectIn(request, "quadratic")) {
    options.quadratic = QuadraticModel{quadratic->value("condition", 1.0), quadratic->value("noise", 0.0),
                                       quadratic->value("epoch_samples", int64_t{0})};
  }
  options.seconds = request.value("seconds", 0.0);
  options.end_reason = request.value("end_reason", TimeIsUp(options.seconds));
  return options;
}

// Returns how many simulations of the job fit into this machine's free memory and its processors at once.
// Errors: those of WorkersThatFit; ResourceExhausted if not one fits, with the number of workers that do.
absl::StatusOr<int> SimulationsAtOnce(const v1::Job& job, const SimulationOptions& options) {
  const auto memory = static_cast<double>(FreeMemory());
  ASSIGN_OR_RETURN(const int64_t fit, WorkersThatFit(job, options, kMemoryShare * memory));
  const int64_t workers = job.workers();
  if (workers > fit) {
    return absl::ResourceExhaustedError(absl::StrFormat(
        "--workers=%d: with this model %d workers fit into the %.1f GB of memory that are free; "
        "--gradient=quadratic:100:0.1 simulates more",
        workers, fit, memory / 1e9));
  }
  return static_cast<int>(std::min<int64_t>(AvailableProcessors(), fit / workers));
}

absl::StatusOr<Json> AnswerTo(const Request& request) {
  Json answer = {{"version", 1}};
  if (request.contains("about")) {
    answer["processors"] = AvailableProcessors();
    answer["daemons"] = FindOwnDaemons().status().message();
    return answer;
  }
  v1::Job job;
  RETURN_IF_ERROR(ParseText(request.at("job").get<std::string>(), "the job", "", &job));
  RETURN_IF_ERROR(ChangeJob(request, &job));
  ASSIGN_OR_RETURN(const SimulationOptions options, OptionsOf(request));
  if (request.value("at_once", false)) {
    ASSIGN_OR_RETURN(answer["at_once"], SimulationsAtOnce(job, options));
  } else {
    RETURN_IF_ERROR(Simulate(job, options).status());
  }
  return answer;
}

}  // namespace

Json AnswerSimulation(const std::string& request) {
  const Request parsed = Request::parse(request, nullptr, /*allow_exceptions=*/false);
  if (!parsed.is_object()) return DoorError(absl::InvalidArgumentError("a request is a JSON object"));
  try {
    const absl::StatusOr<Json> answer = AnswerTo(parsed);
    return answer.ok() ? *answer : DoorError(answer.status());
  } catch (const Request::exception& error) {
    return DoorError(absl::InvalidArgumentError(absl::StrCat("the request: ", error.what())));
  }
}

int ServeSimulations(std::istream* in, std::ostream* out) {
  for (std::string request; std::getline(*in, request);)
    *out << DoorLine(AnswerSimulation(request)) << std::endl;
  return 0;
}

}  // namespace catchment
