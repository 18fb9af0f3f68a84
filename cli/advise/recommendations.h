// Recommends presets, with their momentum and learning rate, and the number of servers, by what simulations
// show (trials.h). docs/advise.md explains the rules.
#ifndef CATCHMENT_CLI_ADVISE_RECOMMENDATIONS_H_
#define CATCHMENT_CLI_ADVISE_RECOMMENDATIONS_H_

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "cli/advise/evidence.h"
#include "cli/advise/trials.h"
#include "nlohmann/json.hpp"
#include "proto/job.pb.h"

namespace catchment {

// The efficiency to keep: the share of their time in which workers compute.
inline constexpr double kEfficiency = 0.9;
// Workers of sync that wait for more than this share of their time should exchange less often.
inline constexpr double kMuchWaiting = 0.1;

struct ServerRow {
  int servers = 1;
  double computing = 0;
};

struct Scaling {
  std::vector<ServerRow> rows;  // 1, 2, 4, ... servers, until more do not bring more
  std::optional<int> servers;   // the fewest of the rows that keep kEfficiency
};

// The effect of larger updates. B samples in an update take 1 + N / B times the fewest possible updates to a
// loss, and 1 + B / N times the fewest possible samples, with the gradient noise scale N
// (common/measures/noise_scale.h).
struct BatchAdvice {
  // Position of the samples in an update relative to the scale N. Below N / 2 larger updates pay, since they
  // need fewer updates and hardly more samples; above 2 N they hardly need fewer updates.
  enum Place { kUnknown, kBelow, kAbout, kAbove };
  Place place = kUnknown;
  double samples_per_update = 0;
  std::optional<double> noise_scale;
  // With twice as many samples in an update, and with half as many: the updates and samples to the same loss,
  // divided by those of the job.
  struct Change {
    double updates = 1;
    double samples = 1;
  };
  Change twice;
  Change half;
  std::string reason;  // why it is not known, and what to do: one sentence; empty if it is known
};

struct Recommendations {
  Trials trials;
  Scaling scaling;
  BatchAdvice batch;
};

// `report` gets a line for each simulation. Errors: InvalidArgument if the time of a step is not known; those
// of RunTrials.
absl::StatusOr<Recommendations> Recommend(const Evidence& evidence,
                                          const std::function<void(const std::string&)>& report);

// Source: McCandlish et al. 2018, arXiv:1812.06162, section 2.
BatchAdvice AdviseBatch(const Evidence& evidence);

// Return the advice as text, and as JSON with the keys of docs/advise.md.
std::string AdviceText(const Evidence& evidence, const Recommendations& recommendations);
nlohmann::ordered_json AdviceJson(const Evidence& evidence, const Recommendations& recommendations);

}  // namespace catchment

#endif  // CATCHMENT_CLI_ADVISE_RECOMMENDATIONS_H_
