#include "common/job/validate.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/job/data_shape.h"
#include "common/job/defaults.h"
#include "common/job/presets.h"
#include "common/model_shapes.h"
#include "common/nearest_name.h"

namespace catchment {
namespace {

constexpr uint32_t kMaxWorkers = 10000;
constexpr uint32_t kMaxBatchSize = 1000000;
constexpr uint32_t kMaxBlockKib = 65536;
constexpr size_t kMaxNameLength = 100;
// Samples are counted in 64 bits.
constexpr double kMaxBudget = 9e18;

// Gathers problems, a line each.
class Problems {
 public:
  void Add(const std::string& path, const std::string& text) {
    lines_.push_back(absl::StrCat(path, ": ", text));
  }
  void AddLines(const std::string& lines) { lines_.push_back(lines); }

  template <typename T>
  void Require(bool holds, const std::string& path, T value, const std::string& rule) {
    if (!holds) Add(path, absl::StrCat("is ", value, "; ", rule));
  }

  // Comparisons with a NaN are false, so none passes.
  template <typename T>
  void AtLeast(T low, const std::string& path, T value) {
    Require(value >= low, path, value, absl::StrCat("must be at least ", low));
  }
  template <typename T>
  void Within(T low, T high, const std::string& path, T value) {
    Require(value >= low && value <= high, path, value, absl::StrCat("must be from ", low, " to ", high));
  }
  void BelowOne(const std::string& path, double value) {
    Require(value >= 0 && value < 1, path, value, "must be in [0, 1)");
  }
  void Positive(const std::string& path, double value) {
    Require(value > 0 && std::isfinite(value), path, value, "must be a number above 0");
  }

  bool empty() const { return lines_.empty(); }
  absl::Status ToStatus() const {
    return lines_.empty() ? absl::OkStatus() : absl::InvalidArgumentError(absl::StrJoin(lines_, "\n"));
  }

 private:
  std::vector<std::string> lines_;
};

bool IsNameCharacter(char c) { return absl::ascii_isalnum(c) || c == '-' || c == '_' || c == '.'; }

void CheckName(const std::string& name, Problems* problems) {
  if (!std::all_of(name.begin(), name.end(), IsNameCharacter)) {
    problems->Add("name", absl::StrCat("\"", name, "\" may have letters, digits, '-', '_' and '.' only"));
  }
  if (name[0] == '.') problems->Add("name", absl::StrCat("\"", name, "\" must not begin with '.'"));
  if (name.size() > kMaxNameLength) {
    problems->Add("name", absl::StrCat("has ", name.size(), " characters; at most ", kMaxNameLength));
  }
}

void CheckBudget(const v1::Job& job, Problems* problems) {
  switch (job.budget_case()) {
    case v1::Job::kEpochs: return problems->Within<uint64_t>(1, 1000000000, "epochs", job.epochs());
    case v1::Job::kSamples: return problems->AtLeast<uint64_t>(1, "samples", job.samples());
    case v1::Job::kUpdates: break;
    case v1::Job::BUDGET_NOT_SET: return;
  }
  problems->AtLeast<uint64_t>(1, "updates", job.updates());
  const v1::Contribution& contribution = job.algorithm().contribution();
  const double steps =
      std::max(contribution.gradient().push_period(), contribution.elastic().communication_period());
  const double samples = 1.0 * job.updates() * steps * job.batch_size() * job.workers();
  problems->Require(samples <= kMaxBudget, "updates", job.updates(),
                    "with this batch_size and these workers that is more samples than can be counted");
}

void CheckJob(const v1::Job& job, Problems* problems) {
  CheckName(job.name(), problems);
  problems->Within<uint32_t>(1, kMaxBatchSize, "batch_size", job.batch_size());
  problems->Within<uint32_t>(1, kMaxWorkers, "workers", job.workers());
  problems->Within<uint32_t>(1, kMaxBlockKib, "block_kib", job.block_kib());
  problems->Require(v1::Device_IsValid(job.device()), "device", static_cast<int>(job.device()),
                    "must be AUTO, CPU or CUDA");
  CheckBudget(job, problems);
}

void CheckData(const v1::Job& job, Problems* problems) {
  if (job.data().source_case() == v1::Data::SOURCE_NOT_SET) {
    return problems->Add("data", "has no source; give one of mnist {}, drawn_digits {}");
  }
  if (!job.data().has_drawn_digits()) return;
  const v1::DrawnDigits& digits = job.data().drawn_digits();
  problems->AtLeast<uint32_t>(1, "data.drawn_digits.train_samples", digits.train_samples());
  problems->AtLeast<uint32_t>(1, "data.drawn_digits.test_samples", digits.test_samples());
  problems->Require(
      job.batch_size() <= std::max(1u, digits.train_samples()), "batch_size", job.batch_size(),
      absl::StrCat("must not be above data.drawn_digits.train_samples, ", digits.train_samples()));
}

// Also gives the layers their names.
void CheckModel(v1::Job* job, Problems* problems) {
  const DataShape shape = ShapeOf(job->data());
  const auto layers = InferShapes(job->model(), shape.input, shape.num_classes);
  if (!layers.ok()) return problems->AddLines(std::string(layers.status().message()));
  for (size_t i = 0; i < layers->size(); ++i) {
    job->mutable_model()->mutable_layers(i)->set_name((*layers)[i].name);
  }
}

void CheckGradient(const v1::AccruedGradient& gradient, bool synchronous, Problems* problems) {
  const std::string path = "algorithm.contribution.gradient";
  problems->AtLeast<uint32_t>(1, path + ".push_period", gradient.push_period());
  problems->AtLeast<uint32_t>(1, path + ".fetch_period", gradient.fetch_period());
  const float local = gradient.local_learning_rate();
  problems->Require(local >= 0 && std::isfinite(local), path + ".local_learning_rate", local,
                    "must be a number, 0 or above");
  if (synchronous && gradient.fetch_period() != gradient.push_period()) {
    problems->Add(
        path + ".fetch_period",
        absl::StrCat("is ", gradient.fetch_period(), " and push_period is ", gradient.push_period(),
                     "; they must be equal with consistency.groups 1: every worker of a synchronous "
                     "update computes at the same version; leave it out, or set groups to 0"));
  }
  if (local > 0 && gradient.fetch_period() == 1) {
    problems->Add(
        path + ".local_learning_rate",
        absl::StrCat("is ", local, "; it needs ", synchronous ? "push_period" : "fetch_period",
                     " above 1: with 1 the weights are fetched after every step, and the local step is "
                     "lost"));
  }
}

void CheckElastic(const v1::Job& job, bool synchronous, Problems* problems) {
  const v1::ElasticDifference& elastic = job.algorithm().contribution().elastic();
  const std::string path = "algorithm.contribution.elastic";
  problems->AtLeast<uint32_t>(1, path + ".communication_period", elastic.communication_period());
  const double rate = elastic.moving_rate();
  problems->Require(rate > 0 && rate <= 1, path + ".moving_rate", rate, "must be in (0, 1]");
  // Half a unit in the last place for 1.0f / workers.
  if (synchronous && rate <= 1 && rate * job.workers() > 1 + 1e-6) {
    problems->Add(path + ".moving_rate",
                  absl::StrCat("is ", rate, " with ", job.workers(),
                               " workers; must be at most 1 / workers with "
                               "consistency.groups 1: the center would move beyond the workers' mean"));
  }
}

void CheckAlgorithm(const v1::Job& job, Problems* problems) {
  const v1::Algorithm& algorithm = job.algorithm();
  problems->Require(algorithm.consistency().groups() <= 1, "algorithm.consistency.groups",
                    algorithm.consistency().groups(), "must be 1 (synchronous) or 0 (asynchronous)");
  const bool synchronous = algorithm.consistency().groups() == 1;
  if (algorithm.contribution().has_elastic()) {
    CheckElastic(job, synchronous, problems);
  } else {
    CheckGradient(algorithm.contribution().gradient(), synchronous, problems);
  }
}

void CheckSgd(const v1::Optimizer& optimizer, Problems* problems) {
  problems->BelowOne("optimizer.momentum", optimizer.momentum());
  if (optimizer.nesterov() && optimizer.momentum() == 0) {
    problems->Add("optimizer.nesterov",
                  "is true and momentum is 0; Nesterov's step looks ahead along the momentum: "
                  "set momentum above 0, or leave nesterov out");
  }
  if (optimizer.has_epsilon()) {
    problems->Add("optimizer.epsilon", "is of ADAGRAD and ADAM; SGD has none, leave it out");
  }
}

void CheckAdaptive(const v1::Optimizer& optimizer, Problems* problems) {
  const std::string kind = v1::Optimizer::Kind_Name(optimizer.kind());
  const std::string mend =
      absl::StrCat("is of SGD; ", kind, " has none, leave it out or set optimizer.kind to SGD");
  if (optimizer.momentum() != 0) problems->Add("optimizer.momentum", mend);
  if (optimizer.nesterov()) problems->Add("optimizer.nesterov", mend);
  problems->Positive("optimizer.epsilon", optimizer.epsilon());
}

void CheckBetas(const v1::Optimizer& optimizer, Problems* problems) {
  if (optimizer.kind() == v1::Optimizer::ADAM) {
    problems->BelowOne("optimizer.beta1", optimizer.beta1());
    problems->BelowOne("optimizer.beta2", optimizer.beta2());
    return;
  }
  const std::string mend = absl::StrCat("is of ADAM; ", v1::Optimizer::Kind_Name(optimizer.kind()),
                                        " has none, leave it out or set optimizer.kind to ADAM");
  if (optimizer.has_beta1()) problems->Add("optimizer.beta1", mend);
  if (optimizer.has_beta2()) problems->Add("optimizer.beta2", mend);
}

void CheckSchedule(const v1::Schedule& schedule, Problems* problems) {
  problems->Require(v1::Schedule::Decay_IsValid(schedule.decay()), "optimizer.schedule.decay",
                    static_cast<int>(schedule.decay()), "must be CONSTANT or COSINE");
  problems->BelowOne("optimizer.schedule.warmup", schedule.warmup());
  problems->Within<float>(0, 1, "optimizer.schedule.final_fraction", schedule.final_fraction());
}

// The optimizer of elastic averaging runs on the workers, between exchanges with the center.
void CheckElasticOptimizer(const v1::Optimizer& optimizer, Problems* problems) {
  if (optimizer.kind() != v1::Optimizer::SGD) {
    problems->Add(
        "optimizer.kind",
        absl::StrCat("is ", v1::Optimizer::Kind_Name(optimizer.kind()),
                     "; must be SGD with contribution "
                     "elastic: it moves each worker's own weights, and an exchange pulls these away from "
                     "what its running averages describe; for ",
                     v1::Optimizer::Kind_Name(optimizer.kind()), " use preset sync or downpour"));
  } else if (optimizer.momentum() > 0 && !optimizer.nesterov()) {
    problems->Add("optimizer.momentum",
                  absl::StrCat("is ", optimizer.momentum(),
                               " without nesterov; with contribution elastic momentum is "
                               "Nesterov's (EAMSGD): set nesterov to true, or momentum to 0 (EASGD)"));
  }
}

void CheckOptimizer(const v1::Job& job, Problems* problems) {
  const v1::Optimizer& optimizer = job.optimizer();
  if (!v1::Optimizer::Kind_IsValid(optimizer.kind())) {
    return problems->Require(false, "optimizer.kind", static_cast<int>(optimizer.kind()),
                             "must be SGD, ADAGRAD or ADAM");
  }
  problems->Positive("optimizer.learning_rate", optimizer.learning_rate());
  if (optimizer.kind() == v1::Optimizer::SGD) {
    CheckSgd(optimizer, problems);
  } else {
    CheckAdaptive(optimizer, problems);
  }
  CheckBetas(optimizer, problems);
  CheckSchedule(optimizer.schedule(), problems);
  if (job.algorithm().contribution().has_elastic()) CheckElasticOptimizer(optimizer, problems);
}

void CheckKeeping(const v1::Job& job, Problems* problems) {
  problems->AtLeast<uint32_t>(1, "checkpoint.keep", job.checkpoint().keep());
  problems->Positive("evaluation.every_epochs", job.evaluation().every_epochs());
  problems->Positive("faults.worker_lease_seconds", job.faults().worker_lease_seconds());
  problems->AtLeast<uint32_t>(1, "faults.non_finite_limit", job.faults().non_finite_limit());
  problems->Positive("faults.connect_timeout_seconds", job.faults().connect_timeout_seconds());
}

// The preset that the job asks for; for an unknown one the default, so that the rest can still be checked.
const Preset& ChoosePreset(const std::string& name, Problems* problems) {
  if (name.empty()) return Presets().front();
  if (const Preset* preset = FindPreset(name)) return *preset;
  std::vector<std::string> names;
  for (const Preset& preset : Presets()) names.push_back(preset.name);
  const std::string nearest = NearestName(name, names);
  problems->Add("algorithm.preset",
                absl::StrCat("no preset \"", name, "\"; ",
                             nearest.empty() ? "" : absl::StrCat("did you mean ", nearest, "? "),
                             "there are ", ListPresets()));
  return Presets().front();
}

}  // namespace

absl::StatusOr<v1::Job> FillDefaultsAndValidate(v1::Job job) {
  Problems problems;
  FillDefaults(ChoosePreset(job.algorithm().preset(), &problems), &job);
  CheckJob(job, &problems);
  CheckModel(&job, &problems);
  CheckData(job, &problems);
  CheckAlgorithm(job, &problems);
  CheckOptimizer(job, &problems);
  CheckKeeping(job, &problems);
  if (!problems.empty()) return problems.ToStatus();
  return job;
}

}  // namespace catchment
