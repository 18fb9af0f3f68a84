// The page of `catchment watch`: the curves of a running job and its status, as HTML that the browser fetches
// every second.
//
// Units: seconds of training. Threads: not thread-safe.
#ifndef CATCHMENT_CLI_WATCH_LIVE_PAGE_H_
#define CATCHMENT_CLI_WATCH_LIVE_PAGE_H_

#include <cstddef>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "proto/master.pb.h"

namespace catchment {

// A job's measurements over time. If the job goes back to a checkpoint, those after the checkpoint are
// dropped.
class RunHistory {
 public:
  struct Point {
    double seconds = 0;
    double value = 0;
  };
  using Series = std::vector<Point>;

  // The most points of a series. Beyond that every second one is dropped.
  static constexpr size_t kMaxPoints = 1000;

  // Adds the lines of metrics.jsonl; incomplete ones are left out.
  void AddMetrics(const std::string& lines);
  void Add(const v1::JobStatus& status);

  const Series& train_loss() const { return train_loss_; }
  const Series& train_accuracy() const { return train_accuracy_; }
  const Series& test_loss() const { return test_loss_; }
  const Series& test_accuracy() const { return test_accuracy_; }
  const Series& rate() const { return rate_; }
  const Series& staleness() const { return staleness_; }

 private:
  // `trains`: the job trains, so that the values of the last seconds are meaningful.
  void AddLine(const nlohmann::ordered_json& row, bool trains);

  Series train_loss_, train_accuracy_, test_loss_, test_accuracy_, rate_, staleness_;
};

// Returns the content of the page's body: the progress, the charts, and the text of `catchment status`.
std::string LiveContent(const v1::JobStatus& status, const v1::JobStatus* before, const RunHistory& history);

// Returns the page, whose script replaces the content with that at `content_url` every second, and goes to
// `end_url` when the content says that the job has ended (kEndMark).
std::string LivePage(const std::string& title, const std::string& content_url, const std::string& end_url);

inline constexpr char kEndMark[] = "<div id=\"ended\"></div>";

}  // namespace catchment

#endif  // CATCHMENT_CLI_WATCH_LIVE_PAGE_H_
