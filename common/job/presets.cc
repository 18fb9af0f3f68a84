#include "common/job/presets.h"

#include <glog/logging.h>
#include <google/protobuf/text_format.h>

#include <algorithm>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/base/text.h"
#include "common/job/algorithm_facts.h"
#include "common/job/compensation_kinds.h"
#include "common/job/consistency_kinds.h"

namespace catchment {
namespace {

struct Text {
  const char* name;
  const char* when;
  const char* algorithm;
  const char* optimizer;
  double step_times_delay = 0;
  uint32_t few_workers = 4;
};

constexpr Text kTexts[] = {
    // The reference for every other: the sequential algorithm with a batch of workers x batch_size.
    {"sync",
     "For equally fast machines and a fast network: every update waits for all "
     "workers, and a run can be repeated.",
     "consistency { synchronous {} } contribution { gradient {} }",
     "kind: SGD learning_rate: 0.05 momentum: 0.9"},
    // Less momentum than sync: asynchrony adds some of its own, 1 - 1/workers (arXiv:1605.09774).
    {"downpour",
     "For workers that differ in speed, or leave and join, "
     "and are few enough for stale gradients to do little harm.",
     "consistency { asynchronous {} } contribution { gradient {} } compensation { delay_adaptive {} }",
     "kind: SGD learning_rate: 0.03 momentum: 0.8", 0.4},
    // The momentum that training without staleness would have; what asynchrony adds is taken off as it is
    // measured, within about ten pushes: the first steps are large enough to spoil the weights otherwise.
    {"staleness_aware",
     "Like downpour, for many or slow workers: momentum falls as the measured staleness rises.",
     "consistency { asynchronous {} } contribution { gradient {} } compensation { "
     "open_loop_momentum { averaging: 0.1 } delay_adaptive {} }",
     "kind: SGD learning_rate: 0.03 momentum: 0.9"},
    {"dc_asgd",
     "Like downpour, if the servers have memory for a copy of the model for each worker: stale gradients are "
     "corrected by their own curvature.",
     "consistency { asynchronous {} } contribution { gradient {} } compensation { delay_compensated {} "
     "delay_adaptive {} }",
     "kind: SGD learning_rate: 0.03 momentum: 0.8", 0.4},
    {"gap_aware",
     "Like dc_asgd, for large or uneven staleness: a gradient counts less the further its "
     "weights are from the current ones.",
     "consistency { asynchronous {} } contribution { gradient {} } compensation { gap_aware {} "
     "delay_adaptive {} }",
     "kind: SGD learning_rate: 0.03 momentum: 0.9"},
    // A quarter of the traffic of downpour at the default period, and the workers explore on their own. The
    // rate is 18 / workers with more than 45, as measured on a CNN (docs/algorithms/easgd.md).
    {"easgd",
     "For slow networks or many workers: each trains its own weights, "
     "which are pulled towards the center at intervals.",
     "consistency { asynchronous {} } contribution { elastic {} }",
     "kind: SGD learning_rate: 0.4 momentum: 0", 18},
    // All workers exchange against the same center: easgd that can be repeated.
    {"easgd_sync", "Like easgd, for equally fast machines and repeatable runs.",
     "consistency { synchronous {} } contribution { elastic {} }",
     "kind: SGD learning_rate: 0.3 momentum: 0"},
    // Momentum multiplies the step by about 1 / (1 - 0.9), hence the smaller learning rate.
    {"eamsgd", "Like easgd, for models that need momentum to train well.",
     "consistency { asynchronous {} } contribution { elastic {} }",
     "kind: SGD learning_rate: 0.06 momentum: 0.9 nesterov: true"},
    // Chen et al. 2016, arXiv:1604.00981.
    {"sync_backup",
     "Like sync, for workers that are slow occasionally: every update is made without the last one.",
     "consistency { synchronous { backup_workers: 1 } } contribution { gradient {} }",
     "kind: SGD learning_rate: 0.05 momentum: 0.9"},
    // Kurth et al. 2017, arXiv:1708.05256.
    {"hybrid",
     "For too many workers for one barrier: two groups, synchronous within, asynchronous to each other.",
     "consistency { grouped { groups: 2 } } contribution { gradient {} } compensation { delay_adaptive {} }",
     "kind: SGD learning_rate: 0.05 momentum: 0.8", 0.4},
    // arXiv:1511.05950. With few workers updates are as large as those of sync, and about one update old.
    {"softsync",
     "Like downpour, with fewer and larger updates, each of about four gradients: no worker waits.",
     "consistency { n_softsync { n: 1 } } contribution { gradient {} } compensation { delay_adaptive {} }",
     "kind: SGD learning_rate: 0.1 momentum: 0.8", 0.4},
    {"ssp", "Like downpour, if a worker may fall far behind: the others wait when it is 3 pushes late.",
     "consistency { bounded_staleness { bound: 3 } } contribution { gradient {} } "
     "compensation { delay_adaptive {} }",
     "kind: SGD learning_rate: 0.03 momentum: 0.7", 0.4},
    {"dana",
     "Like downpour, with full momentum for many workers: each has its own, and looks ahead along it.",
     "consistency { asynchronous {} } contribution { look_ahead {} } compensation { step_bound: 3 "
     "delay_adaptive {} }",
     "kind: SGD learning_rate: 0.02 momentum: 0"},
    {"gem",
     "Like downpour, if many workers make training unstable: together they move the center as one would.",
     "consistency { asynchronous {} } contribution { energy_matching {} } compensation { step_bound: 2 "
     "delay_adaptive {} }",
     "kind: SGD learning_rate: 1 momentum: 0"},
    // The servers' learning rate of 1 makes the center the workers' mean.
    {"local_sgd",
     "Like sync, for slow networks: workers train alone for some steps, then their weights are averaged.",
     "consistency { synchronous {} } "
     "contribution { pseudo_gradient { local_optimizer { kind: SGD learning_rate: 0.1 momentum: 0.9 } } }",
     "kind: SGD learning_rate: 1 momentum: 0 schedule { decay: CONSTANT }"},
    // Nguyen et al. 2021, arXiv:2106.06639, with its weight of stale moves, and its buffer of 10 as the
    // smallest.
    {"fedbuff",
     "Like local_sgd, for workers that differ in speed, or leave and join: none waits, "
     "and every 10 moves make an update.",
     "consistency { n_softsync { size: 10 } } contribution { pseudo_gradient { local_steps: 8 "
     "local_optimizer { kind: SGD learning_rate: 0.1 momentum: 0.9 } } } "
     "compensation { power { exponent: 0.5 } delay_adaptive {} }",
     "kind: SGD learning_rate: 1 momentum: 0 schedule { decay: CONSTANT }", 1.2},
    // The paper's outer optimizer.
    {"diloco",
     "Like local_sgd, with many steps between two exchanges, and for models that train best with Adam.",
     "consistency { synchronous {} } "
     "contribution { pseudo_gradient { local_optimizer { kind: ADAMW learning_rate: 0.002 } } }",
     "kind: SGD learning_rate: 0.7 momentum: 0.9 nesterov: true schedule { decay: CONSTANT }"},
    // Douillard et al. 2025, arXiv:2501.18512.
    {"streaming_diloco",
     "Like diloco, for links on which an exchange takes long: a fragment of the weights is sent at a time, "
     "and nobody waits for the answer.",
     "consistency { synchronous {} } contribution { pseudo_gradient { fragments: 4 overlap_steps: 1 "
     "blend: 0.5 local_optimizer { kind: ADAMW learning_rate: 0.002 } } }",
     "kind: SGD learning_rate: 0.7 momentum: 0.9 nesterov: true schedule { decay: CONSTANT }"},
    // Therien et al. 2025, arXiv:2505.23725, with its settings.
    {"muloco",
     "Like diloco, for programs with Muon as their own optimizer: fewer exchanges, and less momentum.",
     "consistency { synchronous {} } contribution { pseudo_gradient { local_steps: 30 "
     "local_optimizer { kind: ADAMW learning_rate: 0.002 } } }",
     "kind: SGD learning_rate: 0.7 momentum: 0.6 nesterov: true schedule { decay: CONSTANT }"},
    // Liu et al. 2024, arXiv:2401.09135. Less momentum than diloco: a move is about one round old when it is
    // applied.
    {"diloco_async",
     "Like diloco, for workers that differ in speed: none waits, "
     "and a slower one makes fewer steps between two exchanges.",
     "consistency { asynchronous {} } "
     "contribution { pseudo_gradient { local_optimizer { kind: ADAMW learning_rate: 0.002 } "
     "steps_by_speed: true } } compensation { delayed_nesterov {} delay_adaptive {} }",
     "kind: SGD learning_rate: 0.7 momentum: 0.5 nesterov: true schedule { decay: CONSTANT }", 1, 8},
    // Douillard et al. 2026, arXiv:2604.21428, with its K, H and tau, the outer optimizer of DiLoCo, and the
    // blend of streaming_diloco: the paper overwrites, which is worse with 2 to 60 workers.
    {"decoupled_diloco",
     "Like diloco, for workers that fail, or pause at times: none waits for one that is gone, and all send "
     "what they have when the first one sends.",
     "consistency { quorum {} } "
     "contribution { pseudo_gradient { local_steps: 24 fragments: 24 overlap_steps: 2 blend: 0.5 "
     "local_optimizer { kind: ADAMW learning_rate: 0.002 } } }",
     "kind: SGD learning_rate: 0.7 momentum: 0.9 nesterov: true schedule { decay: CONSTANT }"},
};

template <typename Message>
Message Parse(const char* text) {
  Message message;
  CHECK(google::protobuf::TextFormat::ParseFromString(text, &message)) << text;
  return message;
}

// Fills fields unset in `wanted` from `offered`, unless the two are of different kinds.
template <typename Axis>
void FillAxis(const Axis& offered, Axis* wanted) {
  if (wanted->kind_case() != Axis::KIND_NOT_SET && wanted->kind_case() != offered.kind_case()) return;
  Axis filled = offered;
  filled.MergeFrom(*wanted);
  *wanted = filled;
}

// Drops the preset's additions that the job's own fields do not support. The kind of its compensation stays,
// since the user chose the preset for it.
void FillAlgorithm(const v1::Algorithm& preset, v1::Algorithm* algorithm) {
  FillAxis(preset.consistency(), algorithm->mutable_consistency());
  v1::Contribution contribution = preset.contribution();
  const v1::PseudoGradient& wanted = algorithm->contribution().pseudo_gradient();
  if (wanted.has_overlap_steps() && wanted.overlap_steps() == 0 && contribution.has_pseudo_gradient())
    contribution.mutable_pseudo_gradient()->clear_blend();
  FillAxis(contribution, algorithm->mutable_contribution());
  v1::Compensation compensation = preset.compensation();
  if (!KindOf(algorithm->consistency()).has_staleness || algorithm->contribution().has_elastic()) {
    compensation.clear_delay_adaptive();
    compensation.clear_step_bound();
  }
  FillAxis(compensation, algorithm->mutable_compensation());
}

const Preset& OptimizerPreset(const Preset& preset, const v1::Algorithm& algorithm) {
  const auto kind = algorithm.contribution().kind_case();
  if (preset.algorithm.contribution().kind_case() == kind) return preset;
  const Preset* fitting = nullptr;
  for (const Preset& other : Presets()) {
    if (other.algorithm.contribution().kind_case() != kind) continue;
    // Its optimizer is for jobs with the compensation.
    const auto compensated = other.algorithm.compensation().kind_case();
    if (compensated != v1::Compensation::KIND_NOT_SET && compensated != algorithm.compensation().kind_case())
      continue;
    if (NumGroups(other.algorithm.consistency()) == NumGroups(algorithm.consistency())) return other;
    if (fitting == nullptr) fitting = &other;
  }
  return fitting == nullptr ? preset : *fitting;
}

void FillOptimizer(const v1::Optimizer& preset, bool elastic, v1::Optimizer* optimizer) {
  v1::Optimizer filled;
  if (optimizer->kind() == v1::Optimizer::UNSET || optimizer->kind() == preset.kind()) {
    filled = preset;
    // There is none without momentum; and the workers of elastic averaging have no other.
    const float momentum = optimizer->has_momentum() ? optimizer->momentum() : preset.momentum();
    if (filled.kind() == v1::Optimizer::SGD) {
      filled.set_nesterov(momentum > 0 && (preset.nesterov() || elastic));
    }
  } else {
    *filled.mutable_schedule() = preset.schedule();
  }
  filled.MergeFrom(*optimizer);
  if (filled.schedule().decay() == v1::Schedule::DECAY_UNSET) {
    filled.mutable_schedule()->set_decay(v1::Schedule::COSINE);
  }
  *optimizer = filled;
}

// The smallest default of moving_rate with asynchronous workers. Each exchange then is an update by itself,
// so the center does not overshoot with any number of workers, and with a smaller rate workers make too few
// exchanges in a training to follow each other.
constexpr float kLeastMovingRate = 0.3f;
// With more workers, which then make few steps each, the center of workers without momentum would be too far
// behind them with the default of communication_period.
constexpr uint32_t kWorkersOfLongPeriod = 15;
constexpr uint32_t kShortPeriod = 2;
// With many workers, each makes few rounds of asynchronous DiLoCo in a training, so its rounds are shorter.
// The moves of a round arrive one after another and act like a momentum, to which little is added.
constexpr uint32_t kShortRound = 8;
constexpr float kAddedMomentum = 0.1f;
// The buffer of n_softsync grows with the workers, so that a contribution is about this number of updates old
// at most.
constexpr uint32_t kMostUpdatesOld = 3;

// The number of gradients in an update of softsync with more workers than that. Larger updates are fewer, and
// since their gradients are at least about one update old, their steps cannot be as much larger.
constexpr uint32_t kGradientsPerUpdate = 4;

// Sets the fields of a job's algorithm that follow the number of workers.
void FitToWorkers(const Preset& preset, bool sets_buffer, v1::Job* job) {
  const uint32_t workers = job->workers();
  v1::Consistency* const consistency = job->mutable_algorithm()->mutable_consistency();
  v1::Contribution* const contribution = job->mutable_algorithm()->mutable_contribution();
  const bool follows = consistency->has_asynchronous() && contribution->has_elastic();
  // With fewer workers 0.9 / workers is larger.
  if (follows && !contribution->elastic().has_moving_rate() && workers > 3)
    contribution->mutable_elastic()->set_moving_rate(kLeastMovingRate);
  const v1::Optimizer& momentum_of = job->optimizer().has_momentum() ? job->optimizer() : preset.optimizer;
  const bool lags = follows && momentum_of.momentum() == 0;
  if (lags && !contribution->elastic().has_communication_period() && workers > kWorkersOfLongPeriod)
    contribution->mutable_elastic()->set_communication_period(kShortPeriod);
  const bool delays = preset.algorithm.compensation().has_delayed_nesterov() && workers > preset.few_workers;
  if (delays && contribution->has_pseudo_gradient() && !contribution->pseudo_gradient().has_local_steps())
    contribution->mutable_pseudo_gradient()->set_local_steps(kShortRound);
  if (sets_buffer || !consistency->has_n_softsync()) return;
  v1::NSoftsync* const softsync = consistency->mutable_n_softsync();
  if (softsync->amount_case() == v1::NSoftsync::kSize) {
    softsync->set_size(std::max(softsync->size(), workers / kMostUpdatesOld));
  } else if (softsync->amount_case() == v1::NSoftsync::kN) {
    softsync->set_n(std::max(softsync->n(), workers / kGradientsPerUpdate));
  }
}

// Names of algorithms elsewhere, in small letters without other characters.
struct Alias {
  const char* name;
  const char* preset;
};
constexpr Alias kAliases[] = {
    {"async", "downpour"},       {"asynchronous", "downpour"},
    {"asyncsgd", "downpour"},    {"asgd", "downpour"},
    {"hogwild", "downpour"},     {"synchronous", "sync"},
    {"syncsgd", "sync"},         {"ddp", "sync"},
    {"allreduce", "sync"},       {"bsp", "sync"},
    {"stalesynchronous", "ssp"}, {"fedavg", "local_sgd"},
};

}  // namespace

std::optional<double> StepLimit(const Preset& preset, const v1::Job& job) {
  if (preset.step_times_delay == 0 || job.workers() <= preset.few_workers) return std::nullopt;
  // With delayed momentum, the moves between two applications of it are one update.
  const double each = job.algorithm().compensation().has_delayed_nesterov()
                          ? job.workers()
                          : ContributionsPerUpdate(job.algorithm().consistency(), job.workers());
  const double limit = preset.step_times_delay * each / job.workers();
  const double own = preset.optimizer.learning_rate() / (1.0 - preset.optimizer.momentum());
  return limit < own ? std::make_optional(limit) : std::nullopt;
}

v1::Optimizer OptimizerFor(const Preset& preset, const v1::Job& job) {
  v1::Optimizer fitting = preset.optimizer;
  const v1::Optimizer& given = job.optimizer();
  const std::optional<double> limit = StepLimit(preset, job);
  if (!limit || given.has_learning_rate()) return fitting;
  const v1::Compensation& compensation = job.algorithm().compensation();
  if (compensation.has_delayed_nesterov()) {
    fitting.set_momentum(kAddedMomentum);
  } else if (!given.nesterov() && !KindOf(compensation).needs_momentum()) {
    fitting.set_momentum(0);
  }
  const double momentum = given.has_momentum() ? given.momentum() : fitting.momentum();
  fitting.set_learning_rate(static_cast<float>(*limit * (1 - momentum)));
  return fitting;
}

const std::vector<Preset>& Presets() {
  static const std::vector<Preset>* const kPresets = [] {
    auto* const presets = new std::vector<Preset>;
    for (const Text& text : kTexts) {
      presets->push_back({text.name, text.when, Parse<v1::Algorithm>(text.algorithm),
                          Parse<v1::Optimizer>(text.optimizer), text.step_times_delay, text.few_workers});
    }
    return presets;
  }();
  return *kPresets;
}

const Preset* FindPreset(const std::string& name) {
  const auto found = std::find_if(Presets().begin(), Presets().end(),
                                  [&](const Preset& preset) { return preset.name == name; });
  return found == Presets().end() ? nullptr : &*found;
}

std::vector<std::string> PresetNames() {
  std::vector<std::string> names;
  for (const Preset& preset : Presets()) names.push_back(preset.name);
  return names;
}

std::string ListPresets() { return absl::StrJoin(PresetNames(), ", "); }

std::string UnknownPreset(const std::string& name) {
  std::string letters = absl::AsciiStrToLower(name);
  letters.erase(
      std::remove_if(letters.begin(), letters.end(), [](char c) { return !absl::ascii_isalnum(c); }),
      letters.end());
  std::vector<std::string> names = PresetNames();
  for (const Alias& alias : kAliases) names.push_back(alias.name);
  std::string nearest = NearestName(letters, names);
  for (const Alias& alias : kAliases) {
    if (nearest == alias.name) nearest = alias.preset;
  }
  return absl::StrCat("no preset \"", name, "\"; ",
                      nearest.empty() ? "" : absl::StrCat("did you mean ", nearest, "? "), "there are ",
                      ListPresets());
}

void ApplyPreset(const Preset& preset, v1::Job* job) {
  const bool steps_itself = job->model().external().local_steps();
  v1::Optimizer local = job->algorithm().contribution().pseudo_gradient().local_optimizer();
  const bool sets_buffer =
      job->algorithm().consistency().n_softsync().amount_case() != v1::NSoftsync::AMOUNT_NOT_SET;
  FillAlgorithm(preset.algorithm, job->mutable_algorithm());
  FitToWorkers(preset, sets_buffer, job);
  const Preset& fitting = OptimizerPreset(preset, job->algorithm());
  const bool elastic = job->algorithm().contribution().has_elastic();
  FillOptimizer(elastic && steps_itself ? IdentityOptimizer() : OptimizerFor(fitting, *job), elastic,
                job->mutable_optimizer());
  if (!job->algorithm().contribution().has_pseudo_gradient()) return;
  // Like the servers' optimizer: another kind takes the schedule alone.
  FillOptimizer(steps_itself ? IdentityOptimizer()
                             : fitting.algorithm.contribution().pseudo_gradient().local_optimizer(),
                /*elastic=*/false, &local);
  *job->mutable_algorithm()->mutable_contribution()->mutable_pseudo_gradient()->mutable_local_optimizer() =
      local;
}

}  // namespace catchment
