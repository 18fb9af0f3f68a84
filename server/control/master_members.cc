// The part of the master that admits members: registrations, heartbeats and departures.
#include <algorithm>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "common/base/not_ready.h"
#include "common/base/status_macros.h"
#include "common/base/text.h"
#include "common/job/data_sources.h"
#include "server/control/master.h"

namespace catchment {
namespace {

// The limit for calls of one kind by all workers together.
constexpr double kMaxCallsPerSecond = 200;
// The shortest interval between two heartbeats of a worker.
constexpr double kHeartbeatSeconds = 0.5;
// The interval at which a worker that has left asks whether the last checkpoint is recorded.
constexpr double kStaySeconds = 0.1;
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

absl::StatusOr<v1::RegisterReply> Master::Register(const v1::RegisterRequest& request,
                                                   const std::string& address) {
  if (phase() == v1::JobStatus::FAILED) {
    return absl::FailedPreconditionError(absl::StrCat("the job has failed: ", state_machine_.reason()));
  }
  RETURN_IF_ERROR(CheckFits(request));
  const std::string& origin = address.empty() ? request.host() : address;
  RETURN_IF_ERROR(CheckIsNotBarred(request, origin));
  if (!membership_.HasRoom(request.role())) {
    return absl::ResourceExhaustedError(
        absl::StrCat("the job has as many members as it may have: ", kMaxWorkers, " workers, or ",
                     Membership::kMaxEvaluators, " evaluators"));
  }
  RETURN_IF_ERROR(CheckAgrees(request, origin));
  if (request.role() == v1::WORKER) {
    if (DataIsOpen() && membership_.num_workers() == 0) SetClassNames(request.class_names());
    if (data_checksum_ == 0) data_checksum_ = request.data_checksum();
  }
  Member& member = *membership_.Register(request, clock_->Now(), address);
  member.joined_late = state_machine_.state() == JobStateMachine::State::kTraining;
  if (member.role == v1::WORKER && train_samples_ != request.train_samples())
    OpenLedger(request.train_samples());
  if (member.role == v1::WORKER && !synchronous_ && state_machine_.open()) {
    rosters_.Join(member.index, member.incarnation, ClockForJoiner(0));
    if (member.joined_late) rosters_.SetIdle(member.incarnation);
  }
  expected_evaluators_ = std::max(expected_evaluators_, membership_.num_evaluators());
  v1::RegisterReply reply;
  reply.set_worker(member.index);
  reply.set_incarnation(member.incarnation);
  reply.set_heartbeat_timeout_seconds(membership_.heartbeat_timeout_seconds());
  reply.set_restore_state(
      member.role == v1::WORKER && !state_machine_.begun() &&
      std::count(from_.worker_states().begin(), from_.worker_states().end(), member.index) > 0);
  Advance();
  return reply;
}

absl::Status Master::CheckIsNotBarred(const v1::RegisterRequest& request, const std::string& origin) const {
  const double seconds = watch_.BarredFor(origin, clock_->Now());
  if (request.role() != v1::WORKER || seconds == 0 || membership_.num_workers() == 0) return absl::OkStatus();
  return NotReady(absl::StrCat("the worker ", ProcessOf(request), " may register in ", std::ceil(seconds),
                               " s: workers from ", origin,
                               " made no progress, or vanished, more than once and held up the others; if "
                               "their steps take so long, set a higher faults.stuck_seconds"));
}

absl::Status Master::CheckFits(const v1::RegisterRequest& request) const {
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

std::string Master::DescribeOtherData(const v1::RegisterRequest& request) const {
  const std::vector<const Member*> workers = membership_.workers();
  const bool decides = DataIsOpen() && workers.empty();
  if (decides) return "";
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

absl::Status Master::CheckAgrees(const v1::RegisterRequest& request, const std::string& origin) {
  const std::string difference = DescribeOtherData(request);
  const std::string newcomer =
      absl::StrCat("the ", request.role() == v1::EVALUATOR ? "evaluator" : "worker", " ", ProcessOf(request));
  const std::string process = absl::StrCat(origin, ProcessOf(request));
  if (difference.empty()) {
    waiting_.erase(process);
    return absl::OkStatus();
  }
  if (!DataIsOpen()) return absl::FailedPreconditionError(absl::StrCat(newcomer, difference));
  if (request.role() == v1::WORKER && waiting_.size() < kMaxWorkers) {
    const Statement stated = {request.train_samples(), request.class_names()};
    const bool is_new = waiting_.insert_or_assign(process, stated).second;
    if (is_new) AddOfMember(absl::StrCat(newcomer, difference, "; it waits"));
    const int alike = static_cast<int>(std::count_if(
        waiting_.begin(), waiting_.end(), [&stated](const auto& other) { return other.second == stated; }));
    if (alike > membership_.num_workers() && 2 * alike > static_cast<int>(job_.workers())) {
      RemoveWorkers(absl::StrCat("has other data than ", alike, " of the job's ", job_.workers(),
                                 " workers, which wait"));
      waiting_.clear();
      return absl::OkStatus();
    }
  }
  return NotReady(absl::StrCat(newcomer, " waits, because it", difference));
}

absl::StatusOr<v1::HeartbeatReply> Master::Heartbeat(const v1::HeartbeatRequest& request) {
  ASSIGN_OR_RETURN(auto member,
                   membership_.Renew(request.role(), request.worker(), request.incarnation(), clock_->Now()));
  RETURN_IF_ERROR(Observe(request.progress(), member));
  Advance();
  v1::HeartbeatReply reply;
  reply.set_again_in_seconds(Spread(kHeartbeatSeconds));
  if (!state_machine_.cut_short()) return reply;
  reply.set_stop(true);
  reply.set_reason(state_machine_.reason());
  return reply;
}

double Master::Spread(double seconds) const {
  return std::max(seconds, (membership_.num_workers() + staying_.size()) / kMaxCallsPerSecond);
}

v1::LeaveReply Master::Leave(const v1::LeaveRequest& request) {
  Remove(request);
  v1::LeaveReply reply;
  if (phase() == v1::JobStatus::FAILED) reply.set_job_failed(state_machine_.reason());
  if (request.stays() && MustStay(request.incarnation())) {
    const bool final = state_machine_.weights_are_final();
    staying_[request.incarnation()] = final;
    reply.set_weights_are_final(final);
    reply.set_again_in_seconds(Spread(kStaySeconds));
  } else if (staying_.erase(request.incarnation()) > 0) {
    Advance();
  }
  return reply;
}

bool Master::MustStay(uint64_t incarnation) const {
  if (state_machine_.awaits_last_checkpoint()) return true;
  const auto staying = staying_.find(incarnation);
  return job_.model().has_external() && phase() != v1::JobStatus::FAILED && staying != staying_.end() &&
         !staying->second;
}

void Master::Remove(const v1::LeaveRequest& request) {
  absl::StatusOr<Member*> found =
      membership_.Renew(request.role(), request.worker(), request.incarnation(), clock_->Now());
  if (!found.ok()) return;
  if (absl::Status status = Observe(request.progress(), *found); !status.ok()) {
    AddOfMember(status.message());
  }
  const Member member = **found;
  const std::string reason = !request.reason().empty() ? OneLine(request.reason())
                             : request.failed()        ? "no reason given"
                                                       : "it is done";
  AddOfMember(absl::StrCat(member.name(), request.failed() ? " failed: " : " left: ", reason));
  membership_.Remove(member.role, member.index);
  watch_.Forget(member.incarnation);
  if (member.role == v1::EVALUATOR) expected_evaluators_ = membership_.num_evaluators();
  if (member.role == v1::WORKER) {
    Release(member);
    if (request.failed() && state_machine_.open() && membership_.num_workers() == 0) {
      state_machine_.FailAfterSaving(
          absl::StrCat("no worker is left, and the last one, ", member.name(), ", failed: ", reason),
          clock_->Now());
      OnStateEntered();
    }
  }
  Advance();
}

void Master::RemoveWorkers(absl::string_view why) {
  std::vector<Member> removed;
  for (const Member* worker : membership_.workers()) removed.push_back(*worker);
  for (const Member& worker : removed) {
    AddOfMember(absl::StrCat(worker.name(), " ", why, ": considered lost"));
    membership_.Remove(worker.role, worker.index);
    Release(worker);
  }
}

void Master::SetClassNames(uint64_t names) {
  class_names_ = names;
  std::vector<Member> others;
  for (const Member* evaluator : membership_.evaluators()) {
    if (evaluator->class_names != names) others.push_back(*evaluator);
  }
  for (const Member& evaluator : others) {
    AddOfMember(absl::StrCat(evaluator.name(), " has classes of other names than the workers: removed"));
    membership_.Remove(evaluator.role, evaluator.index);
  }
}

void Master::TakeDisconnected(const v1::ShardReport& report) {
  for (const v1::PushMark& mark : report.marks()) {
    if (!mark.disconnected()) continue;
    membership_.SetDisconnected(mark.worker(), mark.incarnation(), report.shard(),
                                kMissedHeartbeats * Spread(kHeartbeatSeconds), clock_->Now());
  }
}

}  // namespace catchment
