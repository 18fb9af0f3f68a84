// A hostile member sets each field of each of its messages to its extremes. The honest members' samples,
// local steps and scores, the servers' commands, and the end of the job are as without it.
#include "server/control/stated_facts.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <limits>
#include <memory>
#include <set>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/net/message_limits.h"
#include "proto/wire.pb.h"
#include "server/control/master.h"
#include "tests/server/control/fake_shard.h"
#include "tests/server/control/testing.h"

namespace catchment {
namespace {

using google::protobuf::Descriptor;
using google::protobuf::FieldDescriptor;
using google::protobuf::Message;
using testing::HasSubstr;

constexpr uint64_t kSamples = 400, kTestSamples = 50;

// ------------------------------------------------------------------------------------------------ messages

// Sets one field, of the message or of a message in it, to one of its extremes.
struct Extreme {
  std::string name;  // "Progress.steps = 18446744073709551615"
  std::function<void(Message*)> set;
};

// Adds the extremes of the fields of `type`; `inner` returns the message of this type in the request.
void AddExtremes(const Descriptor& type, const std::function<Message*(Message*)>& inner,
                 std::vector<Extreme>* extremes) {
  for (int i = 0; i < type.field_count(); ++i) {
    const FieldDescriptor* const field = type.field(i);
    const auto add = [&](const auto& value, auto setter) {
      extremes->push_back(
          {absl::StrCat(type.name(), ".", field->name(), " = ", value), [=](Message* request) {
             Message* const message = inner(request);
             (message->GetReflection()->*setter)(message, field, value);
           }});
    };
    if (field->is_repeated() || field->options().GetExtension(v1::owner) == v1::Owner::SCORES) continue;
    switch (field->cpp_type()) {
      case FieldDescriptor::CPPTYPE_MESSAGE:
        AddExtremes(
            *field->message_type(),
            [=](Message* request) {
              Message* const message = inner(request);
              return message->GetReflection()->MutableMessage(message, field);
            },
            extremes);
        break;
      case FieldDescriptor::CPPTYPE_UINT32:
        for (const uint32_t value : {0u, 1u, 4u, 9999u, UINT32_MAX})
          add(value, &google::protobuf::Reflection::SetUInt32);
        break;
      case FieldDescriptor::CPPTYPE_UINT64:
        for (const uint64_t value : {uint64_t{0}, uint64_t{1}, uint64_t{8}, uint64_t{1} << 40, UINT64_MAX})
          add(value, &google::protobuf::Reflection::SetUInt64);
        break;
      case FieldDescriptor::CPPTYPE_DOUBLE:
        for (const double value :
             {-1e300, -1.0, 0.0, 1e-9, 1e9, 1e300, std::numeric_limits<double>::infinity(), std::nan("")})
          add(value, &google::protobuf::Reflection::SetDouble);
        break;
      case FieldDescriptor::CPPTYPE_BOOL:
        for (const bool value : {false, true}) add(value, &google::protobuf::Reflection::SetBool);
        break;
      case FieldDescriptor::CPPTYPE_ENUM:
        for (const int value : {0, 1, 7}) add(value, &google::protobuf::Reflection::SetEnumValue);
        break;
      case FieldDescriptor::CPPTYPE_STRING:
        for (const char* value : {"", "node-1"}) {
          extremes->push_back(
              {absl::StrCat(type.name(), ".", field->name(), " = '", value, "'"), [=](Message* request) {
                 Message* const message = inner(request);
                 message->GetReflection()->SetString(message, field, value);
               }});
        }
        break;
      default:
        ADD_FAILURE() << "a field of another type: " << field->full_name();
    }
  }
}

std::vector<Extreme> ExtremesOf(const Descriptor& type) {
  std::vector<Extreme> extremes;
  AddExtremes(
      type, [](Message* request) { return request; }, &extremes);
  return extremes;
}

// ----------------------------------------------------------------------------------------------------- job

v1::Job JobOf(const std::string& kind) {
  v1::Job job = MakeJob({.synchronous = kind == "synchronous", .workers = 2, .batch_size = 4, .epochs = 3});
  v1::Algorithm& algorithm = *job.mutable_algorithm();
  if (kind == "by speed") {
    algorithm.mutable_contribution()->mutable_pseudo_gradient()->set_local_steps(4);
    algorithm.mutable_contribution()->mutable_pseudo_gradient()->set_steps_by_speed(true);
  }
  if (kind == "quorum") {
    algorithm.mutable_consistency()->mutable_quorum()->set_minimum(1);
    algorithm.mutable_contribution()->mutable_pseudo_gradient()->set_local_steps(1);
  }
  job.mutable_evaluation()->set_target_accuracy(0.99f);
  job.mutable_evaluation()->set_patience(50);
  job.mutable_evaluation()->set_keep_best(true);
  job.mutable_optimizer()->set_learning_rate(0.1f);
  job.mutable_optimizer()->mutable_schedule()->set_decay(v1::Schedule::PLATEAU);
  job.mutable_optimizer()->mutable_schedule()->set_patience(100);
  return job;
}

struct Peer {
  v1::RegisterRequest request;
  v1::RegisterReply me;
  v1::Lease lease;
  v1::Progress progress;
  bool done = false;
};

// Two honest workers and an honest evaluator train a job; a third member of a role joins, may take a lease,
// sends what the attack makes of its messages, and is silent.
class Training {
 public:
  explicit Training(const v1::Job& job) {
    master_ = *Master::Create(job, {{"w", {8}}}, 1, &clock_, std::nullopt);
    shard_ = std::make_unique<FakeShard>(0, job.algorithm().consistency().has_synchronous());
    Join(v1::WORKER, 1, &workers_[0]);
    Join(v1::WORKER, 2, &workers_[1]);
    Join(v1::EVALUATOR, 3, &evaluator_);
    while (master_->Status().test_samples() == 0) Round();
  }

  void JoinHostile(v1::Role role, bool with_lease) {
    Join(role, 66, &hostile_);
    hostile_.progress.set_compute_seconds(1);
    for (int i = 0; with_lease && role == v1::WORKER && hostile_.lease.number() == 0 && i < 50; ++i) {
      AskLease(&hostile_);
      Exchange();
    }
    if (hostile_.lease.number() > 0) {
      // It says that it has done a step, in a time that its messages state.
      hostile_.progress.set_lease_steps(1);
      hostile_.progress.set_steps(1);
      hostile_.progress.set_samples(4);
    }
    evaluator_pauses_ = true;
    while (role == v1::EVALUATOR && evaluation_ == 0) {
      Round();
      evaluation_ = Ask(hostile_);
    }
    evaluator_pauses_ = false;
  }

  // Sends the message of each kind that the extreme belongs to, otherwise as a correct member would.
  void Send(v1::Role role, const Descriptor& type, const Extreme& extreme) {
    if (&type == v1::RegisterRequest::descriptor()) {
      v1::RegisterRequest request = hostile_.request;
      request.set_pid(67);
      if (Make(extreme, &request)) (void)master_->Register(request, "10.0.0.66");
    } else if (&type == v1::HeartbeatRequest::descriptor()) {
      v1::HeartbeatRequest request;
      Fill(role, &request);
      if (Make(extreme, &request) && Proved(request.incarnation())) (void)master_->Heartbeat(request);
    } else if (&type == v1::GetLeaseRequest::descriptor()) {
      v1::GetLeaseRequest request;
      request.set_worker(hostile_.me.worker());
      request.set_incarnation(hostile_.me.incarnation());
      request.set_after(hostile_.lease.number());
      *request.mutable_progress() = hostile_.progress;
      if (Make(extreme, &request) && Proved(request.incarnation())) (void)master_->GetLease(request);
    } else if (&type == v1::LeaveRequest::descriptor()) {
      v1::LeaveRequest request;
      Fill(role, &request);
      if (Make(extreme, &request) && Proved(request.incarnation())) master_->Leave(request);
    } else {
      v1::EvaluationReport report;
      report.set_incarnation(hostile_.me.incarnation());
      report.set_evaluation(evaluation_);
      report.set_samples(kTestSamples);
      report.set_correct(10);
      report.set_loss_sum(100);
      if (Make(extreme, &report) && Proved(report.incarnation())) (void)master_->ReportEvaluation(report);
    }
  }

  // Trains to the end, and returns all that honest members and the servers have seen.
  std::string Finish() {
    for (int round = 0; round < 2000 && !master_->state_machine().ended(); ++round) Round();
    const v1::JobStatus status = master_->Status();
    return absl::StrCat(v1::JobStatus::Phase_Name(status.phase()), " ", status.reason(), " ",
                        status.ended_early(), " samples ", status.samples(), " of ", status.total_samples(),
                        " of ", status.train_samples(), "; best ", status.best_test_loss(), " ",
                        status.best_test_accuracy(), " of ", status.test_samples(), "; ",
                        absl::StrJoin(seen_, ", "));
  }

 private:
  static bool Make(const Extreme& extreme, Message* request) {
    extreme.set(request);
    return CheckLimits(*request).ok();
  }
  // A call with another incarnation fails for its token.
  bool Proved(uint64_t incarnation) const { return incarnation == hostile_.me.incarnation(); }

  template <typename Request>
  void Fill(v1::Role role, Request* request) {
    request->set_role(role);
    request->set_worker(hostile_.me.worker());
    request->set_incarnation(hostile_.me.incarnation());
    *request->mutable_progress() = hostile_.progress;
  }

  void Join(v1::Role role, uint32_t pid, Peer* peer) {
    peer->request.set_role(role);
    v1::TensorInfo* const tensor = peer->request.add_tensors();
    tensor->set_name("w");
    tensor->add_shape(8);
    if (role == v1::WORKER) peer->request.set_train_samples(kSamples);
    peer->request.set_host("node");
    peer->request.set_pid(pid);
    absl::StatusOr<v1::RegisterReply> reply = master_->Register(peer->request, absl::StrCat("10.0.0.", pid));
    ASSERT_TRUE(reply.ok()) << reply.status();
    peer->me = *reply;
  }

  uint64_t Ask(const Peer& evaluator) {
    v1::GetEvaluationRequest request;
    request.set_incarnation(evaluator.me.incarnation());
    const auto reply = master_->GetEvaluation(request);
    return reply.ok() ? reply->evaluation() : 0;
  }

  void AskLease(Peer* worker) {
    v1::GetLeaseRequest request;
    request.set_worker(worker->me.worker());
    request.set_incarnation(worker->me.incarnation());
    request.set_after(worker->lease.number());
    *request.mutable_progress() = worker->progress;
    const absl::StatusOr<v1::Lease> lease = master_->GetLease(request);
    ASSERT_TRUE(lease.ok()) << lease.status();
    if (lease->state() == v1::Lease::FINISHED) {
      worker->done = true;
      v1::LeaveRequest leave;
      leave.set_worker(worker->me.worker());
      leave.set_incarnation(worker->me.incarnation());
      *leave.mutable_progress() = worker->progress;
      master_->Leave(leave);
    }
    if (lease->state() != v1::Lease::GRANTED) return;
    worker->lease = *lease;
    worker->progress.set_lease(lease->number());
    worker->progress.set_lease_steps(0);
    seen_.insert(absl::StrCat("local steps ", lease->local_steps()));
  }

  void Step(Peer* worker) {
    if (worker->done) return;
    const uint64_t step = worker->progress.lease_steps();
    if (step == static_cast<uint64_t>(worker->lease.minibatches_size())) return AskLease(worker);
    uint64_t samples = 0;
    for (const v1::SampleSpan& span : worker->lease.minibatches(static_cast<int>(step)).spans())
      samples += span.end() - span.begin();
    worker->progress.set_lease_steps(step + 1);
    worker->progress.set_steps(worker->progress.steps() + 1);
    worker->progress.set_samples(worker->progress.samples() + samples);
    worker->progress.set_compute_seconds(0.1 * static_cast<double>(worker->progress.steps()));
    shard_->Contribute(worker->me.incarnation(), worker->lease.first_version() + step,
                       worker->progress.steps());
  }

  void Exchange() {
    const v1::ShardCommand command = master_->Command();
    seen_.insert(absl::StrCat("rate ", command.plateau_factor(), " schedule ", command.most_samples(), " of ",
                              command.total_samples(), " steps of ", command.step_seconds(), " s"));
    shard_->Take(command);
    ASSERT_TRUE(master_->OnShardReport(shard_->Report()).ok());
    for (const CompleteCheckpoint& checkpoint : master_->checkpoints().TakeComplete())
      master_->OnCheckpointRecorded(checkpoint.number, absl::OkStatus());
  }

  // A tenth of a second.
  void Round() {
    for (Peer& worker : workers_) Step(&worker);
    for (Peer& worker : workers_) Beat(v1::WORKER, worker);
    Beat(v1::EVALUATOR, evaluator_);
    if (const uint64_t evaluation = evaluator_pauses_ ? 0 : Ask(evaluator_)) {
      v1::EvaluationReport report;
      report.set_incarnation(evaluator_.me.incarnation());
      report.set_evaluation(evaluation);
      report.set_samples(kTestSamples);
      report.set_correct(25);
      report.set_loss_sum(50);
      const auto reply = master_->ReportEvaluation(report);
      ASSERT_TRUE(reply.ok()) << reply.status();
      if (reply->keep()) master_->OnBestKept(evaluation, absl::OkStatus());
    }
    Exchange();
    clock_.Advance(0.1);
    master_->Tick();
  }

  void Beat(v1::Role role, const Peer& peer) {
    v1::HeartbeatRequest request;
    request.set_role(role);
    request.set_worker(peer.me.worker());
    request.set_incarnation(peer.me.incarnation());
    *request.mutable_progress() = peer.progress;
    if (peer.done) return;
    ASSERT_TRUE(master_->Heartbeat(request).ok());
  }

  SettableClock clock_;
  std::unique_ptr<Master> master_;
  std::unique_ptr<FakeShard> shard_;
  Peer workers_[2], evaluator_, hostile_;
  uint64_t evaluation_ = 0;
  bool evaluator_pauses_ = false;
  std::set<std::string> seen_;
};

const std::vector<std::pair<v1::Role, const Descriptor*>>& Messages() {
  static const auto* const messages = new std::vector<std::pair<v1::Role, const Descriptor*>>{
      {v1::WORKER, v1::RegisterRequest::descriptor()},  {v1::EVALUATOR, v1::RegisterRequest::descriptor()},
      {v1::WORKER, v1::HeartbeatRequest::descriptor()}, {v1::EVALUATOR, v1::HeartbeatRequest::descriptor()},
      {v1::WORKER, v1::GetLeaseRequest::descriptor()},  {v1::WORKER, v1::LeaveRequest::descriptor()},
      {v1::EVALUATOR, v1::LeaveRequest::descriptor()},  {v1::EVALUATOR, v1::EvaluationReport::descriptor()},
  };
  return *messages;
}

TEST(StatedFactsTest, NoFieldOfAMemberChangesWhatHonestMembersSee) {
  for (const std::string kind : {"synchronous", "by speed", "quorum"}) {
    const v1::Job job = JobOf(kind);
    for (const auto& [role, type] : Messages()) {
      for (const bool with_lease : {false, true}) {
        if (with_lease && role == v1::EVALUATOR) continue;
        Training quiet(job);
        quiet.JoinHostile(role, with_lease);
        const std::string expected = quiet.Finish();
        ASSERT_THAT(expected, HasSubstr(absl::StrCat("DONE   samples ", 3 * kSamples)));
        for (const Extreme& extreme : ExtremesOf(*type)) {
          SCOPED_TRACE(absl::StrCat(kind, ", ", v1::Role_Name(role), with_lease ? " with a lease, " : ", ",
                                    extreme.name));
          Training attacked(job);
          attacked.JoinHostile(role, with_lease);
          for (int i = 0; i < 3; ++i) attacked.Send(role, *type, extreme);
          EXPECT_EQ(attacked.Finish(), expected);
        }
      }
    }
  }
}

// ------------------------------------------------------------------------------------------------- owners

void AddMessages(const Descriptor& type, std::set<const Descriptor*>* types) {
  if (!types->insert(&type).second) return;
  for (int i = 0; i < type.field_count(); ++i) {
    if (type.field(i)->message_type() != nullptr) AddMessages(*type.field(i)->message_type(), types);
  }
}

TEST(StatedFactsTest, EveryFieldOfAMembersMessageNamesItsOwner) {
  std::set<const Descriptor*> stated;
  for (const Descriptor* type :
       {v1::Hello::descriptor(), v1::Block::descriptor(), v1::SnapshotRequest::descriptor(),
        v1::BestWeights::descriptor(), v1::SaveWorkerStateRequest::descriptor(),
        v1::LoadWorkerStateRequest::descriptor(), v1::GetEvaluationRequest::descriptor(),
        v1::GetStatusRequest::descriptor()})
    AddMessages(*type, &stated);
  for (const auto& [role, type] : Messages()) AddMessages(*type, &stated);
  // Every call that a worker or an evaluator may make has one of these requests.
  const auto& service = *v1::BestWeights::descriptor()->file()->FindServiceByName("MasterService");
  for (int i = 0; i < service.method_count(); ++i) {
    const std::string& name = service.method(i)->name();
    if (name == "GetJob" || name == "RegisterServer" || name == "Stop") continue;
    EXPECT_EQ(stated.count(service.method(i)->input_type()), 1u) << name;
  }
  std::set<v1::Owner::Name> owners;
  for (const Descriptor* type : stated) {
    for (int i = 0; i < type->field_count(); ++i) {
      const FieldDescriptor& field = *type->field(i);
      if (field.message_type() != nullptr) continue;
      const v1::Owner::Name owner = field.options().GetExtension(v1::owner);
      EXPECT_NE(owner, v1::Owner::NONE) << field.full_name();
      owners.insert(owner);
    }
  }
  EXPECT_EQ(owners.size() + 1, static_cast<size_t>(v1::Owner::Name_descriptor()->value_count()))
      << "an owner of no field";
}

TEST(StatedFactsTest, RefusalNamesTheMemberTheFieldAndBothNumbers) {
  v1::HeartbeatRequest request;
  request.set_worker(4);
  request.mutable_progress()->set_steps(9);
  StatedFacts facts("worker 4 (node:7)");
  EXPECT_TRUE(facts.Check(request).ok());
  facts.Set(v1::Owner::WORKER_INDEX, 4).Set(v1::Owner::GRANTED_STEPS, 9);
  EXPECT_TRUE(facts.Check(request).ok());
  facts.Set(v1::Owner::GRANTED_STEPS, 8);
  EXPECT_EQ(facts.Check(request).message(),
            "worker 4 (node:7) reports Progress.steps 9, but it was assigned 8");
  facts.Set(v1::Owner::WORKER_INDEX, 5);
  EXPECT_EQ(facts.Check(request).message(),
            "worker 4 (node:7) reports HeartbeatRequest.worker 4, but it is worker 5");
}

}  // namespace
}  // namespace catchment
