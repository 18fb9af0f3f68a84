#include "worker/training.h"

#include <glog/logging.h>

#include "absl/strings/str_cat.h"
#include "worker/heartbeat.h"

namespace catchment {
namespace {

constexpr int kBatchesAhead = 3;
constexpr double kStopSeconds = 5;

bool IsLost(const absl::Status& status) {
  return absl::IsNotFound(status) || absl::IsFailedPrecondition(status);
}

}  // namespace

struct Training::Membership {
  Membership(const v1::RegisterReply& reply, Session* session, const WorkerOptions& options, const Clock* clock,
             MasterClient* master, std::function<v1::Progress()> progress)
      : me(reply),
        client({session->servers, options.credentials, session->job.name(), reply.worker(), reply.incarnation(),
                session->job.faults().connect_timeout_seconds()},
               &session->layout, clock),
        algorithm(MakeAlgorithm(session->job, session->layout.size(), &client)),
        leases(reply.worker(), reply.incarnation(), master, &end, std::move(progress)),
        loader(&session->data.train, EpochOrder(session->job.seed(), session->data.train.size()), kBatchesAhead,
               [this] { return leases.Next(); }, clock) {}
  ~Membership() { end.Set(); }

  const v1::RegisterReply me;
  StopFlag end;  // no more steps
  Mutex mu;
  absl::Status lost ABSL_GUARDED_BY(mu);  // why the membership ended, unless by its own will
  ParameterClient client;
  const std::unique_ptr<Algorithm> algorithm;
  LeaseSource leases;
  BatchLoader loader;
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
  watchdog_ = std::thread([this] {
    if (finished_.Pause(kStopSeconds)) return;
    MutexLock lock(&mu_);
    if (membership_ != nullptr) membership_->client.Cancel();
  });
}

absl::Status Training::Run() {
  absl::StatusOr<Session> session = OpenSession(options_, &master_);
  absl::Status status = session.status();
  if (session.ok()) {
    while (true) {
      status = RunMembership(&*session);
      if (!absl::IsAborted(status) || stop_.IsSet()) break;
      LOG(WARNING) << status.message() << "; registering again";
    }
  }
  finished_.Set();
  return stop_.IsSet() ? absl::OkStatus() : status;
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
  return absl::AbortedError(absl::StrCat("the membership was lost: ", membership.lost.message()));
}

absl::Status Training::Train(Session* session, Membership* membership) {
  bool started = false;
  while (!membership->end.IsSet()) {
    const absl::StatusOr<const LoadedBatch*> batch = membership->loader.Next();
    if (!batch.ok()) return batch.status();
    if (*batch == nullptr) break;
    if (!started) {
      if (absl::Status status = membership->algorithm->Start(membership->leases.first_version()); !status.ok()) {
        return status;
      }
      started = true;
    }
    if (absl::Status status = RunStep(session, **batch, membership); !status.ok()) return status;
  }
  return started && !membership->end.IsSet() ? membership->algorithm->Finish() : absl::OkStatus();
}

absl::Status Training::RunStep(Session* session, const LoadedBatch& batch, Membership* membership) {
  Score score;
  double compute_seconds = 0;
  const auto gradient = [&](absl::Span<const float> weights, absl::Span<float> gradient) {
    const double start = clock_.Now();
    score = session->network->Train(weights,
                                    {batch.inputs.data(), batch.labels.data(), batch.sample_ids.data(),
                                     static_cast<int>(batch.samples)},
                                    gradient);
    compute_seconds = clock_.Now() - start;
  };
  Algorithm::Step step;
  step.samples = static_cast<uint32_t>(batch.samples);
  if (const uint64_t total = membership->leases.total_samples(); total > 0 && !batch.spans.empty()) {
    const Span& first = batch.spans.front();
    const double position = static_cast<double>(first.epoch) * session->data.train.size() + first.begin;
    step.progress = position / static_cast<double>(total);
  }
  if (absl::Status status = membership->algorithm->Run(step, gradient); !status.ok()) return status;

  const ParameterClient::Totals totals = membership->client.totals();
  const LeaseSource::Place place = LeaseSource::PlaceOf(batch.tag);
  MutexLock lock(&mu_);
  progress_.set_steps(progress_.steps() + 1);
  progress_.set_samples(progress_.samples() + batch.samples);
  progress_.set_loss_sum(progress_.loss_sum() + score.loss_sum);
  progress_.set_correct(progress_.correct() + score.correct);
  progress_.set_compute_seconds(progress_.compute_seconds() + compute_seconds);
  progress_.set_push_seconds(totals.push_seconds);
  progress_.set_pull_seconds(totals.pull_seconds);
  progress_.set_data_seconds(membership->loader.seconds_waited());
  progress_.set_bytes_pushed(totals.bytes_pushed);
  progress_.set_bytes_pulled(totals.bytes_pulled);
  progress_.set_lease(place.lease);
  progress_.set_lease_steps(place.step);
  return absl::OkStatus();
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
  if (!reply.ok()) LOG(WARNING) << "could not tell the master that this worker leaves: " << reply.status();
}

v1::Progress Training::progress() const {
  MutexLock lock(&mu_);
  return progress_;
}

}  // namespace catchment
