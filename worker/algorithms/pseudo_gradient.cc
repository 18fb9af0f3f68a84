#include "worker/algorithms/pseudo_gradient.h"

#include <algorithm>
#include <iterator>
#include <memory_resource>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/rounding.h"
#include "common/base/status_macros.h"
#include "common/job/learning_rate.h"
#include "glog/logging.h"
#include "worker/algorithms/gradient_transform.h"

namespace catchment {
namespace {

void Blend(float blend, Range range, absl::Span<const float> y, absl::Span<float> x) {
  if (blend == 0) {
    std::copy(y.begin() + range.begin, y.begin() + range.end, x.begin() + range.begin);
    return;
  }
  for (int64_t i = range.begin; i < range.end; ++i) x[i] = blend * x[i] + (1 - blend) * y[i];
}

}  // namespace

// x, and what moves it.
class PseudoGradient::OwnWeights final : public LocalWeights {
 public:
  OwnWeights(const v1::PseudoGradient& config, std::unique_ptr<Optimizer> optimizer, int64_t num_parameters,
             std::pmr::memory_resource* memory, const std::vector<Fragment>& fragments)
      : config_(config),
        fragments_(fragments),
        optimizer_(std::move(optimizer)),
        x_(num_parameters),
        pulled_(num_parameters),
        g_(num_parameters, memory),
        d_(config.overlap_steps() > 0 ? num_parameters : 0, memory) {
    states_.reserve(optimizer_->num_states());
    // Each is made in its place: the memory of a vector that it was copied from would stay with the process.
    while (std::ssize(states_) < optimizer_->num_states()) states_.emplace_back(num_parameters);
  }

  absl::Span<float> received() override { return absl::MakeSpan(pulled_); }
  absl::Span<float> sent() override { return absl::MakeSpan(d_.empty() ? g_ : d_); }
  void Restart() override {
    for (std::vector<float>& state : states_) state.assign(state.size(), 0.0f);
    moves_ = 0;
    x_ = pulled_;
  }
  void Use(int fragment) override {
    for (const Range& range : fragments_[fragment].ranges)
      Blend(config_.blend(), range, pulled_, absl::MakeSpan(x_));
  }
  absl::Status Write(int fragment) override {
    const absl::Span<float> d = sent();
    for (const Range& range : fragments_[fragment].ranges) {
      for (int64_t i = range.begin; i < range.end; ++i) d[i] = pulled_[i] - x_[i];
    }
    return absl::OkStatus();
  }

  void Move(const Step& step, Gradient gradient) {
    NoPassObserver ignore_progress;
    gradient(x_, absl::MakeSpan(g_), &ignore_progress);
    const v1::Optimizer& local = config_.local_optimizer();
    if (local.has_clip_norm()) ClipNorm(local.clip_norm(), absl::MakeSpan(g_));
    Optimizer::Part all{static_cast<int64_t>(x_.size()), g_.data(), x_.data()};
    for (size_t s = 0; s < states_.size(); ++s) all.states[s] = states_[s].data();
    optimizer_->Apply({static_cast<float>(LearningRate(local, step.progress)), ++moves_,
                       CycledMomentum(local, step.progress)},
                      all);
  }
  void ListState(bool unfinished, WorkerState* state) {
    const std::vector<std::string> names = optimizer_->state_names();
    for (size_t s = 0; s < states_.size(); ++s)
      state->vectors.push_back({"optimizer." + names[s], absl::MakeSpan(states_[s])});
    if (!states_.empty()) state->numbers.push_back({"optimizer_steps", &moves_});
    if (!unfinished) return;
    state->vectors.push_back({"x", absl::MakeSpan(x_)});
    state->vectors.push_back({"pulled", absl::MakeSpan(pulled_)});
  }

 private:
  const v1::PseudoGradient& config_;
  const std::vector<Fragment>& fragments_;
  const std::unique_ptr<Optimizer> optimizer_;
  std::vector<float> x_;       // local weights
  std::vector<float> pulled_;  // y
  std::pmr::vector<float> g_;  // gradient; without overlap, D at the end of a round
  std::pmr::vector<float> d_;  // with overlap: D
  std::vector<std::vector<float>> states_;
  uint64_t moves_ = 0;  // updates by the local optimizer
};

PseudoGradient::PseudoGradient(const v1::PseudoGradient& config, int64_t num_parameters,
                               Parameters* parameters, const Options& options,
                               std::unique_ptr<Optimizer> local_optimizer, LocalWeights* kept)
    : config_(config),
      options_(options),
      parameters_(*parameters),
      fragments_(parameters->num_fragments()),
      own_(kept != nullptr ? nullptr
                           : std::make_unique<OwnWeights>(config_, std::move(local_optimizer), num_parameters,
                                                          parameters->memory(), fragments_)),
      weights_(kept != nullptr ? *kept : *own_) {
  for (size_t f = 0; f < fragments_.size(); ++f) {
    fragments_[f].ranges = fragments_.size() == 1 ? std::vector<Range>{{0, num_parameters}}
                                                  : parameters->fragment(static_cast<int>(f));
  }
}

PseudoGradient::~PseudoGradient() = default;

absl::Status PseudoGradient::Start(uint64_t version) {
  absl::Status status = parameters_.Pull(version, weights_.received());
  weights_.Restart();
  return status;
}

absl::Status PseudoGradient::Run(const Step& step, Gradient gradient) {
  if (step.settle) {
    RETURN_IF_ERROR(Settle());
  }
  NoPassObserver ignore_progress;
  if (step.samples > 0 && own_ != nullptr) own_->Move(step, gradient);
  if (step.samples > 0 && own_ == nullptr) gradient({}, {}, &ignore_progress);
  ++total_steps_;
  for (Fragment& fragment : fragments_) {
    fragment.samples += step.samples;
    ++fragment.steps;
  }
  // Answers are used first: a push that starts from older weights than it could would be staler.
  RETURN_IF_ERROR(UseAnswers());
  for (int f = 0; f < static_cast<int>(fragments_.size()); ++f) {
    if (!IsDue(f, step)) continue;
    RETURN_IF_ERROR(Push(f));
    fragments_[f].pushed = !step.left.has_value() || *step.left > 0;
  }
  return config_.overlap_steps() > 0 ? absl::OkStatus() : UseAnswers();
}

bool PseudoGradient::IsDue(int fragment, const Step& step) const {
  const uint64_t round = step.local_steps > 0 ? step.local_steps : config_.local_steps();
  if (step.left && *step.left < round) return *step.left == 0;
  const uint64_t first = CeilDivide((fragment + 1) * round, fragments_.size());
  const Fragment& own = fragments_[fragment];
  return own.steps >= (own.pushed ? round : first) || (!own.in_flight && parameters_.Called(fragment));
}

absl::Status PseudoGradient::UseAnswers() {
  for (int f = 0; f < static_cast<int>(fragments_.size()); ++f) {
    Fragment& fragment = fragments_[f];
    if (!fragment.in_flight) continue;
    const bool due =
        config_.overlap_steps() == 0 ||
        (options_.synchronous ? --fragment.uses_in == 0 : fragment.answered > 0 || parameters_.IsDone(f));
    if (!due) continue;
    RETURN_IF_ERROR(Use(f));
  }
  return absl::OkStatus();
}

absl::Status PseudoGradient::Push(int f) {
  Fragment& fragment = fragments_[f];
  if (fragment.in_flight) {
    RETURN_IF_ERROR(Use(f));
  }
  RETURN_IF_ERROR(weights_.Write(f));
  if (options_.clip_norm) ClipNorm(*options_.clip_norm, fragment.ranges, weights_.sent());
  parameters_.Start({.kind = Parameters::Operation::kPushPull,
                     .samples = static_cast<uint32_t>(fragment.samples),
                     .input = weights_.sent(),
                     .output = weights_.received(),
                     .steps = total_steps_,
                     .fragment = f});
  for (const Range& range : fragment.ranges) parameters_.Ready(range);
  fragment.steps = fragment.samples = 0;
  fragment.in_flight = 1;
  fragment.answered = 0;
  fragment.uses_in = config_.overlap_steps();
  return absl::OkStatus();
}

absl::Status PseudoGradient::Await(int f) {
  Fragment& fragment = fragments_[f];
  if (!fragment.in_flight || fragment.answered) return absl::OkStatus();
  ASSIGN_OR_RETURN(const Parameters::Outcome outcome, parameters_.Finish(f));
  Count(outcome);
  fragment.answered = 1;
  fragment.non_finite = outcome.non_finite;
  return absl::OkStatus();
}

absl::Status PseudoGradient::Use(int f) {
  RETURN_IF_ERROR(Await(f));
  Fragment& fragment = fragments_[f];
  fragment.in_flight = 0;
  if (fragment.non_finite) return Restart();
  weights_.Use(f);
  return absl::OkStatus();
}

// The gradients of a step are of all fragments, so that one with a NaN spoils the others.
absl::Status PseudoGradient::Restart() {
  RETURN_IF_ERROR(Settle());
  for (Fragment& fragment : fragments_) fragment.in_flight = 0;
  if (fragments_.size() > 1) {
    RETURN_IF_ERROR(parameters_.Pull(0, weights_.received()));
  }
  weights_.Restart();
  return absl::OkStatus();
}

absl::Status PseudoGradient::Settle() {
  for (int f = 0; f < static_cast<int>(fragments_.size()); ++f) {
    RETURN_IF_ERROR(Await(f));
  }
  return absl::OkStatus();
}

absl::Status PseudoGradient::Finish() {
  for (int f = 0; f < static_cast<int>(fragments_.size()); ++f) {
    if (fragments_[f].steps == 0) continue;
    RETURN_IF_ERROR(Push(f));
    fragments_[f].pushed = 0;
  }
  for (int f = 0; f < static_cast<int>(fragments_.size()); ++f) {
    if (!fragments_[f].in_flight) continue;
    RETURN_IF_ERROR(Use(f));
  }
  return absl::OkStatus();
}

// In a job that is not synchronous, the steps since the last push are repeated after a resume, from the
// center's weights.
void PseudoGradient::ListState(bool at_version, WorkerState* state) {
  // Otherwise all steps of a round are in the version.
  const bool unfinished = at_version && (fragments_.size() > 1 || config_.overlap_steps() > 0);
  CHECK(own_ != nullptr) << "the state of a program's weights";
  own_->ListState(unfinished, state);
  if (!unfinished) return;
  for (size_t f = 0; f < fragments_.size(); ++f) {
    Fragment& fragment = fragments_[f];
    const std::string name = absl::StrCat("fragment.", f, ".");
    state->numbers.push_back({name + "steps", &fragment.steps});
    state->numbers.push_back({name + "samples", &fragment.samples});
    state->numbers.push_back({name + "pushed", &fragment.pushed});
    state->numbers.push_back({name + "in_flight", &fragment.in_flight});
    state->numbers.push_back({name + "answered", &fragment.answered});
    state->numbers.push_back({name + "uses_in", &fragment.uses_in});
  }
}

}  // namespace catchment
