#include "worker/training.h"

#include <glog/logging.h>

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "common/job/algorithm_facts.h"
#include "worker/attach/announced_plans.h"
#include "worker/heartbeat.h"
#include "worker/state_transfer.h"

namespace catchment {
namespace {

constexpr int kBatchesAhead = 3;
// Of samples that an attached program loads, on several processes of its own maybe.
constexpr int kAttachedBatchesAhead = 16;
// How long a worker that is to end waits, at least, for servers with which nothing moves.
constexpr double kStopSeconds = 5;
constexpr double kLookSeconds = 0.1;

bool IsLost(const absl::Status& status) {
  return absl::IsNotFound(status) || absl::IsFailedPrecondition(status);
}

// Returns whether a call did not reach the master, or was cancelled.
bool IsOutOfReach(const absl::Status& status) {
  return absl::IsUnavailable(status) || absl::IsCancelled(status);
}

// Returns why the model cannot go on; ok: it can.
absl::Status StatusOf(const Session& session) {
  return session.attached == nullptr ? absl::OkStatus() : session.attached->status();
}

// 1 for a worker that is no straggler.
double SlownessOf(const v1::Job& job, uint32_t worker) {
  for (const v1::Straggler& straggler : job.faults().stragglers()) {
    if (straggler.worker() == worker) return straggler.times();
  }
  return 1;
}

// Returns for how long nothing may move with the servers when the worker is to end: at least as long as a
// block takes over the slowest network that the job allows.
double StopPatience(const v1::Job& job, const ParameterLayout& layout) {
  const double bytes_per_second = 1024.0 * std::max(1u, job.faults().slowest_kib_per_second());
  const double block_seconds = static_cast<double>(layout.most_in_block()) * sizeof(float) / bytes_per_second;
  return std::max(kStopSeconds, std::min(block_seconds, job.faults().connect_timeout_seconds()));
}

}  // namespace

struct Training::Membership {
  Membership(const v1::RegisterReply& reply, Session* session, const WorkerOptions& options,
             const Clock* clock, MasterClient* master, std::function<v1::Progress()> progress)
      : me(reply),
        slowness(SlownessOf(session->job, reply.worker())),
        stop_patience(StopPatience(session->job, session->layout)),
        client(
            {session->servers, options.credentials, session->job.name(), reply.worker(), reply.incarnation(),
             session->job.faults().connect_timeout_seconds(), session->job.compression(), session->run_id},
            &session->layout, clock),
        algorithm(MakeAlgorithm(session->job, session->layout.size(), &client)),
        leases(reply.worker(), reply.incarnation(), master, &end, std::move(progress)),
        augmentation(session->job.data().augmentation(), session->data.train.input_shape(),
                     session->job.seed()),
        loader(&session->data.train, &augmentation, OrderOf(*session),
               session->attached != nullptr ? kAttachedBatchesAhead : kBatchesAhead, PlansOf(*session),
               clock) {}
  ~Membership() { end.Set(); }

  // All that the worker keeps beside the center's weights. Nothing is under way.
  WorkerState ListState(const v1::Job& job) {
    WorkerState state;
    algorithm->ListState(IsSynchronous(job.algorithm().consistency()), &state);
    client.ListState(&state);
    return state;
  }

  static EpochOrder OrderOf(const Session& session) {
    return EpochOrder(session.job.seed(), session.data.train.size());
  }
  NextPlan PlansOf(const Session& session) {
    const NextPlan plans = [this] { return leases.Next(); };
    return session.attached == nullptr ? plans : AnnouncePlans(plans, OrderOf(session), session.attached);
  }

  const v1::RegisterReply me;
  const double slowness;  // Straggler.times
  const double stop_patience;
  StopFlag end;  // no more steps
  Mutex mu;
  absl::Status lost ABSL_GUARDED_BY(mu);  // why the membership ended, unless by its own will
  ParameterClient client;
  const std::unique_ptr<Algorithm> algorithm;
  LeaseSource leases;
  const Augmentation augmentation;
  BatchLoader loader;
  // Of the training thread.
  bool started = false;
  double waited_to_start = 0;  // seconds for the first minibatch: for others to come, most of them
  v1::Progress progress;       // with the step under way
};

Training::Training(WorkerOptions options, const Clock* clock)
    : options_(std::move(options)),
      clock_(*clock),
      master_(options_.master, options_.credentials, options_.connect_timeout_seconds, clock, &stop_) {}

Training::~Training() {
  finished_.Set();
  if (watchdog_.joinable()) watchdog_.join();
}

void Training::Stop() {
  MutexLock lock(&mu_);
  if (stop_.IsSet()) return;
  stop_.Set();
  if (membership_ != nullptr) membership_->end.Set();
  watchdog_ = std::thread([this] { WatchEnd(); });
}

void Training::WatchEnd() {
  while (!finished_.Pause(kLookSeconds)) {
    MutexLock lock(&mu_);
    if (membership_ == nullptr) continue;
    if (membership_->client.stalled_seconds() < membership_->stop_patience) continue;
    membership_->client.Cancel();
    return;
  }
}

absl::Status Training::Run() {
  absl::StatusOr<Session> session = OpenSession(options_, &master_);
  absl::Status status = session.status();
  if (session.ok()) {
    while (true) {
      status = RunMembership(&*session);
      if (!absl::IsAborted(status) || stop_.IsSet()) break;
      // A worker that has trained was not refused.
      if (progress().steps() > 0) pauses_.Reset();
      const double pause = pauses_.Next();
      LOG(WARNING) << status.message() << "; registering again in " << pause << " s";
      if (stop_.Pause(pause)) break;

      status = FollowMaster(options_, &master_, &session);
      if (!status.ok()) break;
    }
  }
  finished_.Set();
  const bool failed = !stop_.IsSet() && !status.ok();
  if (session.ok() && session->attached != nullptr) {
    session->attached->Finish(failed ? status : job_failure_.empty() ? absl::OkStatus() : JobFailed());
  }
  if (failed) return status;
  return job_failure_.empty() ? absl::OkStatus() : JobFailed();
}

absl::Status Training::JobFailed() const {
  return absl::FailedPreconditionError("the job has failed: " + job_failure_);
}

// Aborted: the membership was lost, and a new one can be had.
absl::Status Training::RunMembership(Session* session) {
  const absl::StatusOr<v1::RegisterReply> me =
      master_.Call(&MasterClient::Stub::Register, MakeRegisterRequest(*session, v1::WORKER));
  if (!me.ok()) return me.status();
  LOG(INFO) << "worker " << me->worker() << ", incarnation " << me->incarnation() << ", of job '"
            << session->job.name() << "'";
  {
    MutexLock lock(&mu_);
    progress_.Clear();
  }
  if (session->attached != nullptr) {
    session->attached->SkipPlanned();
    if (absl::Status status = session->attached->Welcome(me->worker()); !status.ok()) {
      Leave(*me, status);
      return status;
    }
  }
  Membership membership(*me, session, options_, &clock_, &master_, [this] { return progress(); });
  {
    MutexLock lock(&mu_);
    membership_ = &membership;
    if (stop_.IsSet()) membership.end.Set();
  }
  v1::HeartbeatRequest request;
  request.set_worker(me->worker());
  request.set_incarnation(me->incarnation());
  absl::Status status;
  {
    Heartbeat heartbeat(request, me->lease_seconds(), options_.connect_timeout_seconds, &master_, &clock_,
                        {[this] { return progress(); },
                         [&](const std::string& reason) {
                           LOG(INFO) << "the master ends the job: " << reason;
                           Stop();
                         },
                         [&](const absl::Status& why) {
                           {
                             MutexLock lock(&membership.mu);
                             membership.lost = why;
                           }
                           membership.end.Set();
                           membership.client.Cancel();
                         }});
    status = Train(session, &membership);
  }
  {
    MutexLock lock(&mu_);
    membership_ = nullptr;
  }
  MutexLock lock(&membership.mu);
  if (IsLost(status)) membership.lost = status;
  if (absl::IsUnavailable(status)) {
    status = absl::UnavailableError(absl::StrCat(
        status.message(),
        "; where a server has ended, start all again with --resume to go on from the last checkpoint"));
  }
  if (membership.lost.ok()) {
    Leave(*me, status);
    return status;
  }
  if (!IsLost(membership.lost)) return membership.lost;
  // Where it was a server that refused the worker, the master still counts on it.
  if (!absl::IsNotFound(membership.lost)) GiveUpPlace(*me, membership.lost);
  if (!job_failure_.empty()) return JobFailed();
  return absl::AbortedError(absl::StrCat("the membership was lost: ", membership.lost.message()));
}

absl::Status Training::Train(Session* session, Membership* membership) {
  const absl::Status status = RunSteps(session, membership);
  const bool finish = status.ok() && membership->started && !membership->end.IsSet();
  const absl::Status last = finish ? membership->algorithm->Finish() : membership->algorithm->Settle();
  if (last.ok()) Report(membership);
  return status.ok() ? last : status;
}

absl::Status Training::RunSteps(Session* session, Membership* membership) {
  while (!membership->end.IsSet()) {
    // The master may hold back what comes next until it knows that the last step is done.
    if (!membership->loader.HasNext()) {
      if (absl::Status status = membership->algorithm->Settle(); !status.ok()) return status;
      Report(membership);
    }
    const absl::StatusOr<const LoadedBatch*> batch = membership->loader.Next();
    if (!batch.ok()) return batch.status();
    if (*batch == nullptr) break;
    if (LeaseSource::IsRequest((*batch)->tag)) {
      if (absl::Status status = Handle((*batch)->tag, session, membership); !status.ok()) return status;
      continue;
    }
    if (!membership->started) {
      if (absl::Status status = Start(session, membership); !status.ok()) return status;
    }
    if (absl::Status status = RunStep(session, **batch, membership); !status.ok()) return status;
  }
  return absl::OkStatus();
}

absl::Status Training::Start(Session* session, Membership* membership) {
  membership->waited_to_start = membership->loader.seconds_waited();
  const uint64_t version = membership->leases.first_version();
  if (absl::Status status = membership->algorithm->Start(version); !status.ok()) return status;
  membership->started = true;
  if (!membership->me.restore_state()) return absl::OkStatus();
  WorkerState state = membership->ListState(session->job);
  const absl::Status status =
      LoadState({membership->me.worker(), membership->me.incarnation()}, &master_, &state);
  if (status.ok()) LOG(INFO) << "this worker goes on with the state that the checkpoint has of it";
  if (status.ok() || IsOutOfReach(status)) return status;
  return absl::DataLossError(absl::StrCat(
      "the state that worker ", membership->me.worker(), " had at the checkpoint cannot be restored: ",
      status.message(), "; to go on without it, resume with checkpoint.worker_state: false"));
}

absl::Status Training::Handle(uint64_t tag, Session* session, Membership* membership) {
  if (const uint64_t checkpoint = LeaseSource::CheckpointOf(tag)) {
    return SaveOwnState(checkpoint, session, membership);
  }
  if (tag == LeaseSource::kFlush) return membership->algorithm->Finish();
  membership->end.Set();
  return absl::OkStatus();
}

absl::Status Training::SaveOwnState(uint64_t checkpoint, Session* session, Membership* membership) {
  if (absl::Status status = membership->algorithm->Settle(); !status.ok()) return status;
  const absl::Status status =
      SaveState(membership->ListState(session->job), {membership->me.worker(), membership->me.incarnation()},
                checkpoint, &master_);
  if (status.ok() || IsOutOfReach(status)) return status;
  // The master knows why, and completes the checkpoint without it.
  LOG(WARNING) << "checkpoint " << checkpoint << " does not have this worker's state: " << status.message();
  return absl::OkStatus();
}

absl::Status Training::RunStep(Session* session, const LoadedBatch& batch, Membership* membership) {
  Score score;
  const auto gradient = [&](absl::Span<const float> weights, absl::Span<float> gradient,
                            PassObserver* observer) {
    const double start = clock_.Now();
    score = session->model->Train(weights,
                                  {batch.inputs.data(), batch.labels.data(), batch.sample_ids.data(),
                                   static_cast<int>(batch.samples), batch.targets.data()},
                                  gradient, observer);
    // A pass that was broken off has left the push under way without the rest of the gradient.
    if (!StatusOf(*session).ok()) return membership->client.Cancel();
    if (membership->slowness > 1) {
      membership->end.Pause((membership->slowness - 1) * (clock_.Now() - start));
    }
  };
  Algorithm::Step step;
  step.samples = static_cast<uint32_t>(batch.samples);
  if (const uint64_t total = membership->leases.total_samples(); total > 0 && !batch.spans.empty()) {
    const Span& first = batch.spans.front();
    const double position = static_cast<double>(first.epoch) * session->data.train.size() + first.begin;
    step.progress = position / static_cast<double>(total);
  }
  const double start = clock_.Now();
  const double blocked = membership->client.totals().blocked_seconds();
  const absl::Status run = membership->algorithm->Run(step, gradient);
  if (absl::Status status = StatusOf(*session); !status.ok()) return status;
  if (!run.ok()) return run;
  const double seconds = clock_.Now() - start - (membership->client.totals().blocked_seconds() - blocked);

  // What is done is what the servers have: of a step that is under way the one before it.
  if (membership->algorithm->under_way()) Report(membership);
  const LeaseSource::Place place = LeaseSource::PlaceOf(batch.tag);
  v1::Progress& progress = membership->progress;
  progress.set_steps(progress.steps() + 1);
  progress.set_samples(progress.samples() + batch.samples);
  progress.set_loss_sum(progress.loss_sum() + score.loss_sum);
  progress.set_correct(progress.correct() + score.correct);
  progress.set_compute_seconds(progress.compute_seconds() + seconds);
  progress.set_lease(place.lease);
  progress.set_lease_steps(place.step);
  if (!membership->algorithm->under_way()) Report(membership);
  return absl::OkStatus();
}

void Training::Report(Membership* membership) {
  const ParameterClient::Totals totals = membership->client.totals();
  v1::Progress& progress = membership->progress;
  progress.set_push_seconds(totals.push_seconds);
  progress.set_pull_seconds(totals.pull_seconds);
  progress.set_data_seconds(membership->loader.seconds_waited() - membership->waited_to_start);
  progress.set_bytes_pushed(totals.bytes_pushed);
  progress.set_bytes_pulled(totals.bytes_pulled);
  progress.clear_round_trip_us();
  progress.clear_round_trip_counts();
  totals.round_trips.ForEach([&progress](uint64_t microseconds, uint64_t count) {
    progress.add_round_trip_us(microseconds);
    progress.add_round_trip_counts(count);
  });
  MutexLock lock(&mu_);
  progress_ = progress;
}

void Training::GiveUpPlace(const v1::RegisterReply& me, const absl::Status& why) {
  v1::LeaveRequest request;
  request.set_worker(me.worker());
  request.set_incarnation(me.incarnation());
  *request.mutable_progress() = progress();
  request.set_reason(absl::StrCat("it registers again, for ", why.message()));
  const absl::StatusOr<v1::LeaveReply> reply = master_.CallOnce(&MasterClient::Stub::Leave, request);
  if (reply.ok()) job_failure_ = reply->job_failed();
  LOG_IF(WARNING, !reply.ok()) << "could not tell the master that this worker registers again: "
                               << reply.status();
}

void Training::Leave(const v1::RegisterReply& me, const absl::Status& why) {
  v1::LeaveRequest request;
  request.set_worker(me.worker());
  request.set_incarnation(me.incarnation());
  *request.mutable_progress() = progress();
  const bool stopped = stop_.IsSet();
  if (!why.ok() && !stopped) request.set_reason(std::string(why.message()));
  if (why.ok() && stopped) request.set_reason("told to stop");
  request.set_failed(!why.ok() && !stopped);
  const absl::StatusOr<v1::LeaveReply> reply = master_.CallOnce(&MasterClient::Stub::Leave, request);
  if (!reply.ok()) {
    LOG(WARNING) << "could not tell the master that this worker leaves: " << reply.status();
    return;
  }
  job_failure_ = reply->job_failed();
}

v1::Progress Training::progress() const {
  MutexLock lock(&mu_);
  return progress_;
}

}  // namespace catchment
