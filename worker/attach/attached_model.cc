#include "worker/attach/attached_model.h"

#include <algorithm>
#include <cmath>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/base/clock.h"
#include "common/base/status_macros.h"
#include "common/base/text.h"
#include "common/job/program_metrics.h"
#include "common/trace/recorder.h"
#include "glog/logging.h"

namespace catchment {
namespace {

constexpr int64_t kPart =
    (1 << 20) / sizeof(float);  // values of a vector that are copied and announced at once
constexpr double kLookSeconds = 0.05;
constexpr size_t kRangesInPart = 4096;

std::vector<TensorSpec> TensorsOf(const v1::FromProgram::Hello& hello) {
  std::vector<TensorSpec> tensors;
  for (const v1::AttachedTensor& tensor : hello.tensors()) {
    tensors.push_back({tensor.name(), {tensor.shape().begin(), tensor.shape().end()}});
  }
  return tensors;
}

absl::Status CheckCount(const std::string& what, uint64_t programs, uint64_t jobs) {
  if (programs == 0 || programs == jobs) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("the program has ", programs, " ", what,
                                                 " samples and the job's data.", "external ", jobs,
                                                 "; they must be equal, so that every sample is assigned"));
}

absl::Status CheckMetric(const v1::FromProgram::Metric& metric) {
  const std::string& name = metric.name();
  if (name.empty() || name.size() > kMaxMetricNameBytes || OneLine(name) != name) {
    return absl::InvalidArgumentError(
        absl::StrCat("the program has a metric with the name \"", ShortLine(name, kMaxMetricNameBytes),
                     "\"; names have 1 to ", kMaxMetricNameBytes, " bytes and no control characters"));
  }
  if (metric.count() == 0 || !std::isfinite(metric.sum())) {
    return absl::InvalidArgumentError(absl::StrCat("the program's metric ", name, " has the sum ",
                                                   metric.sum(), " of ", metric.count(),
                                                   " values; metrics are finite numbers"));
  }
  return absl::OkStatus();
}

absl::Status Unexpected(const v1::FromProgram& message, const std::string& expected) {
  const std::string name = message.GetDescriptor()->FindFieldByNumber(message.kind_case())->name();
  return absl::InvalidArgumentError(
      absl::StrCat("the program sent ", name, " where ", expected, " was expected (proto/attach.proto)"));
}

}  // namespace

AttachedModel::AttachedModel(Options options, ProgramChannels channels, std::unique_ptr<ChildProgram> child)
    : options_(std::move(options)), channels_(std::move(channels)), child_(std::move(child)) {}

// -------------------------------------------------------------------------------------------- beginning, end

absl::Status AttachedModel::AwaitHello() {
  if (greeted_) return absl::OkStatus();
  v1::FromProgram::Hello hello;
  do {
    ASSIGN_OR_RETURN(const v1::FromProgram message, channels_.link->Receive());
    if (!message.has_hello()) return Unexpected(message, "hello");
    hello.set_more(false);
    hello.MergeFrom(message.hello());
  } while (hello.more());
  device_ = absl::StrCat("program: ", hello.device());
  local_steps_ = hello.local_steps();
  version_ = hello.version();
  keeps_weights_ = hello.keeps_weights() && version_ > 1;
  absl::Status status = CheckHello(hello);
  greeted_ = status.ok();
  if (greeted_) channels_.on_hello();
  return status;
}

absl::Status AttachedModel::CheckHello(const v1::FromProgram::Hello& hello) const {
  if (hello.version() < 1 || hello.version() > kVersion) {
    return absl::FailedPreconditionError(
        absl::StrCat("the program's catchment package speaks version ", hello.version(),
                     " of the protocol between program and worker, but this worker speaks versions 1 to ",
                     kVersion, "; install the package of the worker's build"));
  }
  const std::string difference = DescribeDifference(options_.tensors, TensorsOf(hello));
  if (!difference.empty()) {
    return absl::InvalidArgumentError(
        absl::StrCat("the program's model is not the job's (model.external): ", difference,
                     "; describe the model again, or start all workers with the same program"));
  }
  absl::Status status = CheckCount("training", hello.train_samples(), options_.train_samples);
  return status.ok() ? CheckCount("test", hello.test_samples(), options_.test_samples) : status;
}

void AttachedModel::KeepWeights(const std::vector<std::vector<Range>>& fragments,
                                const v1::Contribution& contribution) {
  if (!keeps_weights_ || !parts_.empty()) return;
  contribution_ = contribution;
  for (size_t f = 0; f < fragments.size(); ++f) {
    for (size_t r = 0; r < fragments[f].size(); ++r) {
      if (r % kRangesInPart == 0) parts_.emplace_back().mutable_part()->set_fragment(f);
      parts_.back().mutable_part()->add_bounds(fragments[f][r].begin);
      parts_.back().mutable_part()->add_bounds(fragments[f][r].end);
    }
  }
}

ModelMemory AttachedModel::memory() {
  if (!parts_.empty()) return {.kept = this};
  if (version_ < 2) return {};
  return {.weights = channels_.weights.floats(), .gradient = channels_.gradient.floats()};
}

absl::Status AttachedModel::Welcome(uint32_t worker) {
  if (welcomed_) {
    begin_.mutable_begin()->set_restarted(true);
    return absl::OkStatus();
  }
  v1::ToProgram message;
  message.mutable_welcome()->set_job(options_.job);
  message.mutable_welcome()->set_worker(worker);
  message.mutable_welcome()->set_batch_size(options_.batch_size);
  message.mutable_welcome()->set_seed(options_.seed);
  message.mutable_welcome()->set_evaluates(options_.evaluates);
  message.mutable_welcome()->set_traces(Trace() != nullptr);
  message.mutable_welcome()->set_keeps_weights(!parts_.empty());
  message.mutable_welcome()->set_blend(contribution_.pseudo_gradient().blend());
  message.mutable_welcome()->set_elastic(contribution_.has_elastic());
  welcomed_ = true;
  RETURN_IF_ERROR(channels_.link->Send(message));
  for (const v1::ToProgram& part : parts_) {
    RETURN_IF_ERROR(channels_.link->Send(part));
  }
  return absl::OkStatus();
}

void AttachedModel::DescribeStep(double progress, uint64_t epoch, double rate) {
  begin_.mutable_begin()->set_progress(progress);
  begin_.mutable_begin()->set_epoch(epoch);
  begin_.mutable_begin()->set_learning_rate(rate);
}

absl::Status AttachedModel::SetResult(absl::FunctionRef<absl::Status(absl::Span<float>)> read) {
  absl::Status status = read(channels_.weights.floats());
  has_result_ = status.ok();
  return status;
}

absl::Status AttachedModel::Finish(const absl::Status& why) {
  {
    MutexLock lock(&mu_);
    channels_.plan.End(begun_);
  }
  v1::ToProgram message;
  message.mutable_stop()->set_why(why.ok() ? "the job is over" : std::string(why.message()));
  message.mutable_stop()->set_failed(!why.ok());
  message.mutable_stop()->set_result(has_result_);
  // If the program is gone, the message is not needed.
  const bool sent = channels_.link->Send(message).ok();
  if (child_ == nullptr) return absl::OkStatus();
  if (why.ok()) {
    RETURN_IF_ERROR(AwaitEnd(sent ? kEndSeconds : kFailureSeconds));
  }
  const std::optional<std::string> end = child_->WaitFor(kFailureSeconds);
  LOG(INFO) << "the program (pid " << child_->pid() << ") "
            << (end.has_value() ? "ended: " + *end : "did not exit, and is killed");
  return absl::OkStatus();
}

absl::Status AttachedModel::AwaitEnd(double limit) {
  const SteadyClock clock;
  const double begin = clock.Now();
  std::optional<double> allowed;  // from when the worker was asked to stop
  std::optional<std::string> end;
  for (double waited = 0; !end.has_value() && waited < limit; waited = clock.Now() - begin) {
    if (const std::optional<double> stopped = channels_.stopped_for(); stopped && !allowed) {
      allowed = std::max(kStopSeconds, *stopped + kFailureSeconds);
      limit = std::min(limit, waited + *allowed - *stopped);
    }
    end = child_->WaitFor(std::min(kLookSeconds, limit - waited));
  }
  const std::string program = absl::StrCat("the program (pid ", child_->pid(), ")");
  if (!end.has_value()) {
    return absl::DeadlineExceededError(
        allowed ? absl::StrCat(program, " did not end within ", Short(std::round(*allowed)),
                               " s after its worker was asked to stop, and is killed")
                : absl::StrCat(program, " did not end within ", Short(limit),
                               " s of the job's end, and is killed"));
  }
  if (*end == ChildProgram::kInOrder) return absl::OkStatus();
  return absl::InternalError(absl::StrCat(program, " failed after its last step: ", *end,
                                          "; its output is above, in the worker's log"));
}

// ----------------------------------------------------------------------------------------------------- steps

absl::Status AttachedModel::Plan(absl::Span<const uint32_t> samples) {
  if (samples.empty()) return absl::OkStatus();
  MutexLock lock(&mu_);
  // The slot of the step that the program may still be reading is not to be written.
  if (channels_.plan.planned() - begun_ + 1 >= PlanBoard::kSlots) {
    return absl::ResourceExhaustedError(
        absl::StrCat("the program is ", PlanBoard::kSlots, " steps behind its plan"));
  }
  channels_.plan.Add(samples);
  return absl::OkStatus();
}

void AttachedModel::SkipPlanned() {
  MutexLock lock(&mu_);
  begun_ = channels_.plan.planned();
}

Score AttachedModel::Train(absl::Span<const float> weights, const Minibatch& batch,
                           absl::Span<float> gradient, PassObserver* observer) {
  Score score;
  if (status_.ok()) status_ = RunPass(weights, gradient, observer, &score);
  if (!status_.ok()) return Score();
  score.samples = batch.samples;
  score.loss_sum *= batch.samples;
  return score;
}

absl::Status AttachedModel::RunPass(absl::Span<const float> weights, absl::Span<float> gradient,
                                    PassObserver* observer, Score* score) {
  v1::ToProgram begin = begin_;
  has_result_ = false;
  {
    MutexLock lock(&mu_);
    CHECK_LT(begun_, channels_.plan.planned()) << "a step that was not planned";
    begin.mutable_begin()->set_step(++begun_);
  }
  begin_.mutable_begin()->set_restarted(false);
  begin_.mutable_begin()->clear_exchange();
  moved_ = true;
  RETURN_IF_ERROR(channels_.link->Send(begin));
  RETURN_IF_ERROR(SendWeights(weights, observer));
  const TraceScope scope("program");
  return AwaitGradient(begin.begin().step(), gradient, observer, score);
}

absl::Status AttachedModel::SendWeights(absl::Span<const float> weights, PassObserver* observer) {
  const auto size = static_cast<int64_t>(weights.size());
  const absl::Span<float> to = channels_.weights.floats();
  v1::ToProgram here;
  for (int64_t begin = 0; begin < size;) {
    const int64_t end = std::min(begin + kPart, size);
    observer->BeforeForward({begin, end});
    if (weights.data() != to.data()) std::copy(&weights[begin], &weights[begin] + end - begin, &to[begin]);
    here.mutable_here()->set_values(end);
    RETURN_IF_ERROR(channels_.link->Send(here));
    begin = end;
  }
  return absl::OkStatus();
}

absl::Status AttachedModel::AwaitGradient(uint64_t step, absl::Span<float> gradient, PassObserver* observer,
                                          Score* score) {
  uint64_t end = gradient.size();
  while (true) {
    ASSIGN_OR_RETURN(const v1::FromProgram message, channels_.link->Receive());
    if (message.has_final()) {
      RETURN_IF_ERROR(TakeGradient(message.final().begin(), &end, gradient, observer));
      continue;
    }
    if (message.has_left()) return NoteLeft(message.left());
    if (!message.has_done()) return Unexpected(message, "final or done");
    if (message.done().step() != step) {
      return absl::InvalidArgumentError(absl::StrCat("the program says that step ", message.done().step(),
                                                     " is done, and step ", step, " is under way"));
    }
    score->loss_sum = message.done().loss();
    score->correct = message.done().correct();
    RETURN_IF_ERROR(SetMetrics(message.done()));
    return TakeGradient(0, &end, gradient, observer);
  }
}

absl::Status AttachedModel::NoteLeft(const v1::FromProgram::Left& left) {
  left_ = true;
  const std::string& why = left.why();
  return absl::CancelledError(
      absl::StrCat("the program has left the job", why.empty() ? "" : ": ", OneLine(why)));
}

void AttachedModel::Restart() {
  v1::ToProgram::Exchange* const exchange = begin_.mutable_begin()->mutable_exchange();
  exchange->clear_arrived();
  exchange->set_all(true);
  if (std::exchange(moved_, false)) begin_.mutable_begin()->set_restarted(true);
}

void AttachedModel::Use(int fragment) { begin_.mutable_begin()->mutable_exchange()->add_arrived(fragment); }

absl::Status AttachedModel::Write(int fragment) {
  if (status_.ok()) status_ = AwaitSent(fragment);
  return status_;
}

absl::Status AttachedModel::AwaitSent(int fragment) {
  v1::ToProgram message;
  message.mutable_send()->set_fragment(fragment);
  *message.mutable_send()->mutable_exchange() = begin_.begin().exchange();
  begin_.mutable_begin()->clear_exchange();
  RETURN_IF_ERROR(channels_.link->Send(message));
  const TraceScope scope("exchange");
  ASSIGN_OR_RETURN(const v1::FromProgram answer, channels_.link->Receive());
  if (answer.has_left()) return NoteLeft(answer.left());
  return answer.has_sent() ? absl::OkStatus() : Unexpected(answer, "sent");
}

absl::Status AttachedModel::SetMetrics(const v1::FromProgram::Done& done) {
  if (done.metrics_size() > kMaxProgramMetrics) {
    return absl::InvalidArgumentError(absl::StrCat("the program has ", done.metrics_size(),
                                                   " metrics in one step; at most ", kMaxProgramMetrics,
                                                   " are accepted"));
  }
  for (const v1::FromProgram::Metric& metric : done.metrics()) {
    RETURN_IF_ERROR(CheckMetric(metric));
  }
  metrics_ = done.metrics();
  return absl::OkStatus();
}

absl::Status AttachedModel::TakeGradient(uint64_t begin, uint64_t* end, absl::Span<float> gradient,
                                         PassObserver* observer) {
  if (begin > *end) {
    return absl::InvalidArgumentError(absl::StrCat("the program says that the gradient is final from value ",
                                                   begin, " on, but reported it earlier from ", *end));
  }
  const absl::Span<const float> from = channels_.gradient.floats();
  while (*end > begin) {
    const uint64_t part = std::max(begin, *end - std::min<uint64_t>(*end, kPart));
    if (gradient.data() != from.data()) std::copy(&from[part], &from[part] + *end - part, &gradient[part]);
    observer->AfterBackward({static_cast<int64_t>(part), static_cast<int64_t>(*end)});
    *end = part;
  }
  return absl::OkStatus();
}

absl::StatusOr<Score> AttachedModel::ScoreTestSet(absl::Span<const float> weights) {
  std::copy(weights.begin(), weights.end(), channels_.weights.floats().begin());
  v1::ToProgram evaluate;
  evaluate.mutable_evaluate();
  RETURN_IF_ERROR(channels_.link->Send(evaluate));
  statistics_.clear();
  ASSIGN_OR_RETURN(v1::FromProgram message, channels_.link->Receive());
  while (message.has_statistic()) {
    AddStatistic(message.statistic());
    ASSIGN_OR_RETURN(message, channels_.link->Receive());
  }
  if (!message.has_scored()) return Unexpected(message, "scored");
  const v1::FromProgram::Scored& scored = message.scored();
  Score score;
  score.samples = static_cast<int64_t>(scored.samples());
  score.loss_sum = scored.loss_sum();
  score.correct = static_cast<int64_t>(scored.correct());
  return score;
}

void AttachedModel::AddStatistic(const v1::FromProgram::Statistic& part) {
  if (statistics_.empty() || statistics_.back().name() != part.name()) {
    statistics_.push_back(part);
  } else {
    statistics_.back().mutable_values()->MergeFrom(part.values());
  }
}

std::vector<Trainable::Statistic> AttachedModel::statistics() const {
  std::vector<Statistic> all;
  for (const v1::FromProgram::Statistic& one : statistics_) {
    all.push_back({one.name(), absl::MakeConstSpan(one.values().data(), one.values_size())});
  }
  return all;
}

namespace {

std::vector<uint32_t> SamplesOf(const BatchPlan& plan, EpochOrder* order) {
  std::vector<uint32_t> samples;
  for (const Span& span : plan.spans) {
    if (span.begin > span.end || span.end > static_cast<uint64_t>(order->num_samples())) return {};
    const std::vector<uint32_t>& epoch = order->order(span.epoch);
    samples.insert(samples.end(), epoch.begin() + static_cast<int64_t>(span.begin),
                   epoch.begin() + static_cast<int64_t>(span.end));
  }
  return samples;
}

}  // namespace

NextPlan AnnouncePlans(NextPlan next, EpochOrder order, AttachedModel* model) {
  return [next = std::move(next), order = std::move(order),
          model]() mutable -> absl::StatusOr<std::optional<BatchPlan>> {
    absl::StatusOr<std::optional<BatchPlan>> plan = next();
    if (!plan.ok() || !plan->has_value()) return plan;
    RETURN_IF_ERROR(model->Plan(SamplesOf(**plan, &order)));
    return plan;
  };
}

}  // namespace catchment
