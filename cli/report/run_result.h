// What one run of a comparison came to, from its summary.json and metrics.jsonl.
//
// Units: seconds, bytes, versions; accuracies are shares.
#ifndef CATCHMENT_CLI_REPORT_RUN_RESULT_H_
#define CATCHMENT_CLI_REPORT_RUN_RESULT_H_

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "nlohmann/json.hpp"

namespace catchment {

// Of the test set, with the weights that training had come to.
struct Score {
  double seconds = 0;
  double samples = 0;
  double accuracy = 0;
  double loss = 0;
};

struct RunResult {
  std::string algorithm;
  int workers = 1;
  uint64_t seed = 1;
  std::string directory;  // within --out
  bool done = false;      // its budget is spent
  std::string reason;     // why not

  double seconds = 0;  // of training
  double samples = 0;
  double updates = 0;
  double samples_per_second = 0;
  std::optional<double> accuracy;  // of the last score
  std::optional<double> loss;
  std::vector<Score> scores;  // in their order

  double staleness_mean = 0;
  double staleness_p50 = 0;
  double staleness_p99 = 0;
  double staleness_max = 0;
  std::map<uint64_t, uint64_t> staleness;  // pushes by staleness

  // Of all workers together.
  double compute_seconds = 0;
  double push_seconds = 0;
  double pull_seconds = 0;
  double data_seconds = 0;

  double bytes_pushed = 0;
  double bytes_pulled = 0;
  std::string device;
};

// Fills all but what the run was to be. Lines of `metrics` that are not whole are passed over; so is what a
// summary lacks.
void ReadResult(const nlohmann::json& summary, const std::string& metrics, RunResult* result);

// Where a run first had the accuracy, on the straight line between two scores.
struct Crossing {
  double seconds = 0;
  double samples = 0;
};
std::optional<Crossing> FirstReached(const std::vector<Score>& scores, double accuracy);

// The highest accuracy of all scores; 0 without any.
double BestAccuracy(const RunResult& run);

}  // namespace catchment

#endif  // CATCHMENT_CLI_REPORT_RUN_RESULT_H_
