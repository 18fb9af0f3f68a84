// Recommends the numbers of workers and servers, the momentum and the presets to compare. docs/advise.md explains the
// rules.
//
// Threads: pure functions of the evidence.
#ifndef CATCHMENT_CLI_ADVISE_RECOMMENDATIONS_H_
#define CATCHMENT_CLI_ADVISE_RECOMMENDATIONS_H_

#include <optional>
#include <string>
#include <vector>

#include "cli/advise/evidence.h"
#include "cli/advise/throughput.h"
#include "nlohmann/json.hpp"
#include "proto/job.pb.h"

namespace catchment {

// The efficiency to keep.
inline constexpr double kEfficiency = 0.9;
// A preset is worth comparing if it is predicted to train this many times as many samples a second as sync.
inline constexpr double kFaster = 1.1;

struct ServerRow {
  int servers = 1;
  int most_workers = 0;             // that keep kEfficiency; 0: not even one does
  Prediction job;                   // with the job's workers
  Limit limit = Limit::kRoundTrip;  // of one more than most_workers
};

struct Scaling {
  Prediction job;  // with its workers and servers
  double samples_per_second = 0;
  std::vector<ServerRow> rows;  // 1, 2, 4, ... servers, until more do not allow more workers
  std::optional<int> servers;   // the fewest of the rows that keep kEfficiency for the job's workers
};

struct MomentumAdvice {
  std::string rule;  // why: one sentence
  double staleness = 0;
  bool measured = false;              // the staleness
  double added = 0;                   // by asynchrony
  double job = 0;                     // the job's setting
  std::optional<double> take;         // nothing: keep the job's
  std::optional<double> rate_factor;  // of the learning rate, with `take`
};

// What larger updates bring. B samples in an update take 1 + N / B times the fewest possible updates to a loss, and
// 1 + B / N times the fewest possible samples, with the gradient noise scale N (common/noise_scale.h).
struct BatchAdvice {
  // Of the scale, relative to the samples in an update. Below half of N larger updates pay, since they take fewer updates
  // and few more samples; above twice N they hardly take fewer updates.
  enum Place { kUnknown, kBelow, kAbout, kAbove };
  Place place = kUnknown;
  double samples_per_update = 0;
  std::optional<double> noise_scale;
  // With twice as many samples in an update, and with half as many: the updates and samples to the same loss, divided
  // by those of the job.
  struct Change {
    double updates = 1;
    double samples = 1;
  };
  Change twice;
  Change half;
  std::string reason;  // why it is not known, and what to do: one sentence; empty if it is known
};

struct PresetAdvice {
  std::string name;
  std::string reason;
  double efficiency = 0;
  double samples_per_second = 0;
  double staleness = 0;  // expected
};

struct Recommendations {
  std::optional<Scaling> scaling;  // nothing if the time of a step is not known
  // Otherwise the shortest step with which the job's workers and servers keep kEfficiency; nothing if none does.
  std::optional<double> shortest_step;
  BatchAdvice batch;
  MomentumAdvice momentum;
  std::vector<PresetAdvice>
      presets;  // sync first; only if the time of a step is known and there are two workers
};

Recommendations Recommend(const Evidence& evidence);

// Returns the momentum to take. `staleness`: the measured mean; ExpectedStaleness if it is not known.
//   take = max(0, target - tau / (1 + tau))                        target: that of the preset sync
//   rate_factor = ((1 - take) / (1 - the job's momentum))^0.7      as open_loop_momentum does; for 0 < take < the job's
// Source: Mitliagkas et al. 2016, arXiv:1605.09774; server/shard/open_loop_momentum.h.
MomentumAdvice AdviseMomentum(const v1::Job& job, std::optional<double> staleness);

// Source: McCandlish et al. 2018, arXiv:1812.06162, section 2.
BatchAdvice AdviseBatch(const Evidence& evidence);

// Return the advice for people, and as JSON with the keys of docs/advise.md.
std::string AdviceText(const Evidence& evidence, const Recommendations& recommendations);
nlohmann::ordered_json AdviceJson(const Evidence& evidence, const Recommendations& recommendations);

}  // namespace catchment

#endif  // CATCHMENT_CLI_ADVISE_RECOMMENDATIONS_H_
