#include "server/process/server_config.h"

#include <glog/logging.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <map>
#include <system_error>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "common/base/atomic_file.h"
#include "common/base/machine.h"
#include "common/base/open_files.h"
#include "common/base/status_macros.h"
#include "common/checkpoint/directory_claim.h"
#include "common/job/data_sources.h"
#include "common/job/job_layout.h"
#include "common/job/job_text.h"
#include "common/job/model_shapes.h"
#include "common/job/validate.h"
#include "common/net/address.h"
#include "server/edge/listener.h"

namespace catchment {
namespace {

// Returns the directory in which commands look for the master; empty if there is none.
std::string AddressDirectory(const ServerConfig& config) {
  return config.flags.out.empty() ? config.checkpoint_dir : config.flags.out;
}

// Returns the names that the master writes there.
Names NamesOf(const ServerConfig& config) {
  Names names;
  for (const std::string& name : MasterNames()) {
    const bool is_used = name == "checkpoints"
                             ? config.checkpoint_dir == config.flags.out + "/checkpoints"
                             : !config.flags.out.empty() || absl::StartsWith(name, "master.");
    if (is_used) names.push_back(name);
  }
  return names;
}

// Locks --out and the directory for checkpoints, so that only one master at a time reads or deletes files
// there, and claims their files.
absl::Status LockDirectories(ServerConfig* config) {
  const std::string claimed = AddressDirectory(*config);
  if (claimed.empty()) return absl::OkStatus();
  const Unclaimed unclaimed = ProvenByRun(config->checkpoint_dir);
  RETURN_IF_ERROR(CheckClaim(claimed, NamesOf(*config), unclaimed));
  std::map<std::string, std::string> directories;  // by canonical path; both may be the same
  for (const std::string& directory : {config->flags.out, config->checkpoint_dir}) {
    if (directory.empty()) continue;
    RETURN_IF_ERROR(CreateDirectories(directory));
    std::error_code error;
    const std::string path = std::filesystem::canonical(directory, error).string();
    directories.emplace(error ? directory : path, directory);
  }
  // The lock in checkpoints/ is a file there, so the names are claimed first.
  ASSIGN_OR_RETURN(DirectoryLock first, DirectoryLock::Take(claimed));
  config->locks.push_back(std::move(first));
  RETURN_IF_ERROR(ClaimNames(claimed, NamesOf(*config), unclaimed));
  for (const auto& [path, directory] : directories) {
    if (directory == claimed) continue;
    ASSIGN_OR_RETURN(DirectoryLock lock, DirectoryLock::Take(directory));
    config->locks.push_back(std::move(lock));
  }
  return absl::OkStatus();
}

}  // namespace

bool IsInsecure(const ServerConfig& config) {
  return config.flags.tls.ca.empty() && !std::all_of(config.servers.begin(), config.servers.end(), IsLocal);
}

absl::StatusOr<ParameterLayout> MakeLayout(const ServerConfig& config) {
  const DataShape data = ShapeOf(config.job.data());
  ASSIGN_OR_RETURN(std::vector<LayerShape> layers, InferShapes(config.job.model(), data.input, data.target));
  return LayoutOf(config.job, ListTensors(layers), static_cast<int>(config.servers.size()));
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
  ASSIGN_OR_RETURN(v1::Job job, LoadJob(flags.job));
  ASSIGN_OR_RETURN(config.job, FillDefaultsAndValidate(std::move(job)));
  if (config.index == 0 && config.job.faults().standby() > 0 && config.servers.size() == 1) {
    LOG(WARNING)
        << "faults.standby has no effect with one server: if it is lost, the job goes back to the last "
           "checkpoint. Start two servers or more.";
  }
  RETURN_IF_ERROR(CheckOpenFiles(config.job.workers(), std::ssize(config.servers), config.index == 0));
  ASSIGN_OR_RETURN(auto client, ClientCredentials(flags.tls));
  ASSIGN_OR_RETURN(auto server, ServerCredentials(flags.tls));
  config.client_credentials = client;
  config.server_credentials = server;
  if (config.index == 0) {
    RETURN_IF_ERROR(LockDirectories(&config));
    config.address_file = std::make_unique<MasterAddressFile>(AddressDirectory(config));
  }
  return config;
}

absl::Status PrepareCheckpointDirectory(const ServerConfig& config) {
  const std::string& directory = config.checkpoint_dir;
  if (directory.empty()) return absl::OkStatus();
  RETURN_IF_ERROR(CreateDirectories(directory));
  if (access(directory.c_str(), W_OK | X_OK) == 0) return absl::OkStatus();
  return absl::ErrnoToStatus(errno, absl::StrCat("cannot write checkpoints to ", directory));
}

}  // namespace catchment
