#include "worker/session.h"

#include <glog/logging.h>
#include <unistd.h>

#include "kernels/cuda/loader.h"
#include "kernels/device.h"
#include "worker/data/load_data.h"

namespace catchment {
namespace {

std::string HostName() {
  char name[256] = "";
  gethostname(name, sizeof(name) - 1);
  return name;
}

absl::StatusOr<std::unique_ptr<Network>> MakeNetwork(const WorkerOptions& options, const v1::Job& job,
                                                     const Dataset& data) {
  const absl::StatusOr<v1::Device> device = ResolveDevice(options.device, job.device());
  if (!device.ok()) return device.status();
  absl::StatusOr<DeviceChoice> choice =
      ChooseDevice(*device, {options.threads, job.deterministic()}, CudaPluginPath());
  if (!choice.ok()) return choice.status();
  LOG(INFO) << choice->explanation;
  return Network::Create(job.model(), data.input_shape(), data.num_classes(),
                         {static_cast<int>(job.batch_size()), job.seed()}, std::move(choice->backend));
}

}  // namespace

absl::StatusOr<Session> OpenSession(const WorkerOptions& options, MasterClient* master) {
  absl::StatusOr<v1::GetJobReply> reply = master->Call(&MasterClient::Stub::GetJob, v1::GetJobRequest());
  if (!reply.ok()) return reply.status();
  absl::StatusOr<DataSets> data = LoadData(reply->job().data(), DataPathsFromEnvironment());
  if (!data.ok()) return data.status();
  absl::StatusOr<std::unique_ptr<Network>> network = MakeNetwork(options, reply->job(), data->train);
  if (!network.ok()) return network.status();
  absl::StatusOr<ParameterLayout> layout = ParameterLayout::Create(
      (*network)->tensors(), reply->servers_size(), int64_t{reply->job().block_kib()} * 1024 / sizeof(float));
  if (!layout.ok()) return layout.status();
  return Session{reply->job(), {reply->servers().begin(), reply->servers().end()}, *std::move(data),
                 *std::move(network), *std::move(layout)};
}

v1::RegisterRequest MakeRegisterRequest(const Session& session, v1::Role role) {
  v1::RegisterRequest request;
  request.set_role(role);
  for (const TensorSpec& tensor : session.network->tensors()) {
    v1::TensorInfo* info = request.add_tensors();
    info->set_name(tensor.name);
    info->mutable_shape()->Add(tensor.shape.begin(), tensor.shape.end());
  }
  request.set_train_samples(session.data.train.size());
  request.set_host(HostName());
  request.set_pid(getpid());
  request.set_device(session.network->device());
  return request;
}

}  // namespace catchment
