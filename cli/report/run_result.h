// The result of one run of a comparison, from its summary.json and metrics.jsonl.
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

// An evaluation of the test set during training.
struct TestScore {
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
  bool diverged = false;  // it is not done, since its training diverged
  std::string reason;     // the reason why it is not done
  double learning_rate = 0;
  std::optional<double> momentum;  // empty: the optimizer has none

  double seconds = 0;  // of training
  double samples = 0;
  double updates = 0;
  double samples_per_second = 0;
  std::optional<double> accuracy;  // of the last score
  std::optional<double> loss;
  std::vector<TestScore> scores;  // in order of time

  double staleness_mean = 0;
  double staleness_p50 = 0;
  double staleness_p99 = 0;
  double staleness_max = 0;
  std::map<uint64_t, uint64_t> staleness;  // pushes by staleness

  // The time of all workers.
  double compute_seconds = 0;
  double push_seconds = 0;
  double pull_seconds = 0;
  double data_seconds = 0;

  // The share of the workers' time that is in updates, and of the time in which any computes. Only simulated
  // runs have them.
  std::optional<double> goodput;
  std::optional<double> uptime;

  double bytes_pushed = 0;
  double bytes_pulled = 0;
  std::string device;
};

// Returns the text of a field; empty if it is absent or not a text.
std::string TextOrEmpty(const nlohmann::json& object, const char* key);

// Returns true if the job of a summary failed because its training diverged.
bool HasDiverged(const nlohmann::json& summary);

// Fills the results. Skips incomplete lines of `metrics`, and leaves the default for what the summary lacks.
void ReadResult(const nlohmann::json& summary, const std::string& metrics, RunResult* result);

// The point at which a run first reached an accuracy, on the straight line between two scores.
struct Crossing {
  double seconds = 0;
  double samples = 0;
};
std::optional<Crossing> FirstReached(const std::vector<TestScore>& scores, double accuracy);

// Returns the highest accuracy of all scores; 0 if there are none.
double BestAccuracy(const RunResult& run);

}  // namespace catchment

#endif  // CATCHMENT_CLI_REPORT_RUN_RESULT_H_
