#include "cli/job/job_facts.h"

#include <algorithm>
#include <filesystem>
#include <system_error>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/machine.h"
#include "common/base/rounding.h"
#include "common/base/status_macros.h"
#include "common/base/text.h"
#include "common/codec/codec.h"
#include "common/job/algorithm_facts.h"
#include "common/job/compensation_kinds.h"
#include "common/job/contribution_kinds.h"
#include "common/job/data_sources.h"
#include "common/job/job_layout.h"

namespace catchment {
namespace {

constexpr int64_t kFloat = sizeof(float);

int64_t PayloadBytes(const ParameterLayout& layout, const Codec& codec) {
  int64_t bytes = 0;
  for (int s = 0; s < layout.num_shards(); ++s) {
    for (int b = 0; b < layout.num_blocks(s); ++b) bytes += codec.PayloadBytes(layout.block(s, b).size());
  }
  return bytes;
}

}  // namespace

absl::StatusOr<JobFacts> JobFacts::Create(const v1::Job& job, int servers) {
  const DataShape shape = ShapeOf(job.data());
  ASSIGN_OR_RETURN(std::vector<LayerShape> layers, InferShapes(job.model(), shape.input, shape.target));
  ASSIGN_OR_RETURN(ParameterLayout layout, LayoutOf(job, ListTensors(layers), servers));
  return JobFacts(job, std::move(layers), std::move(layout));
}

int64_t JobFacts::period() const { return PaceOf(job_).steps_per_version; }
int64_t JobFacts::contributions() const { return PaceOf(job_).contributions; }
int64_t JobFacts::contributions_make() const { return PaceOf(job_).updates; }
int64_t JobFacts::contributions_waiting() const {
  const v1::Consistency& consistency = job_.algorithm().consistency();
  // Nobody waits in groups of one.
  const bool wait =
      NumGroups(consistency) > 0 ? contributions() > NumGroups(consistency) : IsBuffered(consistency);
  return wait ? contributions() : consistency.asynchronous().emulated_delay();
}

int64_t JobFacts::contributions_held() const {
  const bool in_any_order = AddsUpContributions(job_) && !job_.deterministic();
  const int64_t waiting = contributions_waiting();
  return in_any_order ? std::min<int64_t>(waiting, NumGroups(job_.algorithm().consistency())) : waiting;
}
int64_t JobFacts::answers_held() const {
  const int64_t groups = NumGroups(job_.algorithm().consistency());
  if (groups == 0 || contributions_waiting() == 0) return 0;
  return elastic() ? contributions() + groups : 1;
}

int64_t JobFacts::train_samples() const { return ShapeOf(job_.data()).train_samples; }
int64_t JobFacts::samples_per_epoch() const {
  return static_cast<int64_t>(SamplesPerEpoch(job_, train_samples()));
}
int64_t JobFacts::test_samples() const { return ShapeOf(job_.data()).test_samples; }

int64_t JobFacts::total_samples() const {
  switch (job_.budget_case()) {
    case v1::Job::kSamples:
      return CeilDivide(job_.samples(), job_.batch_size()) * job_.batch_size();
    case v1::Job::kUpdates:
      return CeilDivide(job_.updates() * contributions(), contributions_make()) * period() *
             job_.batch_size();
    default:
      return job_.epochs() * samples_per_epoch();
  }
}

int64_t JobFacts::total_steps() const {
  const int64_t samples = total_samples();
  if (!knows_samples() || job_.last_minibatch() != v1::Job::MERGE)
    return CeilDivide(samples, job_.batch_size());
  const int64_t steps = StepsPerEpoch(job_, train_samples()) * (synchronous() ? workers() : 1);
  return samples / samples_per_epoch() * steps +
         std::min<int64_t>(steps, CeilDivide(samples % samples_per_epoch(), job_.batch_size()));
}
int64_t JobFacts::steps_per_worker() const { return CeilDivide(total_steps(), workers()); }
int64_t JobFacts::updates() const {
  if (synchronous()) return CeilDivide(steps_per_worker(), period());
  return CeilDivide(CeilDivide(total_steps(), period()) * contributions_make(), contributions());
}
double JobFacts::epochs() const { return 1.0 * total_samples() / samples_per_epoch(); }

WireBytes JobFacts::wire() const {
  const int64_t sent = PayloadBytes(layout_, Codec::ForPush(job_.compression()));
  const int64_t received = PayloadBytes(layout_, Codec::ForPull(job_.compression()));
  const v1::Contribution& contribution = job_.algorithm().contribution();
  return {sent, received, period(),
          contribution.has_gradient() ? contribution.gradient().fetch_period() : period()};
}

ServerBytes JobFacts::server(int index) const {
  ServerBytes bytes;
  bytes.parameters = layout_.shard(index).size();
  bytes.blocks = layout_.num_blocks(index);
  bytes.weights = bytes.parameters * kFloat;
  bytes.optimizer_state = elastic() ? 0 : bytes.weights * OptimizerVectors(job_.optimizer());
  const v1::Compensation& compensation = job_.algorithm().compensation();
  const auto vectors = KindOf(compensation).vectors;
  const int64_t averages = vectors == nullptr ? 0 : bytes.weights * vectors(compensation);
  bytes.compensation = averages + (CorrectsGradients(compensation) ? bytes.weights * workers() : 0);
  bytes.waiting = bytes.weights * (contributions_held() + answers_held());
  bytes.snapshot = bytes.weights + bytes.optimizer_state + averages;
  if (job_.faults().standby() > 0 && servers() > 1) {
    const int copied = (index + servers() - 1) % servers();
    bytes.standby = bytes.snapshot / bytes.parameters * layout_.shard(copied).size();
  }
  return bytes;
}

WorkerBytes JobFacts::worker() const {
  const int64_t all = layout_.size() * kFloat;
  WorkerBytes bytes;
  const int64_t batch = job_.batch_size(), largest = LargestMinibatch(job_);
  // A network has kernels, and so memory, for both.
  const bool has_both = largest > batch && !job_.model().has_external();
  bytes.model = EstimateMemoryBytes(layers_, has_both ? batch + largest : largest);
  bytes.algorithm = all * KindOf(job_.algorithm().contribution()).worker_vectors(job_);
  if (HasErrorFeedback(job_.compression().push())) bytes.algorithm += all;
  return bytes;
}

int64_t JobFacts::memory() const {
  int64_t bytes = workers() * worker().total();
  for (int s = 0; s < servers(); ++s) bytes += server(s).total();
  return bytes;
}

int64_t JobFacts::disk() const {
  int64_t checkpoint = 0;
  for (int s = 0; s < servers(); ++s) checkpoint += server(s).snapshot;
  // One is written before the oldest is deleted.
  return checkpoint * (job_.checkpoint().keep() + int64_t{1}) + layout_.size() * kFloat;
}

std::vector<std::string> DescribeShortages(const JobFacts& facts, const std::string& directory) {
  std::vector<std::string> sentences;
  const auto describe = [&](int64_t needed, int64_t free, const std::string& of, const std::string& remedy) {
    if (free == 0 || needed <= free) return;
    sentences.push_back(absl::StrCat("With all of its processes on this machine the job needs ",
                                     Bytes(needed), of, "; ", Bytes(free), " are free. ", remedy));
  };
  describe(facts.memory(), FreeMemory(), " of memory, in addition to its data",
           "Use several machines, or fewer workers.");
  if (directory.empty()) return sentences;
  std::error_code error;
  std::filesystem::path existing = std::filesystem::absolute(directory, error);
  while (!std::filesystem::exists(existing, error) && existing.has_relative_path())
    existing = existing.parent_path();
  const std::filesystem::space_info space = std::filesystem::space(existing, error);
  describe(facts.disk(), error ? 0 : static_cast<int64_t>(space.available),
           absl::StrCat(" of disk for ", Plural(facts.job().checkpoint().keep() + 1, "checkpoint"),
                        " and the final weights in ", directory),
           "Choose another --out, or a lower checkpoint.keep.");
  return sentences;
}

}  // namespace catchment
