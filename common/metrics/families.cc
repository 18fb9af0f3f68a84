#include "common/metrics/families.h"

#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <limits>
#include <optional>
#include <string>
#include <system_error>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "common/base/noise_scale.h"
#include "common/base/quorum_total.h"
#include "common/base/staleness.h"

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
  MetricFamily& family = found != families->end() ? *found : families->emplace_back();
  family.name = name;
  family.help = help;
  family.type = type;
  ClientMetric& metric = family.metric.emplace_back();
  metric.label = labels;
  return metric;
}

// A measurement of a report that is one number.
template <typename Report>
struct Measurement {
  const char* name;
  const char* help;
  double (*value)(const Report& report);
};

template <typename Report, size_t n>
void AddAll(const Measurement<Report> (&measurements)[n], const Report& report, MetricFamilies* families) {
  for (const Measurement<Report>& one : measurements) {
    const bool counts =
        absl::string_view(one.name).substr(std::max<size_t>(strlen(one.name), 6) - 6) == "_total";
    (counts ? AddCounter : AddGauge)(one.name, one.help, one.value(report), families, {});
  }
}

using v1::JobStatus;
using v1::Progress;
using v1::ShardReport;

constexpr Measurement<JobStatus> kOfJob[] = {
    {"catchment_wall_seconds", "Time of training.", [](const JobStatus& s) { return s.wall_seconds(); }},
    {"catchment_epochs", "Epochs trained, over all workers.", [](const JobStatus& s) { return s.epochs(); }},
    {"catchment_samples_total", "Samples in updates.",
     [](const JobStatus& s) -> double { return s.samples(); }},
    {"catchment_samples_budget", "Samples after which training ends; 0: the budget is not in samples.",
     [](const JobStatus& s) -> double { return s.total_samples(); }},
    {"catchment_samples_per_second", "Over the last seconds.",
     [](const JobStatus& s) { return s.samples_per_second(); }},
    {"catchment_seconds_left", "Time until the budget is spent, at the current rate.",
     [](const JobStatus& s) { return s.seconds_left(); }},
    {"catchment_updates_total", "Updates of shard 0.",
     [](const JobStatus& s) -> double { return s.updates(); }},
    {"catchment_train_loss", "Mean over the last seconds.",
     [](const JobStatus& s) { return s.train_loss(); }},
    {"catchment_learning_rate", "Of the next update.", [](const JobStatus& s) { return s.learning_rate(); }},
    {"catchment_pushed_bytes_total", "Bytes of gradients, over all shards.",
     [](const JobStatus& s) -> double { return s.bytes_pushed(); }},
    {"catchment_pulled_bytes_total", "Bytes of weights, over all shards.",
     [](const JobStatus& s) -> double { return s.bytes_pulled(); }},
    {"catchment_recoveries_total", "Losses of a server or the master after which the job continued.",
     [](const JobStatus& s) -> double { return s.recoveries(); }},
    {"catchment_updates_computed_again_total", "Updates lost by going back to a checkpoint.",
     [](const JobStatus& s) -> double { return s.updates_computed_again(); }},
    {"catchment_repeated_samples_total", "Samples computed again although some blocks already include them.",
     [](const JobStatus& s) -> double { return s.repeated_samples(); }},
    {"catchment_last_checkpoint", "The number of the last complete checkpoint; 0: none.",
     [](const JobStatus& s) -> double { return s.last_checkpoint(); }},
    {"catchment_workers", "Workers that are members.",
     [](const JobStatus& s) -> double { return s.workers_size(); }},
    {"catchment_workers_expected", "The job's `workers`.",
     [](const JobStatus& s) -> double { return s.settings().workers(); }},
    {"catchment_evaluators", "Evaluators that are members.",
     [](const JobStatus& s) -> double { return s.evaluators(); }},
    {"catchment_servers", "Servers that have registered.",
     [](const JobStatus& s) -> double {
       return std::count_if(s.servers().begin(), s.servers().end(),
                            [](const v1::ServerStatus& server) { return !server.address().empty(); });
     }},
    {"catchment_servers_expected", "Servers of the job.",
     [](const JobStatus& s) -> double { return s.servers_size(); }},
};

constexpr Measurement<JobStatus> kOfScore[] = {
    {"catchment_test_loss", "Of the last evaluation.", [](const JobStatus& s) { return s.test_loss(); }},
    {"catchment_tested_at_samples", "The samples in the weights of the last evaluation.",
     [](const JobStatus& s) -> double { return s.tested_at_samples(); }},
};

constexpr Measurement<ShardReport> kOfShard[] = {
    {"catchment_shard_version", "The lowest version of the shard's blocks.",
     [](const ShardReport& r) -> double { return r.version(); }},
    {"catchment_shard_samples_total", "Samples in the shard's updates.",
     [](const ShardReport& r) -> double { return r.samples(); }},
    {"catchment_shard_pushed_bytes_total", "Bytes of gradients since the shard's start.",
     [](const ShardReport& r) -> double { return r.bytes_pushed(); }},
    {"catchment_shard_pulled_bytes_total", "Bytes of weights since the shard's start.",
     [](const ShardReport& r) -> double { return r.bytes_pulled(); }},
};

constexpr Measurement<Progress> kOfWorker[] = {
    {"catchment_worker_steps_total", "Steps since the worker registered.",
     [](const Progress& p) -> double { return p.steps(); }},
    {"catchment_worker_samples_total", "Samples since the worker registered.",
     [](const Progress& p) -> double { return p.samples(); }},
    {"catchment_worker_pushed_bytes_total", "Bytes of gradients.",
     [](const Progress& p) -> double { return p.bytes_pushed(); }},
    {"catchment_worker_pulled_bytes_total", "Bytes of weights.",
     [](const Progress& p) -> double { return p.bytes_pulled(); }},
    {"catchment_worker_read_bytes_total", "Bytes of samples that were read from files.",
     [](const Progress& p) -> double { return p.bytes_read(); }},
    {"catchment_worker_read_seconds_total",
     "Seconds in which the loader's threads read, decoded and augmented samples, summed over the threads.",
     [](const Progress& p) -> double { return p.read_seconds(); }},
};

// Adds how training threads have spent their time. `report` has these fields of Progress.
template <typename Report>
void AddPhases(const std::string& name, const std::string& help, const Report& report,
               MetricFamilies* families) {
  const std::pair<const char*, double> phases[] = {{"compute", report.compute_seconds()},
                                                   {"push", report.push_seconds()},
                                                   {"pull", report.pull_seconds()},
                                                   {"data", report.data_seconds()}};
  for (const auto& [phase, seconds] : phases) AddCounter(name, help, seconds, families, {{"phase", phase}});
}

void AddQuorum(const QuorumTotal& quorum, MetricFamilies* families) {
  const std::pair<const char*, uint64_t> ends[] = {
      {"all", quorum.by_all}, {"grace", quorum.by_grace}, {"loss", quorum.by_loss}};
  for (const auto& [end, updates] : ends) {
    AddCounter("catchment_quorum_updates_total",
               "Updates of blocks, by what ended the wait for contributions.", static_cast<double>(updates),
               families, {{"closed_by", end}});
  }
  AddCounter("catchment_quorum_grace_seconds_total", "From the arrival of a quorum to its update.",
             quorum.grace_seconds, families);
  AddHistogram("catchment_quorum_contributions", "Contributions in an update of a block.", quorum.merged,
               families);
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

void AddJob(const JobStatus& status, MetricFamilies* families) {
  AddGauge("catchment_job_info", "The job's name and preset.", 1, families,
           {{"job", status.job()}, {"preset", status.settings().algorithm().preset()}});
  for (int phase = JobStatus::Phase_MIN; phase <= JobStatus::Phase_MAX; ++phase) {
    AddGauge("catchment_job_phase", "1 for the job's phase, 0 for the others.", status.phase() == phase,
             families, {{"phase", JobStatus::Phase_Name(static_cast<JobStatus::Phase>(phase))}});
  }
  AddAll(kOfJob, status, families);
  if (status.has_accuracy()) {
    AddGauge("catchment_train_accuracy_ratio", "Mean over the last seconds.", status.train_accuracy(),
             families);
  }
  if (status.test_samples() > 0) {
    AddAll(kOfScore, status, families);
    if (status.has_accuracy())
      AddGauge("catchment_test_accuracy_ratio", "Of the last evaluation.", status.test_accuracy(), families);
  }
  AddPhases("catchment_phase_seconds_total", "Time of workers' training threads, over all workers.", status,
            families);
  AddHistogram("catchment_staleness_updates", "Updates between the weights of a push and its application.",
               TotalStaleness(status).counts(), families);
  const std::pair<const char*, uint64_t> fates[] = {{"applied", status.pushes_applied()},
                                                    {"late", status.pushes_late()},
                                                    {"non_finite", status.pushes_non_finite()},
                                                    {"duplicate", status.pushes_duplicate()}};
  for (const auto& [fate, pushes] : fates) {
    AddCounter("catchment_pushes_total", "Pushes to shard 0.", static_cast<double>(pushes), families,
               {{"fate", fate}});
  }
  AddCounter("catchment_pushes_split_total", "Applied pushes to shard 0 of which some blocks were too late.",
             static_cast<double>(status.pushes_split()), families);
  if (const std::optional<QuorumTotal> quorum = TotalQuorum(status)) AddQuorum(*quorum, families);
  if (status.round_trip_p50_us() > 0) {
    const std::pair<const char*, double> quantiles[] = {{"0.5", status.round_trip_p50_us()},
                                                        {"0.99", status.round_trip_p99_us()}};
    for (const auto& [quantile, us] : quantiles) {
      AddGauge("catchment_round_trip_seconds", "From a push to the weights that answer it.", us / 1e6,
               families, {{"quantile", quantile}});
    }
  }
  for (const v1::WorkerStatus& worker : status.workers()) {
    const MetricLabels labels = {{"worker", absl::StrCat(worker.worker())}, {"host", worker.host()}};
    AddCounter("catchment_member_samples_total", "Samples of a worker since it registered.",
               static_cast<double>(worker.progress().samples()), families, labels);
    AddGauge("catchment_member_heartbeat_age_seconds", "Since the worker's last heartbeat.",
             worker.seconds_since_heartbeat(), families, labels);
  }
  if (const std::optional<v1::GradientNoise> noise = TotalNoise(status)) {
    if (const std::optional<double> scale = NoiseScale(*noise))
      AddGauge("catchment_noise_scale", "Gradient noise scale, in samples.", *scale, families);
  }
  for (const v1::ProgramMetric& metric : status.program_metrics()) {
    const MetricLabels labels = {{"name", metric.name()}};
    AddGauge("catchment_program_metric_sum", "Sum of the values that programs have logged.", metric.sum(),
             families, labels);
    AddCounter("catchment_program_metric_values_total", "The number of values that programs have logged.",
               static_cast<double>(metric.count()), families, labels);
  }
}

void AddShard(const ShardReport& report, MetricFamilies* families) {
  AddGauge("catchment_shard_info", "The shard's index.", 1, families,
           {{"shard", absl::StrCat(report.shard())}});
  AddAll(kOfShard, report, families);
}

void AddWorker(const Progress& progress, MetricFamilies* families) {
  AddAll(kOfWorker, progress, families);
  AddPhases("catchment_worker_phase_seconds_total", "Time of the training thread.", progress, families);
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
