// A job in virtual time: the production control loop with shards, workers and links that the test plays.
// Servers, workers and the master are lost at random or when the test says so, and come back as their
// processes do; workers also leave, and stall. As long as the job has not gone back, each grant and each
// checkpoint is checked: no sample is lost, or assigned to two workers at the same time.
#ifndef CATCHMENT_TESTS_SERVER_CONTROL_VIRTUAL_CLUSTER_H_
#define CATCHMENT_TESTS_SERVER_CONTROL_VIRTUAL_CLUSTER_H_

#include <glog/logging.h>
#include <google/protobuf/util/message_differencer.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/base/random.h"
#include "common/job/job_text.h"
#include "common/wire/protocol.h"
#include "server/control/check_image.h"
#include "server/control/logged_loop.h"
#include "simulation/event_queue.h"
#include "tests/server/control/fake_shard.h"
#include "tests/server/control/testing.h"

namespace catchment {

class VirtualCluster {
 public:
  struct Options {
    JobOptions job;
    uint64_t samples = 200;
    int servers = 2;
    bool standby = false;
    uint64_t seed = 1;
    // The mean seconds between two losses of a process of each kind; 0: none.
    double worker_losses = 0;
    double worker_leaves = 0;  // in order, for another worker
    double worker_stalls = 0;  // longer than the heartbeat's timeout
    double server_losses = 0;
    double master_losses = 0;
    double losses_end = 200;  // no process is lost later
    double late_pushes = 0;   // the share of a worker's pushes to a server that arrive a step later
    LoggedLoop::Log log;      // of all runs; null: none
  };

  explicit VirtualCluster(const Options& options) : options_(options), random_(options.seed) {
    job_ = MakeJob(options.job);
    job_.mutable_faults()->set_standby(options.standby ? 1 : 0);
    job_.mutable_faults()->set_connect_timeout_seconds(60);
    for (int s = 0; s < options.servers; ++s) servers_.push_back({.index = s});
    StartMaster({});
    for (int s = 0; s < options.servers; ++s) StartServer(s);
    for (uint32_t w = 0; w < options.job.workers; ++w) StartWorker();
    ScheduleLoss(options.worker_losses, [this] { LoseWorker(); });
    ScheduleLoss(options.worker_leaves, [this] { SendWorkerAway(); });
    ScheduleLoss(options.worker_stalls, [this] {
      if (Worker* const worker = AnyWorker()) worker->stalled_until = events_.Now() + 12;
    });
    ScheduleLoss(options.server_losses,
                 [this] { LoseServer(1 + static_cast<int>(random_.Below(servers_.size() - 1))); });
    ScheduleLoss(options.master_losses, [this] { LoseMaster(); });
  }

  // Runs until the job has ended.
  void Run(double limit = 3000) {
    while (!ended_ && events_.Now() < limit && events_.RunNext()) {
      if (::testing::Test::HasFatalFailure()) return;
    }
    ASSERT_TRUE(ended_) << "at " << events_.Now() << " s: "
                        << (loop_ == nullptr ? "there is no master" : loop_->now().Status().DebugString());
  }
  void RunUntil(double time) {
    while (!ended_ && events_.Now() < time && events_.RunNext()) {
    }
  }

  // Checkpoints cannot be written until `disk` is OK again.
  void SetDisk(absl::Status disk) { disk_ = std::move(disk); }

  // A process is lost, and started again some seconds later.
  void LoseWorker() {
    const Worker* const worker = AnyWorker();
    if (worker == nullptr) return;
    workers_.erase(worker->id);
    ++losses_;
    events_.After(1 + 4 * random_.Uniform(), [this] { StartWorker(); });
  }
  void LoseServer(int index, bool comes_back = true) {
    Server& server = servers_[index];
    if (!server.up || ended_) return;
    exact_ = false;
    Fall(&server);
    kept_base_[index] = server.base;
    kept_[index] = Standby(index).up ? std::move(server.shard) : nullptr;
    ResetShard(&server, 0);
    if (comes_back) events_.After(1 + 2 * random_.Uniform(), [this, index] { StartServer(index); });
  }
  void LoseMaster() {
    if (loop_ == nullptr || ended_) return;
    loop_.reset();
    ++life_;
    Fall(&servers_[0]);
    if (!Standby(0).up) copy_.reset();
    events_.After(1 + 2 * random_.Uniform(), [this] { RestartMaster(); });
  }

  void ExpectAllIsTrained() const {
    EXPECT_EQ(last_.phase(), v1::JobStatus::DONE) << last_.reason();
    EXPECT_EQ(last_.samples(), options_.job.epochs * options_.samples);
    ASSERT_TRUE(manifest_.has_value());
    for (const Settled& settled : manifest_->settled) {
      std::map<Sample, int> times;
      for (const auto& [incarnation, steps] : settled) {
        for (uint64_t step = 1; step <= steps; ++step) {
          const auto samples = trained_.find({incarnation, step});
          ASSERT_NE(samples, trained_.end()) << "step " << step << " of " << incarnation;
          for (const Sample& sample : samples->second) ++times[sample];
        }
      }
      ASSERT_EQ(times.size(), options_.job.epochs * options_.samples)
          << "a shard of the last checkpoint lacks samples";
      uint64_t again = 0;
      for (const auto& [sample, count] : times) {
        more_than_once_ += count > 1;
        again += count - 1;
      }
      EXPECT_LE(again, last_.repeated_samples()) << "samples were trained again without being counted";
    }
  }
  // Returns the samples, of all servers together, that are in more than one contribution, after
  // ExpectAllIsTrained.
  int more_than_once() const { return more_than_once_; }
  int losses() const { return losses_; }
  int checkpoints() const { return checkpoints_; }
  int recoveries() const { return static_cast<int>(last_.recoveries()); }
  bool ended() const { return ended_; }
  const v1::JobStatus& last() const { return last_; }
  const ControlLoop& loop() const { return loop_->now(); }
  double now() const { return events_.Now(); }
  const std::vector<std::string>& events() const { return log_; }

 private:
  using Sample = std::pair<uint64_t, uint64_t>;  // epoch, position
  using Settled = std::map<uint64_t, uint64_t>;  // steps in updates, by incarnation

  static constexpr double kLink = 0.001;
  static constexpr double kStep = 0.05;

  struct Server {
    int index = 0;
    bool up = false;
    uint64_t instance = 0;
    uint64_t run_id = 0;      // of the first command; 0: none
    uint64_t checkpoint = 0;  // that it has begun with
    uint64_t epoch = 0;       // above 0: restored
    bool cannot_restore = false;
    std::unique_ptr<FakeShard> shard;
    Settled base;  // the steps in what it has begun with, by incarnation
  };
  struct Worker {
    uint64_t id = 0;
    v1::RegisterReply me;
    bool registered = false;
    bool done = false;
    v1::Lease lease;
    uint64_t step = 0;  // of its lease: done
    std::vector<bool> sent;
    uint64_t pushed = 0;  // steps
    double heard_at = 0;
    double stalled_until = 0;  // it neither works nor is heard of
    v1::Progress progress;
  };
  struct Manifest {
    CompleteCheckpoint checkpoint;
    std::vector<Settled> settled;  // by server
  };
  struct Grant {
    uint64_t incarnation = 0;
    uint64_t step = 0;  // of the worker since its registration, from 1
  };

  bool synchronous() const { return options_.job.synchronous; }

  // Null: there is none.
  Worker* AnyWorker() {
    if (workers_.empty()) return nullptr;
    auto worker = workers_.begin();
    std::advance(worker, random_.Below(workers_.size()));
    return &worker->second;
  }

  Server& Standby(int index) { return servers_[(index + 1) % servers_.size()]; }
  // A server's process is lost, with the copy that it keeps of another one's shard.
  void Fall(Server* server) {
    server->up = false;
    ++losses_;
    const int kept = (server->index + options_.servers - 1) % options_.servers;
    kept_[kept] = nullptr;
    if (kept == 0) copy_.reset();
  }

  void ScheduleLoss(double mean, std::function<void()> lose) {
    if (mean <= 0) return;
    events_.After(-mean * std::log(1 - random_.Uniform()), [this, mean, lose] {
      if (ended_ || events_.Now() > options_.losses_end) return;
      lose();
      ScheduleLoss(mean, lose);
    });
  }

  // ---------------------------------------------------------------------------------------- the master

  void StartMaster(RunOptions run) {
    run.job = job_;
    run.num_servers = options_.servers;
    if (!run.restored) run.run_id = ++last_run_;
    run.first_incarnation = std::max(run.first_incarnation, last_incarnation_ + 1000);
    ControlLoop::Options control;
    if (run.resumed_checkpoint > 0) control.resumed = manifest_->checkpoint.state;
    if (run.loss && run.resumed_checkpoint == 0) control.resumed = v1::MasterState();
    if (!run.restored) ResetShard(&servers_[0], run.resumed_checkpoint);
    control.run = std::move(run);
    control.tensors = {{"w", {64}}};
    control.can_go_back = true;
    control.has_standby = options_.standby;
    control.own_version = [this] { return servers_[0].shard->version(); };
    absl::StatusOr<std::unique_ptr<LoggedLoop>> loop =
        LoggedLoop::Create(std::move(control), &events_, options_.log);
    ASSERT_TRUE(loop.ok()) << loop.status();
    loop_ = *std::move(loop);
    ++life_;
    servers_[0].up = true;
    loop_->Call<&ControlLoop::SetAddress>("server:0");
    record_ = loop_->now().record();
    AfterCall();
    ScheduleStep(events_.Now());
  }

  void RestartMaster() {
    if (options_.standby && copy_) {
      RunOptions run;
      run.Continue({.copy = *copy_, .evaluations = {}, .epoch = ++master_epoch_});
      ASSERT_TRUE(CheckMasterCopy(*copy_, job_, options_.servers, copy_->run_id()).ok());
      v1::MasterImage image = copy_->master();
      StartMaster(std::move(run));
      const v1::MasterImage saved = loop_->now().master().Save();
      ASSERT_GE(saved.membership().next_incarnation(), image.membership().next_incarnation());
      image.mutable_membership()->set_next_incarnation(saved.membership().next_incarnation());
      return ExpectEqual(image, saved);
    }
    GoBack({.process = "the master"});
  }

  static void ExpectEqual(const v1::MasterImage& image, const v1::MasterImage& saved) {
    google::protobuf::util::MessageDifferencer differencer;
    // A difference of two times, which rounds.
    differencer.set_float_comparison(google::protobuf::util::MessageDifferencer::APPROXIMATE);
    differencer.SetFractionAndMargin(
        v1::CheckpointScheduleImage::descriptor()->FindFieldByName("seconds_since"), 0, 1e-9);
    std::string differences;
    differencer.ReportDifferencesToString(&differences);
    ASSERT_TRUE(differencer.Compare(image, saved)) << differences;
  }

  void GoBack(const RunLoss& loss) {
    exact_ = false;
    RunOptions run;
    run.record = record_;
    run.record.set_recoveries(record_.recoveries() + 1);
    run.loss = loss;
    run.first_incarnation = loss.next_incarnation;
    run.resumed_checkpoint = manifest_ ? manifest_->checkpoint.number : 0;
    copy_.reset();
    StartMaster(std::move(run));
  }

  void AfterCall() {
    if (const std::optional<uint64_t> image = loop_->TakeImage()) {
      SendImage(*image);
    }
    WakeIfNeeded();
  }
  // The standby acknowledges an image when it runs.
  void SendImage(uint64_t image) {
    events_.After(kLink, [this, life = life_, image] {
      if (life != life_) return;
      if (!Standby(0).up) return SendImage(image);
      for (const v1::StandbyPart& part : loop_->DescribeState(/*whole=*/true)) {
        if (!part.has_master()) continue;
        ASSERT_TRUE(copy_.emplace().ParseFromString(part.master()));
      }
      loop_->Call<&ControlLoop::OnImageCommitted>(image);
      Send(loop_->Call<&ControlLoop::TakeReplies>());
      WakeIfNeeded();
    });
  }
  static void Send(std::vector<ReadyReply> replies) {
    for (ReadyReply& ready : replies) ready.respond(std::move(ready.reply));
  }
  // Makes a call. `then` is called with the reply when it may leave.
  template <typename Reply, typename Request>
  void Ask(Request request, std::function<void(const absl::StatusOr<Reply>&)> then) {
    Send(loop_->Call<&ControlLoop::Answer>(MakeCall(std::move(request)),
                                           [then = std::move(then)](absl::StatusOr<v1::Reply> reply) {
                                             then(TakeReply<Reply>(std::move(reply)));
                                           }));
    AfterCall();
  }
  // The same for a worker, if it still exists then.
  template <typename Reply, typename Request>
  void Ask(uint64_t worker, Request request,
           std::function<void(Worker*, const absl::StatusOr<Reply>&)> then) {
    Ask<Reply>(std::move(request),
               [this, worker, then = std::move(then)](const absl::StatusOr<Reply>& reply) {
                 const auto one = workers_.find(worker);
                 if (one != workers_.end()) then(&one->second, reply);
               });
  }
  void WakeIfNeeded() {
    if (loop_->now().HasWork()) ScheduleStep(events_.Now());
  }
  void ScheduleStep(double time) {
    events_.At(time, [this, step = ++step_, life = life_] {
      if (step == step_ && life == life_) Step();
    });
  }

  void Step() {
    if (loop_->now().over()) return EndRun();
    Effects effects = loop_->Call<&ControlLoop::Step>(/*waited=*/false);
    for (const JobEvent& event : effects.events) log_.push_back(event.text);
    Send(std::move(effects.replies));
    for (ServerCommand& command : effects.commands) Send(std::move(command));
    for (CompleteCheckpoint& checkpoint : effects.checkpoints) {
      if (disk_.ok()) WriteManifest(checkpoint);
      loop_->Call<&ControlLoop::OnCheckpointWritten>(std::move(checkpoint), disk_);
    }
    if (effects.record) record_ = *effects.record;
    if (effects.record) loop_->Call<&ControlLoop::OnRecordWritten>(absl::OkStatus());
    if (effects.outputs) loop_->Call<&ControlLoop::OnOutputsWritten>(absl::OkStatus());
    AfterCall();
    ScheduleStep(loop_->now().HasWork() ? events_.Now() : loop_->now().NextStep());
  }

  void EndRun() {
    last_ = loop_->now().Status();
    const std::optional<RunLoss> loss = loop_->now().loss();
    record_ = loop_->now().record();
    Send(loop_->Call<&ControlLoop::End>().replies);
    loop_.reset();
    ++life_;
    ended_ = !loss.has_value();
    if (loss) GoBack(*loss);
  }

  void WriteManifest(const CompleteCheckpoint& checkpoint) {
    // A master that is restored may record the last one again.
    if (exact_ && manifest_) {
      const uint64_t last = manifest_->checkpoint.number;
      ASSERT_GE(checkpoint.number, master_epoch_ > 1 ? last : last + 1);
    }
    Manifest& manifest = manifest_.emplace(Manifest{checkpoint, {}});
    for (int i = 0; i < options_.servers; ++i) manifest.settled.push_back(files_.at({i, checkpoint.number}));
    ++checkpoints_;
    if (exact_) CheckState(checkpoint.state, manifest.settled);
  }

  // All shards of a checkpoint have the samples that it does not list as pending or still to come. In
  // asynchronous mode no sample that all of them have is pending.
  void CheckState(const v1::MasterState& state, const std::vector<Settled>& settled) const {
    uint64_t pending = 0;
    std::set<Sample> open;
    for (const v1::SampleSpan& span : state.pending()) {
      pending += span.end() - span.begin();
      for (uint64_t i = span.begin(); i < span.end(); ++i) open.emplace(span.epoch(), i);
    }
    const uint64_t assigned = state.next_epoch() * options_.samples + state.next_position();
    ASSERT_EQ(state.samples() + pending, assigned);
    for (uint64_t i = 0; i < assigned; ++i) {
      const Sample sample{i / options_.samples, i % options_.samples};
      if (open.count(sample) == 0) {
        ASSERT_TRUE(AllHave(settled, sample)) << "lost: " << sample.first << "/" << sample.second;
      } else if (!synchronous()) {
        ASSERT_FALSE(AllHave(settled, sample))
            << "all shards have it: " << sample.first << "/" << sample.second;
      }
    }
  }
  bool AllHave(const std::vector<Settled>& settled, const Sample& sample) const {
    const auto grants = grants_.find(sample);
    if (grants == grants_.end()) return false;
    return std::any_of(grants->second.begin(), grants->second.end(), [&](const Grant& grant) {
      return std::all_of(settled.begin(), settled.end(), [&](const Settled& of_server) {
        const auto steps = of_server.find(grant.incarnation);
        return steps != of_server.end() && steps->second >= grant.step;
      });
    });
  }

  // Keeps what a shard has saved, as a file does when its process is lost.
  void KeepFiles(const Server& server, const v1::ShardReport& report) {
    for (const v1::SavedShard& saved : report.saved()) {
      Settled& settled = files_[{server.index, saved.checkpoint()}];
      settled = server.base;
      for (const auto& [incarnation, steps] : server.shard->settled_at(saved.checkpoint()))
        settled[incarnation] = steps;
    }
  }

  // ---------------------------------------------------------------------------------------- servers

  // The shard begins again from a checkpoint; 0: from the initial weights.
  void ResetShard(Server* server, uint64_t checkpoint) {
    const uint64_t version = checkpoint == 0 ? 0 : manifest_->checkpoint.shards[server->index].version();
    server->shard = std::make_unique<FakeShard>(server->index, synchronous(), version);
    server->base.clear();
    if (checkpoint > 0) server->base = manifest_->settled[server->index];
    server->checkpoint = checkpoint;
    server->run_id = 0;
    server->epoch = 0;
    server->cannot_restore = false;
    server->instance = ++last_instance_;
  }

  // A process begins. Its standby has the shard of the process before it.
  void StartServer(int index) {
    if (index == 0) return;
    Server* const server = &servers_[index];
    ResetShard(server, 0);
    server->up = true;
    Register(server->index, server->instance);
  }

  // As ServerRegistration (server/process/server_registration.h).
  void Register(int index, uint64_t instance) {
    Server* const server = &servers_[index];
    if (!server->up || server->instance != instance || ended_) return;
    events_.After(0.5, [this, index, instance] { Register(index, instance); });
    if (loop_ == nullptr) return;
    v1::RegisterServerRequest request;
    request.set_index(index);
    request.set_num_servers(options_.servers);
    request.set_address(absl::StrCat("server:", index));
    request.set_job_fingerprint(JobFingerprint(job_));
    request.set_resumed_checkpoint(server->checkpoint);
    request.set_server_instance(instance);
    request.set_protocol_version(kProtocolVersion);
    request.set_version(server->shard->version());
    request.set_epoch(server->epoch);
    request.set_cannot_restore(server->cannot_restore);
    request.mutable_run()->set_id(server->run_id);
    Ask<v1::RegisterServerReply>(request, [this, index](const auto& reply) {
      if (reply.ok()) Begin(index, *reply);
    });
  }

  // A server does what the reply to its registration asks for.
  void Begin(int index, const v1::RegisterServerReply& reply) {
    Server* const server = &servers_[index];
    if (!reply.restore_from().empty()) {
      const uint64_t run_id = reply.run_id(), epoch = reply.restore_epoch();
      server->cannot_restore = kept_[index] == nullptr;
      if (server->cannot_restore) return;
      server->shard = std::move(kept_[index]);
      server->base = kept_base_[index];
      server->instance = ++last_instance_;
      server->run_id = run_id;
      server->epoch = epoch;
      Register(index, server->instance);
    } else if (reply.go_back()) {
      ResetShard(server, reply.checkpoint());
      Register(index, server->instance);
    }
  }

  void Send(ServerCommand command) {
    const double delay = command.server == 0 ? 0 : kLink;
    events_.After(delay, [this, life = life_, command = std::move(command)] {
      Server& server = servers_[command.server];
      const bool is_here =
          server.up && (command.server == 0 || server.instance == command.command.server_instance());
      const bool is_of_run = server.run_id == 0 || server.run_id == command.command.run().id();
      absl::StatusOr<v1::ShardReport> report = absl::UnavailableError("no connection");
      if (is_here && is_of_run) {
        server.run_id = command.command.run().id();
        server.shard->Take(command.command);
        report = server.shard->Report();
        KeepFiles(server, *report);
      }
      events_.After(command.server == 0 ? 0 : kLink, [this, life, command, report] {
        if (life != life_) return;
        loop_->Call<&ControlLoop::OnAnswer>(command.server, command.command, report);
        AfterCall();
      });
    });
  }

  // ---------------------------------------------------------------------------------------- workers

  void StartWorker() {
    if (ended_) return;
    const uint64_t id = ++last_worker_;
    workers_[id].id = id;
    Act(id);
  }

  void Act(uint64_t id) {
    const auto worker = workers_.find(id);
    if (worker == workers_.end() || ended_) return;
    events_.After(kStep * (0.5 + random_.Uniform()), [this, id] { Act(id); });
    if (loop_ == nullptr || events_.Now() < worker->second.stalled_until) return;
    if (!worker->second.registered) return Join(&worker->second);
    if (worker->second.done) return Leave(&worker->second);
    Heartbeat(&worker->second);
    if (!worker->second.registered) return;
    if (worker->second.step < static_cast<uint64_t>(worker->second.lease.minibatches_size())) {
      TakeStep(&worker->second);
    } else {
      AskForLease(&worker->second);
    }
  }

  // Its replies arrive when the standby has what they show; otherwise the call has failed, and is made again.
  void Join(Worker* worker) {
    Ask<v1::GetJobReply>(worker->id, v1::GetJobRequest(), [this](Worker* one, const auto& job) {
      if (job.ok()) Register(one, job->run_id());
    });
  }
  void Register(Worker* worker, uint64_t run_id) {
    v1::RegisterRequest request;
    v1::TensorInfo* const tensor = request.add_tensors();
    tensor->set_name("w");
    tensor->add_shape(64);
    request.set_train_samples(options_.samples);
    request.set_protocol_version(kProtocolVersion);
    request.set_run_id(run_id);
    Ask<v1::RegisterReply>(worker->id, request, [this](Worker* one, const auto& reply) {
      if (!reply.ok()) return;
      ASSERT_TRUE(incarnations_.insert(reply->incarnation()).second) << "given twice";
      *one = {.id = one->id, .me = *reply, .registered = true, .heard_at = events_.Now()};
    });
    last_incarnation_ = std::max(last_incarnation_, loop_->now().master().members().next_incarnation());
  }

  void Heartbeat(Worker* worker) {
    if (events_.Now() < worker->heard_at + 2) return;
    v1::HeartbeatRequest request;
    request.set_worker(worker->me.worker());
    request.set_incarnation(worker->me.incarnation());
    *request.mutable_progress() = worker->progress;
    worker->heard_at = events_.Now();
    Ask<v1::HeartbeatReply>(worker->id, request, [this](Worker* one, const auto& reply) {
      one->registered = reply.ok();
      if (!reply.ok() && exact_ && !options_.standby) ExpectNotFound(reply.status());
    });
  }

  // The master refuses a worker only because it counts as lost.
  static void ExpectNotFound(const absl::Status& status) {
    ASSERT_EQ(status.code(), absl::StatusCode::kNotFound) << status;
  }

  void AskForLease(Worker* worker) {
    v1::GetLeaseRequest request;
    request.set_worker(worker->me.worker());
    request.set_incarnation(worker->me.incarnation());
    request.set_after(worker->lease.number());
    *request.mutable_progress() = worker->progress;
    Ask<v1::Lease>(worker->id, request, [this, request](Worker* one, const auto& lease) {
      if (one->me.incarnation() != request.incarnation() || !one->registered) return;
      if (!lease.ok()) {
        if (exact_ && !options_.standby) ExpectNotFound(lease.status());
        one->registered = false;
        return;
      }
      one->heard_at = events_.Now();
      if (lease->state() == v1::Lease::FINISHED) one->done = true;
      if (lease->flush() && one->pushed < one->progress.steps()) Push(one, 0, one->progress.steps());
      if (lease->state() != v1::Lease::GRANTED || lease->number() == one->lease.number()) return;
      if (exact_) NoteGrant(*one, *lease);
      one->lease = *lease;
      one->step = 0;
      one->progress.set_lease(lease->number());
      one->progress.set_lease_steps(0);
      Ask<v1::Lease>(one->id, request, [lease = *lease](Worker*, const auto& again) {
        ASSERT_TRUE(again.ok()) << again.status();
        ASSERT_EQ(again->SerializeAsString(), lease.SerializeAsString()) << "the same call, made again";
      });
    });
  }

  static std::vector<Sample> SamplesOf(const v1::Minibatch& minibatch) {
    std::vector<Sample> samples;
    for (const v1::SampleSpan& span : minibatch.spans()) {
      for (uint64_t i = span.begin(); i < span.end(); ++i) samples.emplace_back(span.epoch(), i);
    }
    return samples;
  }

  void NoteGrant(const Worker& worker, const v1::Lease& lease) {
    std::set<uint64_t> members;
    const v1::ShardCommand command = loop_->now().master().Command();
    for (const v1::Roster& roster : command.rosters()) {
      for (const v1::Member& member : roster.members()) members.insert(member.incarnation());
    }
    const uint64_t me = worker.me.incarnation();
    std::vector<Settled> settled;
    for (const Server& server : servers_) settled.push_back(server.shard->settled());
    for (int i = 0; i < lease.minibatches_size(); ++i) {
      for (const Sample& sample : SamplesOf(lease.minibatches(i))) {
        ASSERT_FALSE(AllHave(settled, sample))
            << "assigned again although all shards have it: " << sample.first << "/" << sample.second;
        std::vector<Grant>& grants = grants_[sample];
        const uint64_t holder = grants.empty() ? 0 : grants.back().incarnation;
        ASSERT_TRUE(members.count(holder) == 0 || members.count(me) == 0)
            << "assigned to two workers at the same time: " << sample.first << "/" << sample.second;
        grants.push_back({me, worker.progress.steps() + i + 1});
      }
    }
  }

  void TakeStep(Worker* worker) {
    const uint64_t steps = worker->progress.steps() + 1, period = options_.job.push_period;
    std::vector<Sample>& samples = trained_[{worker->me.incarnation(), steps}];
    samples = SamplesOf(worker->lease.minibatches(static_cast<int>(worker->step)));
    const bool pushes = (synchronous() ? worker->step + 1 : steps) % period == 0;
    if (pushes && !Push(worker, worker->lease.first_version() + worker->step / period, steps)) return;
    worker->progress.set_steps(steps);
    worker->progress.set_samples(worker->progress.samples() + samples.size());
    worker->progress.set_lease_steps(++worker->step);
  }

  // Pushes to the servers that have not answered. Returns true when all have.
  bool Push(Worker* worker, uint64_t version, uint64_t steps) {
    worker->sent.resize(servers_.size());
    bool late = false;
    for (Server& server : servers_) {
      if (!server.up || server.run_id != loop_->now().run().run_id) return false;
      if (worker->sent[server.index] || (synchronous() && server.shard->version() > version)) continue;
      if (synchronous() && server.shard->version() < version) return false;
      late |= options_.late_pushes > 0 && random_.Uniform() < options_.late_pushes;
      if (late) continue;
      if (!server.shard->Contribute(worker->me.incarnation(), version, steps)) return false;
      worker->sent[server.index] = true;
    }
    // The answers have arrived when the update is made.
    for (const Server& server : servers_) {
      if (synchronous() && server.shard->version() <= version) return false;
    }
    if (late) return false;
    worker->sent.clear();
    worker->pushed = steps;
    return true;
  }

  // A worker leaves in the middle of its work.
  void SendWorkerAway() {
    Worker* const worker = AnyWorker();
    if (worker == nullptr || !worker->registered || loop_ == nullptr) return;
    v1::LeaveRequest request;
    request.set_worker(worker->me.worker());
    request.set_incarnation(worker->me.incarnation());
    *request.mutable_progress() = worker->progress;
    workers_.erase(worker->id);
    Ask<v1::LeaveReply>(request, [](const auto&) {});
    events_.After(1 + 4 * random_.Uniform(), [this] { StartWorker(); });
  }

  void Leave(Worker* worker) {
    if (events_.Now() < worker->heard_at + 0.3) return;
    worker->heard_at = events_.Now();
    v1::LeaveRequest request;
    request.set_worker(worker->me.worker());
    request.set_incarnation(worker->me.incarnation());
    *request.mutable_progress() = worker->progress;
    request.set_stays(true);
    Ask<v1::LeaveReply>(worker->id, request, [this](Worker* one, const auto& reply) {
      const bool stays = !reply.ok() || reply->again_in_seconds() > 0;
      // The job has gone back: the worker trains again.
      if (!stays && !loop_->now().master().state_machine().ended()) one->registered = one->done = false;
    });
  }

  const Options options_;
  v1::Job job_;
  Random random_;
  EventQueue events_;
  std::unique_ptr<LoggedLoop> loop_;  // null: there is no master
  uint64_t life_ = 0;                 // of the loop
  uint64_t step_ = 0;
  std::vector<Server> servers_;
  std::map<int, std::unique_ptr<FakeShard>> kept_;  // by the standbys
  std::map<int, Settled> kept_base_;
  std::map<uint64_t, Worker> workers_;
  std::map<std::pair<uint64_t, uint64_t>, std::vector<Sample>> trained_;  // by incarnation and step
  std::map<std::pair<int, uint64_t>, Settled> files_;                     // by server and checkpoint
  std::optional<Manifest> manifest_;                                      // the newest
  std::optional<v1::MasterCopy> copy_;                                    // at the master's standby
  v1::RunRecord record_;                                                  // in its file
  absl::Status disk_;
  uint64_t last_run_ = 0;
  uint64_t last_instance_ = 0;
  uint64_t last_worker_ = 0;
  uint64_t last_incarnation_ = 0;
  uint64_t master_epoch_ = 1;
  bool ended_ = false;
  int losses_ = 0;
  int checkpoints_ = 0;
  bool exact_ = true;  // the job has not gone back
  std::map<Sample, std::vector<Grant>> grants_;
  std::set<uint64_t> incarnations_;  // that workers were given
  v1::JobStatus last_;
  std::vector<std::string> log_;
  mutable int more_than_once_ = 0;
};

}  // namespace catchment

#endif  // CATCHMENT_TESTS_SERVER_CONTROL_VIRTUAL_CLUSTER_H_
