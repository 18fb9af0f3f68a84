#include "server/outputs/tensorboard.h"

#include <cmath>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "common/measures/measures.h"

namespace catchment {
namespace {

using Json = TensorBoard::Json;

constexpr char kTest[] = "test/";

tensorboard::Event At(double unix_time, int64_t step) {
  tensorboard::Event event;
  event.set_wall_time(unix_time);
  event.set_step(step);
  return event;
}

void AddScalar(const Json& number, const std::string& tag, tensorboard::Summary* summary) {
  if (!number.is_number() || !std::isfinite(number.get<double>())) return;
  tensorboard::Value* value = summary->add_value();
  value->set_tag(tag);
  value->set_simple_value(number.get<float>());
}

// Adds the measures that have a tag; `tests`: those of evaluations.
void AddTagged(const Json& line, bool tests, tensorboard::Summary* summary) {
  for (const Measure<JobReading>& measure : JobMeasures()) {
    const auto value = line.find(measure.key);
    if (*measure.tag == '\0' || value == line.end() || absl::StartsWith(measure.tag, kTest) != tests)
      continue;
    if (!value->is_array()) {
      AddScalar(*value, measure.tag, summary);
    } else if (!value->empty()) {
      tensorboard::Value* const histogram = summary->add_value();
      histogram->set_tag(measure.tag);
      *histogram->mutable_histo() = HistogramOf(*value);
    }
  }
}

void AddWorkers(const Json& workers, tensorboard::Summary* summary) {
  for (const Json& worker : workers) {
    const std::string prefix = absl::StrCat("worker_", worker["worker"].get<uint32_t>(), "/");
    for (const auto& [key, number] : worker.items()) {
      if (key != "worker") AddScalar(number, prefix + key, summary);
    }
  }
}

}  // namespace

tensorboard::Histogram HistogramOf(const std::map<uint64_t, uint64_t>& counts) {
  tensorboard::Histogram histogram;
  const auto add_bucket = [&histogram](double limit, double count) {
    histogram.add_bucket_limit(limit);
    histogram.add_bucket(count);
  };
  if (!counts.empty()) histogram.set_min(static_cast<double>(counts.begin()->first));
  for (const auto& [whole, times] : counts) {
    const auto value = static_cast<double>(whole), count = static_cast<double>(times);
    const int buckets = histogram.bucket_limit_size();
    if (buckets > 0 && histogram.bucket_limit(buckets - 1) < value - 0.5) add_bucket(value - 0.5, 0);
    add_bucket(value + 0.5, count);
    histogram.set_max(value);
    histogram.set_num(histogram.num() + count);
    histogram.set_sum(histogram.sum() + count * value);
    histogram.set_sum_squares(histogram.sum_squares() + count * value * value);
  }
  return histogram;
}

absl::Status TensorBoard::Write(const Json& line, double unix_time) {
  absl::Status status = WriteAll(line, unix_time);
  const bool reported = std::exchange(error_reported_, !status.ok());
  return reported ? absl::OkStatus() : status;
}

absl::Status TensorBoard::WriteAll(const Json& line, double unix_time) {
  const int64_t step = line["samples"];
  if (file_ == nullptr) {
    RETURN_IF_ERROR(Open(step, unix_time));
  }
  RETURN_IF_ERROR(WriteTest(line, unix_time));
  tensorboard::Event event = At(unix_time, step);
  tensorboard::Summary* const summary = event.mutable_summary();
  AddTagged(line, /*tests=*/false, summary);
  for (const auto& [name, mean] : line["program"].items()) AddScalar(mean, "program/" + name, summary);
  if (line.contains("worker_rates")) AddWorkers(line["worker_rates"], summary);
  return file_->Write(event);
}

// Writes the start of a session: a resumed job trains the steps after its checkpoint again.
absl::Status TensorBoard::Open(int64_t step, double unix_time) {
  ASSIGN_OR_RETURN(std::unique_ptr<EventFile> file, EventFile::Create(directory_, unix_time));
  tensorboard::Event start = At(unix_time, step);
  start.mutable_session()->set_status(tensorboard::Session::START);
  RETURN_IF_ERROR(file->Write(start));
  file_ = std::move(file);
  return absl::OkStatus();
}

absl::Status TensorBoard::WriteTest(const Json& line, double unix_time) {
  // Compared as text, because a loss may be NaN, which is not equal to itself.
  const std::string test = Json({line["tested_at_samples"], line["test_loss"], line["test_accuracy"]}).dump();
  if (test == last_test_ || !line["tested_at_samples"].is_number()) return absl::OkStatus();
  tensorboard::Event event = At(unix_time, line["tested_at_samples"]);
  AddTagged(line, /*tests=*/true, event.mutable_summary());
  RETURN_IF_ERROR(file_->Write(event));
  last_test_ = test;
  return absl::OkStatus();
}

}  // namespace catchment
