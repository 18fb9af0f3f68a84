#include "worker/loop/session.h"

#include <glog/logging.h>
#include <unistd.h>

#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/machine.h"
#include "common/base/status_macros.h"
#include "common/base/timer.h"
#include "common/base/version.h"
#include "common/checkpoint/master_address.h"
#include "common/job/algorithm_facts.h"
#include "common/job/data_sources.h"
#include "common/job/job_layout.h"
#include "common/job/job_text.h"
#include "common/job/model_shapes.h"
#include "common/trace/recorder.h"
#include "common/wire/protocol.h"
#include "kernels/cuda/loader.h"
#include "kernels/device/device.h"
#include "worker/algorithms/algorithm.h"
#include "worker/data/dataset.h"
#include "worker/data/sources/load_data.h"
#include "worker/model/network.h"
#include "worker/model/synthetic_model.h"

namespace catchment {
namespace {

absl::StatusOr<std::unique_ptr<Trainable>> MakeSynthetic(const v1::Job& job) {
  const DataShape data = ShapeOf(job.data());
  ASSIGN_OR_RETURN(std::vector<LayerShape> layers, InferShapes(job.model(), data.input, data.target));
  return std::make_unique<SyntheticModel>(job.model().synthetic(), layers, job.seed(),
                                          std::make_unique<SteadyTimer>());
}

absl::StatusOr<std::unique_ptr<Trainable>> MakeNetwork(const WorkerOptions& options, const v1::Job& job,
                                                       const Dataset& data) {
  ASSIGN_OR_RETURN(const DeviceRequest device, ResolveDevice(options.device, job.device()));
  ASSIGN_OR_RETURN(DeviceChoice choice, ChooseDevice(device, {.cpu = {options.threads, job.deterministic()},
                                                              .local_index = options.local_index,
                                                              .precision = job.computation().precision(),
                                                              .cuda_plugin = CudaPluginPath()}));
  LOG(INFO) << choice.explanation;
  const std::string device_text = choice.backend->Describe();
  absl::StatusOr<std::unique_ptr<Network>> network =
      Network::Create(job.model(), data.input_shape(), data.target(),
                      {.max_batch_size = static_cast<int>(LargestMinibatch(job)),
                       .usual_batch_size = static_cast<int>(job.batch_size()),
                       .seed = job.seed(),
                       .loss_scale = job.computation().loss_scale(),
                       .loss_scale_period = job.computation().loss_scale_period()},
                      std::move(choice.backend));
  // The description now contains what computes the convolutions.
  if (network.ok() && (*network)->device() != device_text) LOG(INFO) << (*network)->device();
  return network;
}

// Returns an error unless the worker has a program exactly if the job requires one.
absl::Status CheckProgram(const WorkerOptions& options, const v1::Job& job) {
  if (job.model().has_external() && options.program.empty()) {
    return absl::FailedPreconditionError(
        "the job's gradients are a program's (model.external): start this worker with --program=COMMAND");
  }
  if (!job.model().has_external() && !options.program.empty()) {
    return absl::FailedPreconditionError(
        "--program is for jobs with model.external, and this job's model is made of layers: leave the flag "
        "out, or start the job with `catchment train --program=COMMAND`");
  }
  if (job.model().has_external() && options.role == v1::EVALUATOR &&
      job.data().external().test_samples() == 0) {
    return absl::FailedPreconditionError(
        "there is nothing to score: the program has no test set "
        "(data.external.test_samples is 0); start no evaluator");
  }
  return absl::OkStatus();
}

// `program`: it makes the local steps.
absl::Status CheckWhoStepsLocally(const v1::Job& job, bool program) {
  if (program) return CheckLocalSteps(job);
  if (!job.model().external().local_steps()) return absl::OkStatus();
  return absl::InvalidArgumentError(
      "model.external.local_steps: the job leaves the local steps to the program, which joined without an "
      "optimizer; give join() the optimizer that it had when the job was made, or make the job anew");
}

absl::StatusOr<std::unique_ptr<AttachedModel>> Attach(const WorkerOptions& options, const v1::Job& job,
                                                      const DataSets& data, const StopFlag& stop) {
  const DataShape shape = ShapeOf(job.data());
  ASSIGN_OR_RETURN(const auto layers, InferShapes(job.model(), shape.input, shape.target));
  absl::StatusOr<std::unique_ptr<AttachedModel>> model = StartAttachedModel(
      {.command = options.program, .threads = options.threads, .local_index = options.local_index},
      {.job = job.name(),
       .tensors = ListTensors(layers),
       .train_samples = static_cast<uint64_t>(data.train.size()),
       .test_samples = static_cast<uint64_t>(data.test.size()),
       .batch_size = job.batch_size(),
       .largest_minibatch = LargestMinibatch(job),
       .seed = job.seed(),
       .evaluates = options.role == v1::EVALUATOR},
      [&stop] { return stop.IsSet(); });
  // An evaluator registers before its program has joined, so that a short job does not end without it.
  if (!model.ok() || options.role == v1::EVALUATOR) return model;
  absl::Status status = (*model)->AwaitHello();
  if (status.ok()) status = CheckWhoStepsLocally(job, (*model)->local_steps());
  if (status.ok()) return model;
  (*model)->Finish(status).IgnoreError();
  return status;
}

absl::StatusOr<std::unique_ptr<Trainable>> MakeModel(const WorkerOptions& options, const v1::Job& job,
                                                     const DataSets& data, const StopFlag& stop) {
  if (job.model().has_external()) return Attach(options, job, data, stop);
  return job.model().has_synthetic() ? MakeSynthetic(job) : MakeNetwork(options, job, data.train);
}

// Copies the files that the process reads while it works to options.stage. Returns null if there are none, or
// if they cannot be copied: it then reads them where they are.
std::unique_ptr<Stage> StageData(const WorkerOptions& options, const v1::Job& job, const DataPaths& paths,
                                 const StopFlag& stop) {
  if (options.stage.empty()) return nullptr;
  const auto files = ListFilesInUse(job.data(), /*test=*/options.role == v1::EVALUATOR, paths);
  if (!files.ok()) return nullptr;  // LoadData says why
  if (files->empty()) {
    LOG(INFO) << "--stage has no effect: this job's data are not read from files while they are used";
    return nullptr;
  }
  const SteadyClock clock;
  absl::StatusOr<std::unique_ptr<Stage>> stage =
      Stage::Copy(options.stage, *files, clock, [&stop] { return stop.IsSet(); });
  if (stage.ok()) return *std::move(stage);
  LOG(WARNING) << "--stage=" << options.stage << ": " << stage.status().message()
               << "; the data are read where they are";
  return nullptr;
}

absl::Status CheckJobReply(const v1::GetJobReply& reply, const std::string& master) {
  const std::string who = "the master at " + master;
  RETURN_IF_ERROR(CheckProtocolVersion(who, reply.protocol_version(), reply.build(), "this worker"));
  const absl::Status known = CheckFieldsKnown(reply.job());
  if (known.ok()) return known;
  return absl::FailedPreconditionError(
      absl::StrCat("the job of ", who, ": ", known.message(), " (Catchment ", BuildVersion(),
                   "): update the worker to the master's build (", reply.build(), ")"));
}

// Takes what is particular to a run. The residual belongs to the previous run and is dropped.
absl::Status EnterRun(const v1::GetJobReply& reply, Session* session) {
  LOG(INFO) << "the master was restarted, or the job went back to a checkpoint; registering again";
  if (reply.servers_size() != static_cast<int>(session->servers.size())) {
    ASSIGN_OR_RETURN(session->layout,
                     LayoutOf(session->job, session->model->tensors(), reply.servers_size()));
  }
  session->run_id = reply.run_id();
  NameTracedRun(session->run_id);
  session->servers = {reply.servers().begin(), reply.servers().end()};
  session->residual.clear();
  return absl::OkStatus();
}

// Returns an error if the master that has answered is that of another run than the one in the directory that
// the user has given.
absl::Status CheckIsMeant(const WorkerOptions& options, const v1::GetJobReply& reply) {
  if (options.directory.empty()) return absl::OkStatus();
  const absl::StatusOr<MasterPlace> place = ReadMasterPlace(options.directory);
  // A run that ends removes its files.
  if (!place.ok()) return absl::OkStatus();
  return CheckSameRun(options.directory, *place, reply.run_id(), reply.job().name());
}

// A master that was started again after the job's end only says how the job ended.
absl::StatusOr<v1::GetJobReply> GetJob(const WorkerOptions& options, MasterClient* master) {
  ASSIGN_OR_RETURN(v1::GetJobReply reply, master->Call(&MasterClient::Stub::GetJob, v1::GetJobRequest()));
  if (!reply.ended().empty())
    return absl::CancelledError(absl::StrCat("master at ", master->address(), ": ", reply.ended()));
  RETURN_IF_ERROR(CheckIsMeant(options, reply));
  return reply;
}

}  // namespace

absl::StatusOr<Session> OpenSession(const WorkerOptions& options, MasterClient* master) {
  ASSIGN_OR_RETURN(v1::GetJobReply reply, GetJob(options, master));
  RETURN_IF_ERROR(CheckJobReply(reply, master->address()));
  NameTracedRun(reply.run_id());
  DataPaths paths = DataPathsFromEnvironment();
  std::unique_ptr<Stage> stage = StageData(options, reply.job(), paths, master->stop());
  if (stage != nullptr) paths.staged = stage->root();
  ASSIGN_OR_RETURN(DataSets data, LoadData(reply.job(), paths, [master] { return master->stop().IsSet(); }));
  RETURN_IF_ERROR(CheckProgram(options, reply.job()));
  ASSIGN_OR_RETURN(std::unique_ptr<Trainable> model, MakeModel(options, reply.job(), data, master->stop()));
  AttachedModel* const attached =
      reply.job().model().has_external() ? static_cast<AttachedModel*>(model.get()) : nullptr;
  ASSIGN_OR_RETURN(ParameterLayout layout, LayoutOf(reply.job(), model->tensors(), reply.servers_size()));
  if (attached != nullptr && MayKeepWeights(reply.job())) {
    std::vector<std::vector<Range>> fragments;
    for (int f = 0; f < layout.num_fragments(); ++f) fragments.push_back(layout.fragment(f));
    attached->KeepWeights(fragments, reply.job().algorithm().contribution());
  }
  const uint64_t checksum = options.role == v1::WORKER ? DataChecksum(data) : 0;
  return Session{reply.run_id(),    reply.job(),     {reply.servers().begin(), reply.servers().end()},
                 std::move(stage),  std::move(data), std::move(model),
                 std::move(layout), attached,        /*residual=*/{},
                 /*version=*/0,     checksum};
}

absl::Status FollowMaster(const WorkerOptions& options, const absl::Status& lost, MasterClient* master,
                          absl::StatusOr<Session>* session) {
  const absl::StatusOr<v1::GetJobReply> reply = GetJob(options, master);
  if (!reply.ok()) {
    LOG(WARNING) << lost.message();
    return reply.status();
  }
  if (reply->run_id() == (*session)->run_id) {
    LOG(WARNING) << lost.message() << "; registering again";
    return absl::OkStatus();
  }
  RETURN_IF_ERROR(CheckJobReply(*reply, master->address()));
  if (JobFingerprint(reply->job()) == JobFingerprint((*session)->job)) return EnterRun(*reply, &**session);
  LOG(WARNING) << "the master at " << master->address() << " was started again with another job";
  // The device's memory and the data's are free before they are taken again.
  *session = absl::UnavailableError("the session is being opened anew");
  *session = OpenSession(options, master);
  return session->status();
}

v1::RegisterRequest MakeRegisterRequest(const Session& session, v1::Role role) {
  v1::RegisterRequest request;
  request.set_role(role);
  for (const TensorSpec& tensor : session.model->tensors()) {
    v1::TensorInfo* info = request.add_tensors();
    info->set_name(tensor.name);
    info->mutable_shape()->Add(tensor.shape.begin(), tensor.shape.end());
  }
  request.set_train_samples(session.data.train.size());
  request.set_class_names(session.data.class_names);
  request.set_data_checksum(session.data_checksum);
  request.set_host(HostName());
  request.set_pid(getpid());
  request.set_device(session.model->device());
  request.set_run_id(session.run_id);
  request.set_protocol_version(kProtocolVersion);
  request.set_build(BuildVersion());
  request.set_version(session.version);
  return request;
}

}  // namespace catchment
