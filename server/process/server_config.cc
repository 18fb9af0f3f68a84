#include "server/process/server_config.h"

#include <glog/logging.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <map>
#include <system_error>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "common/base/open_files.h"
#include "common/base/processors.h"
#include "common/checkpoint/atomic_file.h"
#include "common/job/data_sources.h"
#include "common/job/job_layout.h"
#include "common/job/job_text.h"
#include "common/job/model_shapes.h"
#include "common/job/validate.h"
#include "common/net/address.h"
#include "server/edge/listener.h"

namespace catchment {
namespace {

// Locks --out and the directory for checkpoints, so that only one master at a time reads or deletes files
// there.
absl::Status LockDirectories(ServerConfig* config) {
  std::map<std::string, std::string> directories;  // by canonical path; both may be the same
  for (const std::string& directory : {config->flags.out, config->checkpoint_dir}) {
    if (directory.empty()) continue;
    if (absl::Status status = CreateDirectories(directory); !status.ok()) return status;
    std::error_code error;
    const std::string path = std::filesystem::canonical(directory, error).string();
    directories.emplace(error ? directory : path, directory);
  }
  for (const auto& [path, directory] : directories) {
    absl::StatusOr<DirectoryLock> lock = DirectoryLock::Take(directory);
    if (!lock.ok()) return lock.status();
    config->locks.push_back(*std::move(lock));
  }
  return absl::OkStatus();
}

}  // namespace

bool IsInsecure(const ServerConfig& config) {
  return config.flags.tls.ca.empty() && !std::all_of(config.servers.begin(), config.servers.end(), IsLocal);
}

absl::StatusOr<ParameterLayout> MakeLayout(const ServerConfig& config) {
  const DataShape data = ShapeOf(config.job.data());
  absl::StatusOr<std::vector<LayerShape>> layers = InferShapes(config.job.model(), data.input, data.target);
  if (!layers.ok()) return layers.status();
  return LayoutOf(config.job, ListTensors(*layers), static_cast<int>(config.servers.size()));
}

v1::Run RunOf(const ServerConfig& config, uint64_t id) {
  v1::Run run;
  run.set_id(id);
  run.set_job(config.job.name());
  run.set_master(config.servers[0]);
  return run;
}

absl::StatusOr<ServerConfig> ReadConfig(const ServerFlags& flags) {
  ServerConfig config;
  config.flags = flags;
  config.servers = absl::StrSplit(flags.servers, ',');
  config.index = flags.index;
  const int processors = AvailableProcessors();
  config.listener_threads = flags.threads == 0 ? DefaultListenerThreads(processors) : flags.threads;
  config.apply.threads = flags.apply_threads < 0 ? DefaultApplyThreads(processors) : flags.apply_threads;
  config.apply.pin = flags.pin_threads;
  config.checkpoint_dir = flags.checkpoint_dir;
  if (config.checkpoint_dir.empty() && !flags.out.empty()) config.checkpoint_dir = flags.out + "/checkpoints";
  absl::StatusOr<v1::Job> job = LoadJob(flags.job);
  if (job.ok()) job = FillDefaultsAndValidate(*std::move(job));
  if (!job.ok()) return job.status();
  config.job = *std::move(job);
  if (config.index == 0 && config.job.faults().standby() > 0 && config.servers.size() == 1) {
    LOG(WARNING)
        << "faults.standby has no effect with one server: if it is lost, the job goes back to the last "
           "checkpoint. Start two servers or more.";
  }
  if (absl::Status status =
          CheckOpenFiles(config.job.workers(), std::ssize(config.servers), config.index == 0);
      !status.ok()) {
    return status;
  }
  auto client = ClientCredentials(flags.tls);
  if (!client.ok()) return client.status();
  auto server = ServerCredentials(flags.tls);
  if (!server.ok()) return server.status();
  config.client_credentials = *client;
  config.server_credentials = *server;
  if (config.index == 0) {
    if (absl::Status status = LockDirectories(&config); !status.ok()) return status;
    config.address_file =
        std::make_unique<MasterAddressFile>(flags.out.empty() ? config.checkpoint_dir : flags.out);
  }
  return config;
}

absl::Status PrepareCheckpointDirectory(const ServerConfig& config) {
  const std::string& directory = config.checkpoint_dir;
  if (directory.empty()) return absl::OkStatus();
  if (absl::Status status = CreateDirectories(directory); !status.ok()) return status;
  if (access(directory.c_str(), W_OK | X_OK) == 0) return absl::OkStatus();
  return absl::ErrnoToStatus(errno, absl::StrCat("cannot write checkpoints to ", directory));
}

}  // namespace catchment
