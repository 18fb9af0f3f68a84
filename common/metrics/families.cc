#include "common/metrics/families.h"

#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <limits>
#include <optional>
#include <string>
#include <system_error>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "common/measures/measures.h"

namespace catchment {
namespace {

using prometheus::ClientMetric;
using prometheus::MetricFamily;
using prometheus::MetricType;

constexpr uint64_t kHighestBound = 1024;

ClientMetric& Add(const std::string& name, const std::string& help, MetricType type,
                  const MetricLabels& labels, MetricFamilies* families) {
  const auto found = std::find_if(families->begin(), families->end(),
                                  [&name](const MetricFamily& family) { return family.name == name; });
  MetricFamily& family =
      found != families->end() ? *found : families->emplace_back(MetricFamily{name, help, type, {}});
  ClientMetric& metric = family.metric.emplace_back();
  metric.label = labels;
  return metric;
}

using Json = nlohmann::ordered_json;

// Adds the measures that have a name in Prometheus with this beginning, and are known.
template <typename Reading>
void AddAll(absl::Span<const Measure<Reading>> measures, absl::string_view beginning, const Reading& reading,
            MetricFamilies* families, const MetricLabels& labels = {}) {
  for (const Measure<Reading>& measure : measures) {
    if (*measure.prometheus == '\0' || !absl::StartsWith(measure.prometheus, beginning)) continue;
    const Json value = measure.Read(reading);
    if (value.is_null()) continue;
    // NAME{LABEL=VALUE}
    const std::vector<std::string> parts = absl::StrSplit(measure.prometheus, absl::ByAnyChar("{=}"));
    MetricLabels all = labels;
    if (parts.size() > 1) all.push_back({parts[1], parts[2]});
    const std::string help = absl::StrCat(measure.help, ".");
    if (value.is_array()) {
      AddHistogram(parts[0], help, value, families);
    } else {
      const double number = value.get<double>() * (measure.unit == absl::string_view("us") ? 1e-6 : 1);
      (absl::EndsWith(parts[0], "_total") ? AddCounter : AddGauge)(parts[0], help, number, families, all);
    }
  }
}

// Returns when the process began, in seconds since 1970.
std::optional<double> StartTime() {
  std::ifstream file("/proc/self/stat");
  std::string stat{std::istreambuf_iterator<char>(file), {}};
  // The fields after the program's name, which may contain spaces.
  const size_t name_end = stat.rfind(')');
  if (name_end == std::string::npos) return std::nullopt;
  const std::vector<std::string> fields = absl::StrSplit(stat.substr(name_end + 1), ' ', absl::SkipEmpty());
  std::ifstream system("/proc/stat");
  double ticks = 0, boot = 0;
  for (std::string key; system >> key;) {
    if (key == "btime" && system >> boot) break;
  }
  if (fields.size() < 20 || !absl::SimpleAtod(fields[19], &ticks) || boot == 0) return std::nullopt;
  return boot + ticks / static_cast<double>(sysconf(_SC_CLK_TCK));
}

}  // namespace

void AddCounter(const std::string& name, const std::string& help, double value, MetricFamilies* families,
                const MetricLabels& labels) {
  Add(name, help, MetricType::Counter, labels, families).counter.value = value;
}

void AddGauge(const std::string& name, const std::string& help, double value, MetricFamilies* families,
              const MetricLabels& labels) {
  Add(name, help, MetricType::Gauge, labels, families).gauge.value = value;
}

void AddHistogram(const std::string& name, const std::string& help,
                  const std::map<uint64_t, uint64_t>& counts, MetricFamilies* families) {
  ClientMetric::Histogram& histogram = Add(name, help, MetricType::Histogram, {}, families).histogram;
  auto next = counts.begin();
  const auto count_to = [&](double bound) {
    for (; next != counts.end() && static_cast<double>(next->first) <= bound; ++next) {
      histogram.sample_count += next->second;
      histogram.sample_sum += static_cast<double>(next->first) * static_cast<double>(next->second);
    }
    histogram.bucket.push_back({histogram.sample_count, bound});
  };
  count_to(0);
  for (uint64_t bound = 1; bound <= kHighestBound; bound *= 2) count_to(static_cast<double>(bound));
  count_to(std::numeric_limits<double>::infinity());
}

void AddJob(const v1::JobStatus& status, MetricFamilies* families) {
  AddGauge("catchment_job_info", "The job's name and preset.", 1, families,
           {{"job", status.job()}, {"preset", status.settings().algorithm().preset()}});
  for (int phase = v1::JobStatus::Phase_MIN; phase <= v1::JobStatus::Phase_MAX; ++phase) {
    AddGauge("catchment_job_phase", "1 for the job's phase, 0 for the others.", status.phase() == phase,
             families, {{"phase", v1::JobStatus::Phase_Name(static_cast<v1::JobStatus::Phase>(phase))}});
  }
  AddAll(JobMeasures(), "", JobReading(status), families);
  for (const v1::WorkerStatus& worker : status.workers()) {
    AddAll(WorkerMeasures(), "catchment_member_", {worker, nullptr}, families,
           {{"worker", absl::StrCat(worker.worker())}, {"host", worker.host()}});
  }
  for (const v1::ProgramMetric& metric : status.program_metrics()) {
    const MetricLabels labels = {{"name", metric.name()}};
    AddGauge("catchment_program_metric_sum", "Sum of the values that programs have logged.", metric.sum(),
             families, labels);
    AddCounter("catchment_program_metric_values_total", "The number of values that programs have logged.",
               static_cast<double>(metric.count()), families, labels);
  }
}

void AddShard(const v1::ShardReport& report, MetricFamilies* families) {
  AddGauge("catchment_shard_info", "The shard's index.", 1, families,
           {{"shard", absl::StrCat(report.shard())}});
  AddAll(ShardMeasures(), "", {report.shard(), &report, nullptr}, families);
}

void AddWorker(const v1::Progress& progress, MetricFamilies* families) {
  v1::WorkerStatus worker;
  *worker.mutable_progress() = progress;
  AddAll(WorkerMeasures(), "catchment_worker_", {worker, nullptr}, families);
}

void AddProcess(MetricFamilies* families) {
  rusage usage{};
  if (getrusage(RUSAGE_SELF, &usage) == 0) {
    const auto seconds = [](const timeval& time) {
      return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_usec) / 1e6;
    };
    AddCounter("process_cpu_seconds_total", "User and system time.",
               seconds(usage.ru_utime) + seconds(usage.ru_stime), families);
  }
  std::ifstream statm("/proc/self/statm");
  if (double all = 0, resident = 0; statm >> all >> resident) {
    const double page = static_cast<double>(sysconf(_SC_PAGESIZE));
    AddGauge("process_virtual_memory_bytes", "Virtual memory.", all * page, families);
    AddGauge("process_resident_memory_bytes", "Resident memory.", resident * page, families);
  }
  std::error_code error;
  const auto files = std::filesystem::directory_iterator("/proc/self/fd", error);
  if (!error)
    AddGauge("process_open_fds", "Open file descriptors.", std::distance(begin(files), end(files)), families);
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) == 0)
    AddGauge("process_max_fds", "The limit of open file descriptors.", static_cast<double>(limit.rlim_cur),
             families);
  if (const std::optional<double> start = StartTime())
    AddGauge("process_start_time_seconds", "Since 1970.", *start, families);
}

}  // namespace catchment
