#include "cli/advise/trials.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/types/span.h"
#include "cli/base/run_directory.h"
#include "cli/base/temporary_directory.h"
#include "cli/compare/compare_plan.h"
#include "cli/job/job_facts.h"
#include "cli/live/advice.h"
#include "cli/simulate/simulate.h"
#include "common/base/machine.h"
#include "common/base/mutex.h"
#include "common/base/status_macros.h"
#include "common/base/task_pool.h"
#include "common/base/text.h"
#include "common/job/job_text.h"
#include "common/job/presets.h"
#include "common/job/text_format.h"
#include "common/job/validate.h"
#include "common/measures/noise_scale.h"
#include "simulation/simulation.h"

namespace catchment {
namespace {

constexpr double kEvaluations = 20;
constexpr double kCondition = 100;
constexpr double kUsualNoise = 0.1;
// A bounded learning rate is tried if it is this much lower than the job's.
constexpr double kLower = 0.95;
// Steps of each worker in ComputingShare.
constexpr int64_t kSteps = 30;
// Forward, and twice that backward; a multiplication and an addition for each weight.
constexpr double kOperationsPerWeight = 6;

// The model and the budget of every trial.
struct Course {
  std::optional<QuadraticModel> quadratic;
  std::string model;
  int64_t samples = 0;
  int at_once = AvailableProcessors();
};

double OperationsPerSample(const JobFacts& facts) {
  double operations = 0;
  for (const LayerShape& layer : facts.layers()) {
    double weights = 0;
    for (const TensorSpec& tensor : layer.tensors) weights += static_cast<double>(tensor.size());
    double uses = 1;
    if (layer.kind == LayerKind::kConv2D)
      uses = static_cast<double>(layer.output.height * layer.output.width);
    if (layer.input.is_sequence()) uses = static_cast<double>(layer.input.channels);
    operations += kOperationsPerWeight * weights * uses;
  }
  return operations;
}

SimulationOptions OptionsOf(const Evidence& evidence) {
  SimulationOptions options;
  options.servers = evidence.servers;
  options.step = evidence.step;
  options.start = UsualStart(*evidence.step);
  options.network = evidence.network;
  return options;
}

// With the noise scale N the noise of a minibatch of B samples has N / B times the square of the gradient,
// which is the mean of the squared curvatures at the start of training.
double NoiseOf(const Evidence& evidence) {
  const std::optional<double> scale = evidence.noise ? NoiseScale(*evidence.noise) : std::nullopt;
  if (!scale) return kUsualNoise;
  const double squares = (1 - 1 / (kCondition * kCondition)) / (2 * std::log(kCondition));
  return std::sqrt(squares * std::max(0.0, *scale) / evidence.job.batch_size());
}

Course QuadraticCourse(const Evidence& evidence, int64_t budget, const std::string& reason) {
  const int64_t workers = evidence.workers();
  const int64_t steps = std::min(kMaxSteps, std::max<int64_t>(1, kMaxQuadraticSteps / workers));
  const double noise = NoiseOf(evidence);
  Course course;
  course.quadratic = QuadraticModel{.condition = kCondition, .noise = noise};
  course.model = absl::StrCat("a quadratic function with noise of ", Short(noise, 3),
                              evidence.noise ? " as measured" : ", which is assumed",
                              " in place of the model: ", reason);
  course.samples = std::min<int64_t>(budget, steps * workers * evidence.job.batch_size());
  return course;
}

Course CourseOf(const Evidence& evidence, const JobFacts& facts) {
  const v1::Job& job = evidence.job;
  const int64_t batch = job.batch_size();
  const int64_t budget =
      facts.knows_budget() ? facts.total_samples() : kMaxSteps * evidence.workers() * batch;
  if (job.model().has_external())
    return QuadraticCourse(evidence, budget, "a program computes its gradients");
  if (job.model().has_synthetic()) return QuadraticCourse(evidence, budget, "it is not known here");
  const auto affordable = static_cast<int64_t>(kMaxOperations / OperationsPerSample(facts));
  if (affordable < std::min(budget, kMinSteps * evidence.workers() * batch)) {
    return QuadraticCourse(evidence, budget, "computing it for so many workers takes too long");
  }
  const absl::StatusOr<int> at_once = SimulationsAtOnce(job, OptionsOf(evidence));
  if (absl::IsResourceExhausted(at_once.status())) {
    return QuadraticCourse(evidence, budget, "so many copies of it do not fit into the free memory");
  }
  return {.model = "the job's model on its data",
          .samples = std::min(budget, affordable),
          .at_once = at_once.value_or(1)};
}

void SetCourse(const Evidence& evidence, const JobFacts& facts, const Course& course, v1::Job* job) {
  const int64_t samples = course.samples;
  job->set_samples(samples);
  job->mutable_checkpoint()->set_every_updates(0);
  job->mutable_checkpoint()->set_every_seconds(0);
  const int64_t stated = course.quadratic ? course.quadratic->epoch_samples : 0;
  if (facts.knows_samples() || stated > 0) {
    const int64_t epoch = facts.knows_samples() ? facts.samples_per_epoch() : stated;
    const double epochs = static_cast<double>(samples) / static_cast<double>(epoch);
    job->mutable_evaluation()->set_every_epochs(
        std::max(kMinEvaluationEpochs, static_cast<float>(epochs / kEvaluations)));
  }
  job->mutable_faults()->clear_stragglers();
  for (const auto& [worker, times] : evidence.slow) {
    if (worker >= job->workers()) continue;
    v1::Straggler* const straggler = job->mutable_faults()->add_stragglers();
    straggler->set_worker(worker);
    straggler->set_slowdown_factor(static_cast<float>(times));
  }
}

absl::StatusOr<RunResult> RunOne(const Candidate& candidate, uint64_t seed, const SimulationOptions& given) {
  ASSIGN_OR_RETURN(const TemporaryDirectory directory, TemporaryDirectory::Create("catchment-advise"));
  SimulationOptions options = given;
  options.out_dir = directory.path();
  v1::Job job = candidate.job;
  job.set_seed(seed);
  const absl::Status status = Simulate(job, options).status();
  if (!status.ok() && !absl::IsInternal(status)) return status;
  const absl::StatusOr<nlohmann::json> summary = ReadSummary(directory.path() + "/summary.json");
  if (!summary.ok()) return status.ok() ? summary.status() : status;
  RunResult result{.algorithm = candidate.preset, .workers = static_cast<int>(job.workers()), .seed = seed};
  ReadResult(*summary, ReadTextFile(directory.path() + "/metrics.jsonl").value_or(""), &result);
  result.diverged = HasDiverged(*summary) || (result.loss && !std::isfinite(*result.loss));
  result.done = status.ok() && !result.diverged;
  if (!result.done && !result.diverged) return status;
  return result;
}

Candidate MakeCandidate(Candidate::Settings settings, const v1::Job& job) {
  const Hyperparameters hyperparameters = HyperparametersOf(job);
  return {job.algorithm().preset(), settings, job, hyperparameters.learning_rate, hyperparameters.momentum};
}

bool SameTraining(const v1::Job& a, const v1::Job& b) {
  return a.algorithm().SerializeAsString() == b.algorithm().SerializeAsString() &&
         a.optimizer().SerializeAsString() == b.optimizer().SerializeAsString();
}

std::string NameOf(const Candidate& candidate) {
  return candidate.settings == Candidate::kPreset
             ? candidate.preset
             : absl::StrCat(candidate.preset, " with settings: ", ToString(candidate.settings));
}

}  // namespace

const char* ToString(Candidate::Settings settings) {
  switch (settings) {
    case Candidate::kPreset:
      return "preset";
    case Candidate::kJob:
      return "job";
    case Candidate::kBounded:
      return "bounded";
  }
  return "";
}

bool Trial::diverged() const {
  return std::any_of(runs.begin(), runs.end(), [](const RunResult& run) { return run.diverged; });
}

double Trial::accuracy() const {
  if (diverged()) return 0;
  double sum = 0;
  for (const RunResult& run : runs) sum += run.accuracy.value_or(0);
  return sum / static_cast<double>(runs.size());
}

double Trial::lowest() const {
  double lowest = 1;
  for (const RunResult& run : runs) lowest = std::min(lowest, run.diverged ? 0 : run.accuracy.value_or(0));
  return lowest;
}

double Trial::waiting() const {
  double compute = 0, all = 0;
  for (const RunResult& run : runs) {
    compute += run.compute_seconds;
    all += run.compute_seconds + run.push_seconds + run.pull_seconds;
  }
  return all > 0 ? 1 - compute / all : 0;
}

std::optional<double> Trial::SecondsTo(double target) const {
  if (diverged() || accuracy() < target) return std::nullopt;
  double sum = 0;
  for (const RunResult& run : runs) {
    const std::optional<Crossing> reached = FirstReached(run.scores, target);
    sum += reached ? reached->seconds : run.seconds;
  }
  return sum / static_cast<double>(runs.size());
}

const Trial* Trials::Find(const std::string& preset) const {
  for (const Trial& trial : trials) {
    if (trial.candidate.preset == preset) return &trial;
  }
  return nullptr;
}

std::vector<Candidate> Candidates(const Evidence& evidence, std::vector<LeftOutPreset>* left_out) {
  std::vector<Candidate> candidates;
  for (const Preset& preset : Presets()) {
    v1::Job job = evidence.job;
    job.clear_algorithm();
    job.clear_optimizer();
    job.mutable_algorithm()->set_preset(preset.name);
    absl::StatusOr<v1::Job> complete = FillDefaultsAndValidate(job);
    // A preset's fragments may be more than the model can be divided into.
    const absl::Status status =
        complete.ok() ? JobFacts::Create(*complete, evidence.servers).status() : complete.status();
    if (status.ok()) {
      candidates.push_back(MakeCandidate(Candidate::kPreset, *complete));
    } else {
      left_out->push_back({preset.name, std::string(status.message())});
    }
  }
  const absl::StatusOr<v1::Job> own = FillDefaultsAndValidate(evidence.job);
  const bool known =
      own.ok() && std::any_of(candidates.begin(), candidates.end(),
                              [&](const Candidate& other) { return SameTraining(other.job, *own); });
  if (!own.ok() || known) return candidates;
  candidates.push_back(MakeCandidate(Candidate::kJob, *own));
  const std::optional<double> rate = RateAtExpectedStaleness(*own);
  if (!rate || *rate > kLower * own->optimizer().learning_rate()) return candidates;
  v1::Job bounded = *own;
  bounded.mutable_optimizer()->set_learning_rate(static_cast<float>(*rate));
  candidates.push_back(MakeCandidate(Candidate::kBounded, bounded));
  return candidates;
}

void Judge(Trials* trials) {
  double best = 0;
  for (const Trial& trial : trials->trials) best = std::max(best, trial.accuracy());
  trials->target = best - kMargin;
  const auto seconds = [trials](const Trial& trial) { return trial.SecondsTo(trials->target); };
  std::stable_sort(trials->trials.begin(), trials->trials.end(), [&](const Trial& a, const Trial& b) {
    const std::optional<double> of_a = seconds(a), of_b = seconds(b);
    if (of_a && of_b) return *of_a < *of_b;
    if (of_a || of_b) return of_a.has_value();
    return a.accuracy() > b.accuracy();
  });
  trials->recommended = std::count_if(trials->trials.begin(), trials->trials.end(),
                                      [&](const Trial& t) { return seconds(t).has_value(); });
  trials->sure =
      trials->recommended > 0 && !trials->quadratic && trials->trials[0].lowest() >= trials->target;
  for (size_t i = 1; i < trials->recommended; ++i) {
    const Trial &first = trials->trials[0], &other = trials->trials[i];
    for (size_t run = 0; run < std::min(first.runs.size(), other.runs.size()); ++run) {
      const auto a = FirstReached(first.runs[run].scores, trials->target),
                 b = FirstReached(other.runs[run].scores, trials->target);
      if (!a || (b && a->seconds >= b->seconds)) trials->sure = false;
    }
  }
}

absl::StatusOr<Trials> RunTrials(const Evidence& evidence,
                                 const std::function<void(const std::string&)>& report) {
  ASSIGN_OR_RETURN(const JobFacts facts, JobFacts::Create(evidence.job, evidence.servers));
  Trials trials;
  std::vector<Candidate> candidates = Candidates(evidence, &trials.left_out);
  if (candidates.empty()) return absl::InvalidArgumentError(trials.left_out.front().reason);
  for (Candidate& candidate : candidates) trials.trials.push_back({.candidate = std::move(candidate)});
  Course course = CourseOf(evidence, facts);
  Mutex mu;  // guards calls of `report`
  const auto run = [&](Trial* trial, size_t index) -> absl::Status {
    SimulationOptions options = OptionsOf(evidence);
    options.quadratic = course.quadratic;
    Candidate candidate = trial->candidate;
    SetCourse(evidence, facts, course, &candidate.job);
    ASSIGN_OR_RETURN(RunResult result, RunOne(candidate, evidence.job.seed() + index, options));
    const MutexLock lock(&mu);
    report(absl::StrCat(NameOf(candidate), ", seed ", result.seed, ": ",
                        result.diverged ? "diverged" : Percent(result.accuracy.value_or(0))));
    trial->runs[index] = std::move(result);
    return absl::OkStatus();
  };
  const auto run_missing = [&](absl::Span<Trial> tried, size_t seeds) -> absl::Status {
    TaskPool pool;
    for (Trial& trial : tried) {
      for (size_t index = trial.runs.size(); index < seeds; ++index)
        pool.Add([&run, &trial, index] { return run(&trial, index); });
      trial.runs.resize(std::max(seeds, trial.runs.size()));
    }
    return pool.Run(course.at_once);
  };
  const absl::Span<Trial> all = absl::MakeSpan(trials.trials);
  // The first run shows whether the job's data and its test set are there.
  absl::Status status = run_missing(all.first(1), 1);
  const bool scored = status.ok() && (all[0].diverged() || all[0].runs[0].accuracy);
  const bool lacks_data = absl::IsNotFound(status);
  if (lacks_data || (!course.quadratic && status.ok() && !scored)) {
    course =
        QuadraticCourse(evidence, course.samples,
                        status.ok() ? "its test set has no accuracy" : "its data is not on this machine");
    // Then nobody knows how many samples an epoch has.
    if (lacks_data && !facts.knows_samples()) course.quadratic->epoch_samples = course.samples;
    all[0].runs.clear();
    status = run_missing(all.first(1), 1);
  }
  RETURN_IF_ERROR(status);
  RETURN_IF_ERROR(run_missing(all, 1));
  trials.quadratic = course.quadratic.has_value();
  trials.model = course.model;
  trials.samples = course.samples;
  Judge(&trials);
  // A repeated run may bring another among the best, which is then repeated too.
  for (;;) {
    const absl::Span<Trial> best = all.first(std::min(kRepeated, trials.recommended));
    if (std::all_of(best.begin(), best.end(), [](const Trial& t) { return t.runs.size() >= kSeeds; })) break;
    RETURN_IF_ERROR(run_missing(best, kSeeds));
    Judge(&trials);
  }
  // Only repeated candidates are known to train with other seeds.
  trials.recommended = std::min(trials.recommended, kRepeated);
  return trials;
}

absl::StatusOr<double> ComputingShare(const Evidence& evidence, int servers) {
  ASSIGN_OR_RETURN(const JobFacts facts, JobFacts::Create(evidence.job, servers));
  SimulationOptions options = OptionsOf(evidence);
  options.servers = servers;
  options.start = {};
  v1::Job job = evidence.job;
  Course course;
  course.samples = kSteps * facts.period() * evidence.workers() * job.batch_size();
  course.quadratic = QuadraticModel{.epoch_samples = course.samples};
  options.quadratic = course.quadratic;
  SetCourse(evidence, facts, course, &job);
  ASSIGN_OR_RETURN(const RunResult run, RunOne(MakeCandidate(Candidate::kJob, job), job.seed(), options));
  return 1 - Trial{.candidate = {}, .runs = {run}}.waiting();
}

}  // namespace catchment
