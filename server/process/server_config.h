// The configuration of a server's process, from its flags and its job, and the state that its runs leave.
#ifndef CATCHMENT_SERVER_PROCESS_SERVER_CONFIG_H_
#define CATCHMENT_SERVER_PROCESS_SERVER_CONFIG_H_

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "common/base/directory_lock.h"
#include "common/checkpoint/master_address.h"
#include "common/job/parameter_layout.h"
#include "common/metrics/endpoint.h"
#include "common/net/rpc.h"
#include "proto/checkpoint.pb.h"
#include "proto/job.pb.h"
#include "proto/wire.pb.h"
#include "server/control/run_options.h"
#include "server/edge/apply_pool.h"
#include "server/host/run_start.h"
#include "server/process/server_flags.h"
#include "server/shard/shard.h"

namespace catchment {

// A shard that a standby has returned, and at server 0 the master's state.
struct RestoredShard {
  Shard::Contents contents;
  v1::Run run;
  uint64_t epoch = 0;
  std::optional<RunOptions::Restored> master;
};

struct ServerConfig {
  ServerFlags flags;
  v1::Job job;
  std::vector<std::string> servers;
  int index = 0;
  int listener_threads = 1;
  ApplyPool::Options apply;
  std::string checkpoint_dir;
  std::vector<DirectoryLock> locks;                 // held by the master
  std::unique_ptr<MasterAddressFile> address_file;  // of the master
  RunStart start;                                   // of the current run
  std::optional<RestoredShard> restored;            // continues the run instead
  std::optional<v1::RunRecord> ended;               // the job has ended, and not all may know
  int members_to_tell = 0;                          // of the end; 0: that is not known
  bool cannot_restore = false;                      // the standby has no copy of the shard
  bool refused = false;                             // by the master, which knows why this server ends
  std::string end;                                  // how the last run ended in order
  MetricsEndpoint* metrics = nullptr;
  std::shared_ptr<grpc::ChannelCredentials> client_credentials;
  std::shared_ptr<grpc::ServerCredentials> server_credentials;
};

// Reads the job and the credentials, and locks the directories of a master. Errors: those of the job and of
// files.
absl::StatusOr<ServerConfig> ReadConfig(const ServerFlags& flags);

// Creates the directory for checkpoints, if there is one, and checks that it is writable now rather than when
// the first checkpoint is due.
absl::Status PrepareCheckpointDirectory(const ServerConfig& config);

// Returns true if connections over a network are in clear text.
bool IsInsecure(const ServerConfig& config);

absl::StatusOr<ParameterLayout> MakeLayout(const ServerConfig& config);

// Returns the run of a job with its state, as far as it is known without the master.
v1::Run RunOf(const ServerConfig& config, uint64_t id);

}  // namespace catchment

#endif  // CATCHMENT_SERVER_PROCESS_SERVER_CONFIG_H_
