#include "server/control/job_members.h"

#include <algorithm>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "common/base/not_ready.h"
#include "common/base/status_macros.h"
#include "common/base/text.h"
#include "common/job/algorithm_facts.h"
#include "common/job/data_sources.h"

namespace catchment {
namespace {

// The limit for calls of one kind by all workers together.
constexpr double kMaxCallsPerSecond = 200;
// A worker that has lost its connection to a server is lost after this number of missed heartbeats.
constexpr double kMissedHeartbeats = 3;

std::vector<TensorSpec> TensorsOf(const v1::RegisterRequest& request) {
  std::vector<TensorSpec> tensors;
  for (const v1::TensorInfo& tensor : request.tensors()) {
    tensors.push_back({tensor.name(), {tensor.shape().begin(), tensor.shape().end()}});
  }
  return tensors;
}

// Returns the number of training samples that the job's file states; 0: a worker counts them.
uint64_t StatedTrainSamples(const v1::Job& job) {
  if (job.data().source_case() == v1::Data::SOURCE_NOT_SET) return 0;
  const DataShape data = ShapeOf(job.data());
  return data.counted ? 0 : static_cast<uint64_t>(data.train_samples);
}

// Returns "(host:pid)", which tells workers of one machine apart.
std::string ProcessOf(const v1::RegisterRequest& request) {
  return absl::StrCat("(", request.host(), ":", request.pid(), ")");
}

}  // namespace

JobMembers::JobMembers(const v1::Job& job, const std::vector<TensorSpec>& tensors,
                       const v1::MasterState& from, EventLog* events, const Clock* clock)
    : job_(job),
      tensors_(tensors),
      events_(events),
      clock_(clock),
      membership_(job.faults().heartbeat_timeout_seconds(), from.next_incarnation(), events,
                  NumGroups(job.algorithm().consistency())),
      progress_(job, membership_, events, clock),
      train_samples_(from.train_samples()),
      class_names_(from.class_names()) {}

absl::StatusOr<uint32_t> JobMembers::IndexOf(uint64_t incarnation) const {
  for (const Member* worker : membership_.workers()) {
    if (worker->incarnation == incarnation) return worker->index;
  }
  return absl::NotFoundError(absl::StrCat("no worker of the job has incarnation ", incarnation));
}

absl::Status JobMembers::Check(const v1::RegisterRequest& request, const std::string& origin) const {
  RETURN_IF_ERROR(CheckFits(request));
  const double barred = progress_.BarredFor(origin);
  if (request.role() == v1::WORKER && barred > 0 && num_workers() > 0) {
    return NotReady(
        absl::StrCat("the worker ", ProcessOf(request), " may register in ", std::ceil(barred),
                     " s: workers from ", origin,
                     " made no progress, or vanished, more than once and held up the others; if "
                     "their steps take so long, set higher faults.hold_up_seconds and faults.stuck_seconds"));
  }
  if (membership_.HasRoom(request.role())) return absl::OkStatus();
  return absl::ResourceExhaustedError(
      absl::StrCat("the job has as many members as it may have: ", kMaxWorkers, " workers, or ",
                   Membership::kMaxEvaluators, " evaluators"));
}

absl::Status JobMembers::CheckFits(const v1::RegisterRequest& request) const {
  const std::string difference = DescribeDifference(tensors_, TensorsOf(request));
  if (!difference.empty()) {
    return absl::FailedPreconditionError(absl::StrCat(
        "the worker ", ProcessOf(request), " builds a different model than the servers: ", difference,
        "; start workers and servers of the same version of Catchment"));
  }
  const auto wrong = [&request](const auto&... what) {
    return absl::FailedPreconditionError(absl::StrCat("the worker ", ProcessOf(request), " has ", what...));
  };
  if (request.class_names() != 0 && !job_.data().has_image_folder())
    return wrong("names of classes, and the job's data have none; see the job's data");
  if (request.role() != v1::WORKER) return absl::OkStatus();
  const uint64_t samples = request.train_samples();
  if (samples == 0) return wrong("no training samples; see the job's data");
  const uint64_t stated = StatedTrainSamples(job_);
  if (stated == 0 || samples == stated) return absl::OkStatus();
  return wrong(samples, " training samples, and the job's data have ", stated,
               "; start workers and servers of the same version of Catchment");
}

std::string JobMembers::DescribeOtherData(const v1::RegisterRequest& request, bool data_is_open) const {
  const std::vector<const Member*> workers = membership_.workers();
  if (data_is_open && workers.empty()) return "";
  const std::string first = workers.empty() ? "" : workers.front()->name();
  if (class_names_ != request.class_names()) {
    return absl::StrCat(" has classes of other names than ",
                        first.empty() ? "the job's other members" : first,
                        "; give all workers, the evaluator and a resumed job directories with the "
                        "same names in data.image_folder");
  }
  const uint64_t samples = request.train_samples();
  if (request.role() != v1::WORKER || train_samples_ == 0 || samples == train_samples_) return "";
  return absl::StrCat(" has ", samples, " training samples, and the job has ", train_samples_,
                      first.empty() ? "" : absl::StrCat(", as ", first, " has"),
                      "; give all workers, and a resumed job, the same data");
}

absl::StatusOr<std::string> JobMembers::CheckAgrees(const v1::RegisterRequest& request,
                                                    const std::string& origin, bool data_is_open) {
  const std::string difference = DescribeOtherData(request, data_is_open);
  const std::string newcomer =
      absl::StrCat("the ", request.role() == v1::EVALUATOR ? "evaluator" : "worker", " ", ProcessOf(request));
  const std::string process = absl::StrCat(origin, ProcessOf(request));
  if (difference.empty()) {
    waiting_.erase(process);
    return "";
  }
  if (!data_is_open) return absl::FailedPreconditionError(absl::StrCat(newcomer, difference));
  if (request.role() == v1::WORKER && waiting_.size() < kMaxWorkers) {
    const Statement stated = {request.train_samples(), request.class_names()};
    const bool is_new = waiting_.insert_or_assign(process, stated).second;
    if (is_new) AddEvent(absl::StrCat(newcomer, difference, "; it waits"));
    const int alike = static_cast<int>(std::count_if(
        waiting_.begin(), waiting_.end(), [&stated](const auto& other) { return other.second == stated; }));
    if (alike > membership_.num_workers() && 2 * alike > static_cast<int>(job_.workers())) {
      waiting_.clear();
      return absl::StrCat("has other data than ", alike, " of the job's ", job_.workers(),
                          " workers, which wait");
    }
  }
  return NotReady(absl::StrCat(newcomer, " waits, because it", difference));
}

Member* JobMembers::Register(const v1::RegisterRequest& request, const std::string& address,
                             bool data_is_open, bool joined_late) {
  if (request.role() == v1::WORKER) {
    if (data_is_open && num_workers() == 0) SetClassNames(request.class_names());
    if (data_checksum_ == 0) data_checksum_ = request.data_checksum();
    train_samples_ = request.train_samples();
  }
  Member* const member = membership_.Register(request, clock_->Now(), address);
  member->joined_late = joined_late;
  expected_evaluators_ = std::max(expected_evaluators_, membership_.num_evaluators());
  return member;
}

void JobMembers::ExtendDeadlines(double seconds) {
  membership_.ExtendDeadlines(seconds, clock_->Now());
  progress_.Extend(seconds);
}

std::optional<JobMembers::Left> JobMembers::Leave(const v1::LeaveRequest& request) {
  const absl::StatusOr<Member*> found = Renew(request.role(), request.worker(), request.incarnation());
  if (!found.ok()) return std::nullopt;
  if (absl::Status status = progress_.Observe(request.progress(), *found); !status.ok())
    AddEvent(status.message());
  Left left = {**found, !request.reason().empty() ? OneLine(request.reason())
                        : request.failed()        ? "no reason given"
                                                  : "it is done"};
  AddEvent(absl::StrCat(left.member.name(), request.failed() ? " failed: " : " left: ", left.reason),
           request.failed() ? left.member.worker() : std::nullopt);
  Remove(left.member);
  if (request.role() == v1::EVALUATOR) expected_evaluators_ = membership_.num_evaluators();
  return left;
}

void JobMembers::Remove(const Member& member) {
  membership_.Remove(member.role, member.index);
  progress_.Forget(member.incarnation);
}

std::optional<Member> JobMembers::FindOverstated(const v1::PushMark& mark, uint32_t server) {
  const Member* const worker = membership_.Find(v1::WORKER, mark.worker(), mark.incarnation());
  const uint64_t stated = std::max(mark.answered_steps(), mark.begun_steps());
  if (worker == nullptr || stated <= worker->granted_steps) return std::nullopt;
  AddEvent(
      absl::StrCat(worker->name(), " stated ", stated, " steps to server ", server, ", but it was assigned ",
                   worker->granted_steps, ": removed; its samples are assigned to others"),
      worker->worker());
  progress_.Bar(*worker, membership_.heartbeat_timeout_seconds(), /*awaited=*/false);
  return *worker;
}

void JobMembers::FreeIndices(const std::vector<uint32_t>& workers) {
  for (const uint32_t worker : workers) membership_.FreeIndex(worker);
}

double JobMembers::Spread(double seconds) const {
  return std::max(seconds, (num_workers() + num_staying()) / kMaxCallsPerSecond);
}

double JobMembers::LongestLeaseWait() const {
  return std::min(Spread(kLeaseWaitSeconds), membership_.heartbeat_timeout_seconds() / 3);
}

bool JobMembers::StaysUnaware(uint64_t incarnation) const {
  const auto staying = staying_.find(incarnation);
  return staying != staying_.end() && !staying->second;
}

void JobMembers::SetClassNames(uint64_t names) {
  class_names_ = names;
  std::vector<Member> others;
  for (const Member* evaluator : membership_.evaluators()) {
    if (evaluator->class_names != names) others.push_back(*evaluator);
  }
  for (const Member& evaluator : others) {
    AddEvent(absl::StrCat(evaluator.name(), " has classes of other names than the workers: removed"));
    Remove(evaluator);
  }
}

void JobMembers::TakeDisconnected(const v1::ShardReport& report) {
  for (const v1::PushMark& mark : report.marks()) {
    if (!mark.disconnected()) continue;
    membership_.SetDisconnected(mark.worker(), mark.incarnation(), report.shard(),
                                kMissedHeartbeats * Spread(kHeartbeatSeconds), clock_->Now());
  }
}

void JobMembers::Fill(v1::JobStatus* status) const {
  status->set_train_samples(train_samples_);
  status->set_data_checksum(data_checksum_);
  progress_.Fill(status);
  status->set_evaluators(membership_.num_evaluators());
  for (const Member* worker : membership_.workers()) {
    v1::WorkerStatus* const one = status->add_workers();
    one->set_worker(worker->index);
    one->set_incarnation(worker->incarnation);
    one->set_host(worker->host);
    one->set_pid(worker->pid);
    one->set_device(worker->device);
    one->set_seconds_since_heartbeat(clock_->Now() - worker->heard_at);
    one->set_seconds_without_progress(progress_.SecondsWithout(*worker));
    *one->mutable_progress() = worker->progress;
  }
}

void JobMembers::Fill(v1::MasterState* state) const {
  state->set_train_samples(train_samples_);  // of which an epoch may have left some out
  state->set_class_names(class_names_);
  state->set_next_incarnation(next_incarnation());
}

void JobMembers::Save(v1::MasterImage* image) const {
  *image->mutable_membership() = membership_.Save();
  image->set_train_samples(train_samples_);
  image->set_class_names(class_names_);
  progress_.Save(image);
  for (const auto& [incarnation, knows] : staying_) image->add_staying(incarnation);
}

void JobMembers::Restore(const v1::MasterImage& image, uint64_t next_incarnation) {
  v1::MembershipImage membership = image.membership();
  membership.set_next_incarnation(std::max(membership.next_incarnation(), next_incarnation));
  membership_.Restore(membership, clock_->Now());
  progress_.Restore(image);
  train_samples_ = image.train_samples();
  class_names_ = image.class_names();
  expected_evaluators_ = membership_.num_evaluators();
  for (const uint64_t incarnation : image.staying()) staying_[incarnation] = false;
}

}  // namespace catchment
