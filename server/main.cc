// catchment_server: holds one shard of a job's weights. The server with --index=0 is also the job's master.
// A gradient passes through edge/train_stream.h, shard/shard.h, shard/gate.h, a rule in shard/, and optim/;
// calls of the master pass through edge/master_service.h, master/master_host.h and master/master.h.
#include <glog/logging.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <ctime>
#include <filesystem>
#include <iostream>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "common/address.h"
#include "common/checkpoint/atomic_file.h"
#include "common/checkpoint/checkpoint.h"
#include "common/checkpoint/manifest.h"
#include "common/checkpoint/run_record.h"
#include "common/clock.h"
#include "common/codec/codec.h"
#include "common/command_line.h"
#include "common/daemon.h"
#include "common/directory_lock.h"
#include "common/job/data_sources.h"
#include "common/job/job_layout.h"
#include "common/job/job_text.h"
#include "common/job/validate.h"
#include "common/master_address.h"
#include "common/model_shapes.h"
#include "common/mutex.h"
#include "common/open_files.h"
#include "common/processors.h"
#include "common/random_id.h"
#include "common/rpc.h"
#include "common/version.h"
#include "common/wire/protocol.h"
#include "common/wire/token.h"
#include "server/edge/apply_pool.h"
#include "server/edge/listener.h"
#include "server/edge/master_service.h"
#include "server/edge/restore_shard.h"
#include "server/edge/server_registration.h"
#include "server/edge/shard_service.h"
#include "server/edge/standby_link.h"
#include "server/edge/standby_service.h"
#include "server/edge/sweeper.h"
#include "server/control/check_image.h"
#include "server/host/master_host.h"
#include "server/host/run_start.h"
#include "server/shard/rule.h"
#include "server/shard/run_claim.h"
#include "server/shard/shard_host.h"

namespace catchment {
namespace {

constexpr char kUsage[] = R"(catchment_server --job=FILE --index=N --servers=HOST:PORT,... [flags]

Holds a shard of a job's weights. The server with index 0 is also the master.

Examples:
  catchment_server --job=job.textproto --index=0 --servers=node0:7000,node1:7000 --out=out
  catchment_server --job=job.textproto --index=1 --servers=node0:7000,node1:7000
)";

constexpr double kShutdownSeconds = 1;
constexpr double kPollSeconds = 0.1;
// For calls in progress when the job goes back to a checkpoint.
constexpr double kGoBackSeconds = 0.3;
// The time for which a master that is started again after the end of its job answers those that may not know of the end.
constexpr double kTellSeconds = 10;
// Service names in the health protocol.
constexpr char kMasterName[] = "catchment.v1.MasterService";
constexpr char kShardName[] = "catchment.v1.ShardService";
constexpr int kControlMessageBytes = 4 << 20;
constexpr int kMostThreads = 256;

struct Flags {
  std::string job;
  int index = 0;
  std::string servers = "127.0.0.1:0";
  std::string out;
  std::string checkpoint_dir;
  int threads = 0;
  int apply_threads = -1;
  bool pin_threads = false;
  bool listen_everywhere = false;
  int evaluators = 0;
  AutoSwitch resume = AutoSwitch::kOff;
  TlsFiles tls;
  bool insecure = false;
};

absl::Status CheckFlags(Flags* flags) {
  if (absl::Status status = TidyAddresses(&flags->servers); !status.ok()) return status;
  const std::vector<std::string> servers = absl::StrSplit(flags->servers, ',');
  if (flags->index >= std::ssize(servers)) {
    return absl::InvalidArgumentError(absl::StrCat("--index=", flags->index,
                                                   " is out of range: --servers lists ", servers.size(),
                                                   " servers, numbered from 0"));
  }
  if (flags->threads > kMostThreads) {
    return absl::InvalidArgumentError(
        absl::StrCat("--threads=", flags->threads, " must be from 0 to ", kMostThreads));
  }
  if (flags->apply_threads > kMostThreads) {
    return absl::InvalidArgumentError(
        absl::StrCat("--apply_threads=", flags->apply_threads, " must be from 0 to ", kMostThreads));
  }
  if (flags->resume != AutoSwitch::kOff && flags->checkpoint_dir.empty() && flags->out.empty())
    return absl::InvalidArgumentError("--resume requires --checkpoint_dir (or --out)");
  FillTlsFiles("server", &flags->tls);
  if (absl::Status status = CheckComplete(flags->tls); !status.ok()) return status;
  for (const std::string& address : servers) {
    if (absl::Status status = CheckSecure(address, flags->tls, flags->insecure); !status.ok()) return status;
  }
  return flags->listen_everywhere ? CheckSecure("[::]:0", flags->tls, flags->insecure) : absl::OkStatus();
}

CommandLine MakeCommandLine(Flags* f) {
  CommandLine line;
  line.usage = kUsage;
  line.flags.AddRequired("job", "FILE", &f->job, "The job file, the same for all servers.");
  line.flags.AddInt("index", "N", 0, &f->index,
                    "The index of this server in --servers. Default 0: the master.");
  line.flags.AddString("servers", "HOST:PORT,...", &f->servers,
                       "The addresses of all servers of the job, the master's first. With port 0 a server "
                       "chooses a free port; the others need to be given the master's port. Default "
                       "127.0.0.1:0.");
  line.flags.AddString("out", "DIR", &f->out,
                       "Master only: directory for metrics.jsonl, summary.json and model.safetensors.");
  line.flags.AddString("checkpoint_dir", "DIR", &f->checkpoint_dir,
                       "Directory for checkpoints, the same for all servers (on a shared file system if they "
                       "run on several machines). Default: OUT/checkpoints if --out is given; otherwise no "
                       "checkpoints are written.");
  line.flags.AddInt(
      "threads", "N", 0, &f->threads,
      "Number of threads that read requests and write answers; each connection is served by "
      "one of them. Default 0: a quarter of the processors, from 2 to 4. A server with 1 cannot "
      "count the calls of a peer that floods it.");
  line.flags.AddInt("apply_threads", "N", -1, &f->apply_threads,
                    "Number of threads that apply contributions. 0: the receiving threads apply them. "
                    "Default -1: 0 with fewer than 4 processors, otherwise half of them, at most 8.");
  line.flags.AddSwitch("pin_threads", &f->pin_threads, "Binds each of the --apply_threads to a processor.");
  line.flags.AddSwitch(
      "listen_everywhere", &f->listen_everywhere,
      "Listens on all interfaces instead of the addresses of its own name in --servers, so that "
      "it is reached at localhost, too, such as by `kubectl port-forward`.");
  line.flags.AddInt("evaluators", "N", 0, &f->evaluators,
                    "Master only: the number of evaluators that will be started. After training, the master "
                    "then waits some seconds for one of them even if none has registered yet. Default 0.");
  line.flags.AddAutoSwitch("resume", &f->resume,
                           "Resumes from the newest complete checkpoint. auto: if there is one.");
  AddSecurityFlags(&f->tls, &f->insecure, &line.flags);
  line.check = [f] { return CheckFlags(f); };
  return line;
}

// A shard that a standby has returned, and at server 0 the master's state.
struct RestoredShard {
  Shard::Contents contents;
  v1::Run run;
  uint64_t epoch = 0;
  std::optional<RunOptions::Restored> master;
};

struct Setting {
  Flags flags;
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
  bool cannot_restore = false;                      // the standby has no copy of the shard
  bool refused = false;                             // by the master, which knows why this server ends
  std::string end;                                  // how the last run ended in order
  MetricsEndpoint* metrics = nullptr;
  std::shared_ptr<grpc::ChannelCredentials> client_credentials;
  std::shared_ptr<grpc::ServerCredentials> server_credentials;
};

// Returns true if connections over a network are in clear text.
bool IsInsecure(const Setting& setting) {
  return setting.flags.tls.ca.empty() &&
         !std::all_of(setting.servers.begin(), setting.servers.end(), IsLocal);
}

absl::StatusOr<ParameterLayout> MakeLayout(const Setting& setting) {
  const DataShape data = ShapeOf(setting.job.data());
  absl::StatusOr<std::vector<LayerShape>> layers = InferShapes(setting.job.model(), data.input, data.target);
  if (!layers.ok()) return layers.status();
  return LayoutOf(setting.job, ListTensors(*layers), static_cast<int>(setting.servers.size()));
}

// The time for which a server tries to reach the standby of its shard. All others wait for the master.
constexpr double kRestoreSeconds = 10;
constexpr double kRestoreMasterSeconds = 3;

// Returns the run of a job with its state, as far as it is known without the master.
v1::Run RunOf(const Setting& setting, uint64_t id) {
  v1::Run run;
  run.set_id(id);
  run.set_job(setting.job.name());
  run.set_master(setting.servers[0]);
  return run;
}

// Continues the run of a master that was lost, with the copy of its state and its shard at the standby. Returns false if
// there is none: the job goes back to a checkpoint, or begins.
absl::StatusOr<bool> ContinueRun(Setting* setting) {
  if (!HasStandbys(setting->job, setting->servers.size()) || setting->checkpoint_dir.empty()) return false;
  const absl::StatusOr<std::optional<v1::RunRecord>> record =
      UnfinishedRun(setting->checkpoint_dir, setting->job);
  if (!record.ok()) return record.status();
  if (!*record || (*record)->servers_size() != std::ssize(setting->servers)) return false;
  const absl::StatusOr<ParameterLayout> layout = MakeLayout(*setting);
  if (!layout.ok()) return layout.status();
  const SteadyClock clock;
  const std::string& standby = (*record)->servers(1);
  absl::StatusOr<RestoredCopy> copy =
      RestoreShard(standby, setting->client_credentials,
                   MakeStandbyHello(*layout, /*shard=*/0, (*record)->run_id(), /*epoch=*/0), setting->job,
                   *layout, kRestoreMasterSeconds, clock);
  RestoredShard restored;
  RunOptions::Restored& master = restored.master.emplace();
  if (copy.ok() && (copy->master.empty() || !master.copy.ParseFromString(copy->master) ||
                    !master.evaluations.ParseFromString(copy->evaluations)))
    copy = absl::NotFoundError("it has no copy of the state of a master whose job trains");
  if (copy.ok()) {
    const absl::Status sound = CheckMasterCopy(
        master.copy, setting->job, static_cast<int>(setting->servers.size()), (*record)->run_id());
    if (!sound.ok()) copy = sound;
  }
  if (!copy.ok()) {
    LOG(WARNING) << "the run of the master that was lost cannot be continued from the standby at " << standby
                 << ": " << copy.status().message();
    return false;
  }
  master.epoch = copy->epoch;
  restored.contents = std::move(copy->contents);
  restored.epoch = copy->epoch;
  restored.run = RunOf(*setting, (*record)->run_id());
  setting->restored = std::move(restored);
  return true;
}

// Returns whether the server resumes from a checkpoint: with --resume=auto, if there is one.
absl::StatusOr<bool> Resumes(const Setting& setting) {
  if (setting.flags.resume != AutoSwitch::kAuto) return setting.flags.resume == AutoSwitch::kOn;
  const absl::Status found = FindLatest(setting.checkpoint_dir).status();
  if (absl::IsNotFound(found)) return false;
  return found.ok() ? absl::StatusOr<bool>(true) : found;
}

// Finds what the server begins with. The master decides for all servers: it asks those that begin with another
// checkpoint to begin again.
absl::Status FindStart(Setting* setting) {
  if (setting->index == 0) {
    if (setting->flags.resume != AutoSwitch::kOn && !setting->checkpoint_dir.empty()) {
      absl::StatusOr<std::optional<v1::RunRecord>> ended = UntoldEnd(setting->checkpoint_dir, setting->job);
      if (!ended.ok()) return ended.status();
      setting->ended = *std::move(ended);
      if (setting->ended) return absl::OkStatus();
    }
    const absl::StatusOr<bool> continues = ContinueRun(setting);
    if (!continues.ok() || *continues) return continues.status();
    const absl::StatusOr<bool> resumes = Resumes(*setting);
    if (!resumes.ok()) return resumes.status();
    absl::StatusOr<RunStart> start = StartJob(setting->checkpoint_dir, setting->job, *resumes);
    if (!start.ok()) return start.status();
    setting->start = *std::move(start);
    return absl::OkStatus();
  }
  const absl::StatusOr<bool> resumes = Resumes(*setting);
  if (!resumes.ok() || !*resumes) return resumes.status();
  absl::StatusOr<FoundCheckpoint> found = FindLatest(setting->checkpoint_dir);
  if (!found.ok()) return found.status();
  LOG(INFO) << "resuming from checkpoint " << found->manifest.number() << " in " << setting->checkpoint_dir;
  setting->start.checkpoint = std::move(found->manifest);
  return absl::OkStatus();
}

// Creates the directory, and checks that it is writable now rather than when the first checkpoint is due.
absl::Status PrepareCheckpointDirectory(const std::string& directory) {
  if (directory.empty()) return absl::OkStatus();
  if (absl::Status status = CreateDirectories(directory); !status.ok()) return status;
  if (access(directory.c_str(), W_OK | X_OK) == 0) return absl::OkStatus();
  return absl::ErrnoToStatus(errno, absl::StrCat("cannot write checkpoints to ", directory));
}

// Locks --out and the directory for checkpoints, so that only one master at a time reads or deletes files
// there.
absl::Status LockDirectories(Setting* setting) {
  std::map<std::string, std::string> directories;  // by canonical path; both may be the same
  for (const std::string& directory : {setting->flags.out, setting->checkpoint_dir}) {
    if (directory.empty()) continue;
    if (absl::Status status = CreateDirectories(directory); !status.ok()) return status;
    std::error_code error;
    const std::string path = std::filesystem::canonical(directory, error).string();
    directories.emplace(error ? directory : path, directory);
  }
  for (const auto& [path, directory] : directories) {
    absl::StatusOr<DirectoryLock> lock = DirectoryLock::Take(directory);
    if (!lock.ok()) return lock.status();
    setting->locks.push_back(*std::move(lock));
  }
  return absl::OkStatus();
}

absl::StatusOr<Setting> ReadSetting(const Flags& flags) {
  Setting setting;
  setting.flags = flags;
  setting.servers = absl::StrSplit(flags.servers, ',');
  setting.index = flags.index;
  const int processors = AvailableProcessors();
  setting.listener_threads = flags.threads == 0 ? DefaultListenerThreads(processors) : flags.threads;
  setting.apply.threads = flags.apply_threads < 0 ? DefaultApplyThreads(processors) : flags.apply_threads;
  setting.apply.pin = flags.pin_threads;
  setting.checkpoint_dir = flags.checkpoint_dir;
  if (setting.checkpoint_dir.empty() && !flags.out.empty())
    setting.checkpoint_dir = flags.out + "/checkpoints";
  absl::StatusOr<v1::Job> job = LoadJob(flags.job);
  if (job.ok()) job = FillDefaultsAndValidate(*std::move(job));
  if (!job.ok()) return job.status();
  setting.job = *std::move(job);
  if (setting.index == 0 && setting.job.faults().standby() > 0 && setting.servers.size() == 1) {
    LOG(WARNING)
        << "faults.standby has no effect with one server: if it is lost, the job goes back to the last "
           "checkpoint. Start two servers or more.";
  }
  if (absl::Status status =
          CheckOpenFiles(setting.job.workers(), std::ssize(setting.servers), setting.index == 0);
      !status.ok()) {
    return status;
  }
  auto client = ClientCredentials(flags.tls);
  if (!client.ok()) return client.status();
  auto server = ServerCredentials(flags.tls);
  if (!server.ok()) return server.status();
  setting.client_credentials = *client;
  setting.server_credentials = *server;
  if (setting.index == 0) {
    if (absl::Status status = LockDirectories(&setting); !status.ok()) return status;
    setting.address_file =
        std::make_unique<MasterAddressFile>(flags.out.empty() ? setting.checkpoint_dir : flags.out);
  }
  if (absl::Status status = FindStart(&setting); !status.ok()) return status;
  if (absl::Status status = PrepareCheckpointDirectory(setting.checkpoint_dir); !status.ok()) return status;
  return setting;
}

// Returns the memory that the copy of another server's shard may take: an image while the one before is complete, and
// the vectors of workers that a copy may have. It is kept in the memory of the messages that it came in.
size_t CopyQuota(const v1::Job& job, const ParameterLayout& layout) {
  constexpr size_t kImages = 2;
  size_t values = 0;
  for (int s = 0; s < layout.num_shards(); ++s) values = std::max<size_t>(values, layout.shard(s).size());
  return values * sizeof(float) * (kImages * (1 + Rule::kMaxStates) + 2 * job.workers());
}

// Returns the memory for messages that arrive and leave: for each worker those on its connections, and a share for
// others. docs/limits.md ("Memory") states it.
size_t MemoryQuota(uint32_t workers, size_t payload) {
  constexpr size_t kShareOfOthers = 1 << 30, kOfConnections = 16 << 20, kPayloads = 16;
  return kShareOfOthers + workers * (kOfConnections + kPayloads * payload);
}

Listener::Options ListenerOptions(const Setting& setting, const ParameterLayout& layout) {
  Listener::Options options;
  options.everywhere = setting.flags.listen_everywhere;
  size_t payload = Codec::ForPush(setting.job.compression()).PayloadBytes(layout.most_in_block());
  if (HasStandbys(setting.job, setting.servers.size()))
    payload = std::max(payload, layout.most_in_block() * sizeof(float));
  options.max_message_bytes = kControlMessageBytes + static_cast<int>(payload);
  options.threads = setting.listener_threads;
  options.memory_quota_bytes = MemoryQuota(setting.job.workers(), payload);
  if (HasStandbys(setting.job, setting.servers.size()))
    options.memory_quota_bytes += CopyQuota(setting.job, layout);
  return options;
}

// Returns a number above all incarnations of earlier runs, whose workers may still be alive. Two runs that
// start in the same second differ in the lower bits, which are random.
uint64_t FirstIncarnation() {
  constexpr int kBits = 20;
  return (static_cast<uint64_t>(std::time(nullptr)) << kBits) + (RandomId() >> (64 - kBits + 1));
}

// The listener, which lasts as long as the process and has its port from the first run of the job to the last, and the gRPC
// services behind it.
class Edge {
 public:
  // Begins to serve a run. The services have the fronts of this object, or are the master's.
  absl::Status Begin(const std::vector<CallService*>& services, const ParameterLayout& layout,
                     Setting* setting) {
    if (listener_) {
      listener_->BeginRun();
      return absl::OkStatus();
    }
    std::string& address = setting->servers[setting->index];
    absl::StatusOr<Listener> listener =
        Listener::Open(address, setting->server_credentials, services, ListenerOptions(*setting, layout));
    if (!listener.ok()) return listener.status();
    listener_.emplace(*std::move(listener));
    address = listener_->address();
    std::cout << "catchment_server " << setting->index << ": listening on " << address << std::endl;
    return absl::OkStatus();
  }
  // Ends the run. Without a grace a server would wait for workers that wait for it.
  void End(bool begins_again) { listener_->EndRun(begins_again ? kGoBackSeconds : kShutdownSeconds); }

  const std::string& address() const { return listener_->address(); }
  void SetShardServing(int index, bool serving) {
    SetServing(kShardName, serving);
    SetServing(absl::StrCat("shard-", index), serving);
  }
  void SetServing(const std::string& name, bool serving) { listener_->SetServing(name, serving); }

  ShardService::Front* shard() { return &shard_; }
  StandbyService::Front* standby() { return &standby_; }
  MasterService* master() { return &master_; }

 private:
  const SteadyClock clock_;
  ShardService::Front shard_;
  StandbyService::Front standby_;
  MasterService master_{&clock_};
  std::optional<Listener> listener_;
};

// A run at the listener. Its end is the end of all calls of the run.
class ServedRun {
 public:
  explicit ServedRun(Edge* edge) : edge_(*edge) {}
  ~ServedRun() { End(/*begins_again=*/false); }
  void End(bool begins_again) {
    if (!std::exchange(ended_, true)) edge_.End(begins_again);
  }

 private:
  Edge& edge_;
  bool ended_ = false;
};

// A shard's link to its standby, and the copy of another server's shard that this server keeps.
class ServedStandby {
 public:
  ServedStandby(const Setting& setting, const ParameterLayout& layout, StandbyService::Front* front)
      : layout_(layout),
        credentials_(setting.client_credentials),
        store_(setting.job, layout, (setting.index + layout.num_shards() - 1) % layout.num_shards()),
        service_(&store_, front) {}

  // Begins to send the shard to the standby that commands name. `on_replaced`: as in StandbyLink.
  void Start(ShardHost* host, StandbyLink::OnReplaced on_replaced, uint64_t epoch) {
    link_ =
        std::make_unique<StandbyLink>(host->shard(), &layout_, &log_, credentials_, std::move(on_replaced));
    if (epoch > 0) link_->SetEpoch(epoch);
    host->SetOnStandby([this](const v1::ShardCommand::Standby& standby, uint64_t run_id) {
      Join(run_id, standby.keeps_epoch());
      link_->SetStandby(standby, run_id);
    });
  }
  // Keeps the copy of a shard of the run.
  void Join(uint64_t run_id, uint64_t lowest_epoch) { store_.Join(run_id, lowest_epoch); }
  // Ends the log: no callback of it runs afterwards.
  void End() { log_.End(); }
  // Ends the link. To be called before the shard is destroyed, and when no command can come.
  void Stop() {
    End();
    link_.reset();
  }

  StandbyLog* log() { return &log_; }
  StandbyService* service() { return &service_; }
  // Returns the epoch of this process; 0: the master has not named it yet.
  uint64_t epoch() const { return link_ == nullptr ? 0 : link_->epoch(); }

 private:
  const ParameterLayout& layout_;
  const std::shared_ptr<grpc::ChannelCredentials> credentials_;
  StandbyLog log_;
  StandbyStore store_;
  StandbyService service_;
  std::unique_ptr<StandbyLink> link_;
};

// The shard of one run, with its services.
class ServedShard {
 public:
  static absl::StatusOr<std::unique_ptr<ServedShard>> Create(Setting* setting, const ParameterLayout& layout,
                                                             Edge* edge) {
    const std::optional<v1::Manifest>& checkpoint = setting->start.checkpoint;
    absl::StatusOr<Shard::Contents> contents =
        setting->restored ? std::move(setting->restored->contents)
                          : MakeContents(setting->job, layout, setting->index, setting->checkpoint_dir,
                                         checkpoint ? &*checkpoint : nullptr);
    if (!contents.ok()) return contents.status();
    std::unique_ptr<ServedShard> shard(new ServedShard(*setting, layout, *std::move(contents), edge));
    if (!setting->restored) return shard;
    if (absl::Status status = shard->claim()->Claim(setting->restored->run); !status.ok()) return status;
    return shard;
  }

  ~ServedShard() {
    if (standby_) standby_->Stop();
  }

  // Begins to send the shard to its standby, if there is one.
  void StartStandby(StandbyLink::OnReplaced on_replaced, uint64_t epoch) {
    if (standby_) standby_->Start(&host_, std::move(on_replaced), epoch);
  }
  // Keeps the copy of another server's shard, as the master has answered.
  void JoinAsStandby(const v1::RegisterServerReply& reply) {
    if (standby_ && reply.keeps_epoch() > 0) standby_->Join(reply.run_id(), reply.keeps_epoch());
  }
  // Lets no answer wait for the standby any more.
  void EndStandby() {
    if (standby_) standby_->End();
  }

  ShardHost* host() { return &host_; }
  RunClaim* claim() { return &claim_; }
  uint64_t epoch() const { return standby_ ? standby_->epoch() : 0; }
  void AddMetrics(MetricFamilies* families) {
    AddShard(host_.shard()->Report(/*statistics=*/false), families);
    if (standby_) {
      AddGauge("catchment_standby_unacknowledged_changes",
               "Changes that the shard's standby has not acknowledged.",
               static_cast<double>(standby_->log()->unacknowledged()), families);
    }
  }
  std::vector<CallService*> services() {
    std::vector<CallService*> services = {&service_};
    if (standby_) services.push_back(standby_->service());
    return services;
  }

 private:
  ServedShard(const Setting& setting, const ParameterLayout& layout, Shard::Contents contents, Edge* edge)
      : claim_(RandomId()),
        standby_(HasStandbys(setting.job, setting.servers.size())
                     ? std::make_unique<ServedStandby>(setting, layout, edge->standby())
                     : nullptr),
        host_(setting.job, layout, setting.index, std::move(contents), setting.checkpoint_dir,
              standby_ ? standby_->log() : nullptr),
        service_(setting.job.name(), layout, host_.shard(), &claim_,
                 [this](const v1::ShardCommand& command) { return host_.Control(command, clock_.Now()); },
                 {.apply = setting.apply,
                  .log = host_.log(),
                  .slowest_bytes_per_second = 1024.0 * setting.job.faults().slowest_kib_per_second(),
                  .front = edge->shard()}),
        sweeper_(&service_, host_.shard(), &clock_) {}

  const SteadyClock clock_;
  RunClaim claim_;
  const std::unique_ptr<ServedStandby> standby_;  // null: the job has none
  ShardHost host_;
  ShardService service_;
  const Sweeper sweeper_;
};

MasterHost::Options MasterOptions(const Setting& setting) {
  MasterHost::Options options;
  options.job = setting.job;
  options.num_servers = static_cast<int>(setting.servers.size());
  options.servers = setting.servers;
  options.credentials = setting.client_credentials;
  options.checkpoint_dir = setting.checkpoint_dir;
  options.out_dir = setting.flags.out;
  options.run_id = RandomId();
  options.token_key = NewTokenKey();
  options.insecure = IsInsecure(setting);
  options.first_incarnation = FirstIncarnation();
  const RunStart& start = setting.start;
  options.record = start.record;
  options.resumed_checkpoint = start.checkpoint_number();
  options.resumed_version = start.version();
  options.evaluators = setting.flags.evaluators;
  options.loss = start.loss;
  if (start.loss)
    options.first_incarnation = std::max(options.first_incarnation, start.loss->next_incarnation);
  if (setting.restored) options.Continue(*setting.restored->master);
  return options;
}

// Returns the state from which the master continues; nothing at the beginning of a job.
std::optional<v1::MasterState> MasterStateOf(const RunStart& start) {
  if (start.checkpoint) return start.checkpoint->master();
  return start.loss ? std::optional(v1::MasterState()) : std::nullopt;
}

// What ends a run at a server, besides the master's word.
struct RunEnd {
  Mutex mu;
  absl::Status failure ABSL_GUARDED_BY(mu);
  // How the server must begin again.
  std::optional<v1::RegisterServerReply> again ABSL_GUARDED_BY(mu);
  bool leaving ABSL_GUARDED_BY(mu) = false;  // the server was asked to end
  bool ended ABSL_GUARDED_BY(mu) = false;    // the job, without this server

  void Fail(const absl::Status& status) {
    MutexLock lock(&mu);
    failure = status;
  }
  absl::Status Failure() {
    MutexLock lock(&mu);
    return failure;
  }
};

// Serves one run. Returns true if the job goes back: setting->start is then the start of the next run.
absl::StatusOr<bool> RunMaster(const ParameterLayout& layout, Setting* setting, Edge* edge) {
  const SteadyClock clock;
  RunEnd end;
  const uint64_t epoch = setting->restored ? setting->restored->epoch : 0;
  absl::StatusOr<std::unique_ptr<ServedShard>> shard = ServedShard::Create(setting, layout, edge);
  if (!shard.ok()) return shard.status();
  ShardHost* const shard_host = (*shard)->host();
  (*shard)->StartStandby([&end](const absl::Status& status) { end.Fail(status); }, epoch);
  auto host =
      MasterHost::Create(MasterOptions(*setting), &layout, shard_host, &clock, MasterStateOf(setting->start));
  if (!host.ok()) return host.status();
  edge->master()->Serve(host->get());
  std::optional<MetricsSource> metrics(std::in_place, setting->metrics, [&](MetricFamilies* families) {
    AddJob((*host)->Status(), families);
    (*shard)->AddMetrics(families);
  });
  std::vector<CallService*> services = (*shard)->services();
  services.push_back(edge->master());
  if (absl::Status status = edge->Begin(services, layout, setting); !status.ok()) return status;
  ServedRun served(edge);
  const v1::Run run = (*host)->RunAt(edge->address());
  if (absl::Status status = (*shard)->claim()->Claim(run); !status.ok()) return status;
  LOG(INFO) << Describe(run);
  (*host)->SetAddress(edge->address());
  setting->address_file->Write(edge->address());
  edge->SetShardServing(0, false);
  edge->SetServing(kMasterName, false);
  absl::Status status;
  {
    SignalThread signals([&](int) { (*host)->Stop("the master is shutting down"); });
    while (!(*host)->WaitFor(kPollSeconds)) {
      edge->SetShardServing(0, shard_host->training());
      edge->SetServing(kMasterName, (*host)->training());
      if (const absl::Status failure = end.Failure(); !failure.ok()) (*host)->OnReplaced(failure);
    }
    status = (*host)->Wait();
  }
  (*shard)->EndStandby();
  const std::optional<RunLoss> loss = (*host)->loss();
  served.End(/*begins_again=*/loss.has_value());
  if (!status.ok()) return status;
  const v1::RunRecord record = (*host)->record();
  setting->end = DescribeEnd(record.phase(), record.reason());
  if (!loss) return false;
  // From then on no file of the run is written.
  metrics.reset();
  host->reset();
  shard->reset();
  absl::StatusOr<RunStart> start = GoBack(setting->checkpoint_dir, setting->job, record, *loss);
  if (!start.ok()) return start.status();
  setting->start = *std::move(start);
  setting->restored.reset();
  return true;
}

v1::RegisterServerRequest MakeRegisterRequest(const Setting& setting, const std::string& address,
                                              uint64_t server_instance) {
  v1::RegisterServerRequest request;
  request.set_index(setting.index);
  request.set_num_servers(static_cast<uint32_t>(setting.servers.size()));
  request.set_address(address);
  request.set_job_fingerprint(JobFingerprint(setting.job));
  request.set_resumed_checkpoint(setting.start.checkpoint_number());
  request.set_server_instance(server_instance);
  request.set_cannot_restore(setting.cannot_restore);
  request.set_protocol_version(kProtocolVersion);
  request.set_build(BuildVersion());
  return request;
}

// Reads the manifest of the checkpoint that the master has named.
absl::StatusOr<RunStart> StartFrom(uint64_t checkpoint, const Setting& setting) {
  RunStart start;
  if (checkpoint == 0) return start;
  absl::StatusOr<v1::Manifest> manifest = setting.checkpoint_dir.empty()
                                              ? absl::NotFoundError("this server has no --checkpoint_dir")
                                              : ReadManifest(setting.checkpoint_dir, checkpoint);
  if (!manifest.ok()) {
    return absl::Status(
        manifest.status().code(),
        absl::StrCat("the master asks this server to begin from checkpoint ", checkpoint, ": ",
                     manifest.status().message(),
                     "; give all servers the same --checkpoint_dir, on a shared file system"));
  }
  start.checkpoint = *std::move(manifest);
  return start;
}

// Waits until the run has ended. Returns how the server must begin again, if it must.
absl::StatusOr<std::optional<v1::RegisterServerReply>> AwaitEnd(ShardHost* shard_host, Edge* edge, int index,
                                                                RunEnd* end) {
  while (!shard_host->WaitForStop(kPollSeconds)) {
    edge->SetShardServing(index, shard_host->training());
    MutexLock lock(&end->mu);
    if (end->ended) return std::nullopt;
    if (end->leaving && (!end->failure.ok() || end->again)) return std::nullopt;
    if (!end->failure.ok()) return end->failure;
    if (end->again) return end->again;
  }
  return std::nullopt;
}

// Reads the shard from its standby. If there is no copy, the server says so when it registers again.
void Restore(const v1::RegisterServerReply& reply, const ParameterLayout& layout, Setting* setting) {
  const SteadyClock clock;
  const v1::StandbyHello hello =
      MakeStandbyHello(layout, setting->index, reply.run_id(), reply.restore_epoch());
  absl::StatusOr<RestoredCopy> copy = RestoreShard(reply.restore_from(), setting->client_credentials, hello,
                                                   setting->job, layout, kRestoreSeconds, clock);
  setting->cannot_restore = !copy.ok();
  if (!copy.ok()) {
    LOG(WARNING) << "the shard cannot be restored: " << copy.status().message();
    return;
  }
  LOG(INFO) << "the shard is restored from the standby at " << reply.restore_from();
  RestoredShard& restored = setting->restored.emplace();
  restored.contents = std::move(copy->contents);
  restored.epoch = copy->epoch;
  restored.run = RunOf(*setting, reply.run_id());
}

// Prepares for the next run, or to continue this one, as the master has asked.
absl::Status BeginAgain(const v1::RegisterServerReply& reply, const ParameterLayout& layout,
                        Setting* setting) {
  setting->restored.reset();
  if (!reply.restore_from().empty()) {
    Restore(reply, layout, setting);
    return absl::OkStatus();
  }
  setting->cannot_restore = false;
  LOG(WARNING) << "a server or the master was lost: this server begins again from "
               << (reply.checkpoint() == 0 ? "the initial weights"
                                           : absl::StrCat("checkpoint ", reply.checkpoint()));
  absl::StatusOr<RunStart> start = StartFrom(reply.checkpoint(), *setting);
  if (!start.ok()) return start.status();
  setting->start = *std::move(start);
  return absl::OkStatus();
}

// Serves one run. Returns true if the server must begin again, with the new contents of `setting`.
absl::StatusOr<bool> RunServer(const ParameterLayout& layout, Setting* setting, Edge* edge) {
  const SteadyClock clock;
  const uint64_t epoch = setting->restored ? setting->restored->epoch : 0;
  absl::StatusOr<std::unique_ptr<ServedShard>> shard = ServedShard::Create(setting, layout, edge);
  if (!shard.ok()) return shard.status();
  ShardHost* const shard_host = (*shard)->host();
  RunEnd end;
  const auto fail = [&end](const absl::Status& status) { end.Fail(status); };
  (*shard)->StartStandby(fail, epoch);
  if (absl::Status status = edge->Begin((*shard)->services(), layout, setting); !status.ok()) return status;
  ServedRun served(edge);
  edge->SetShardServing(setting->index, false);
  const MetricsSource metrics(setting->metrics,
                              [&shard](MetricFamilies* families) { (*shard)->AddMetrics(families); });
  ServerRegistration::Callbacks callbacks;
  callbacks.version = [shard_host] { return shard_host->shard()->version(); };
  callbacks.epoch = [&shard] { return (*shard)->epoch(); };
  callbacks.on_registered = [&shard](const v1::RegisterServerReply& reply) {
    (*shard)->JoinAsStandby(reply);
  };
  callbacks.on_failed = [&](const absl::Status& status) {
    setting->refused = true;
    fail(status);
  };
  setting->end = "the job is over, as the master says";
  callbacks.on_ended = [&end, setting](const std::string& how) {
    MutexLock lock(&end.mu);
    end.ended = true;
    setting->end = how;
  };
  callbacks.on_begin_again = [&end](const v1::RegisterServerReply& reply) {
    MutexLock lock(&end.mu);
    end.again = reply;
  };
  ServerRegistration registration(
      setting->servers[0], setting->client_credentials,
      MakeRegisterRequest(*setting, edge->address(), (*shard)->claim()->server_instance()), (*shard)->claim(),
      setting->job.faults().connect_timeout_seconds(), &clock, std::move(callbacks));
  const auto leave = [&] {
    {
      MutexLock lock(&end.mu);
      end.leaving = true;
      setting->end = "a signal asked this server to end";
    }
    registration.Leave();
  };
  SignalThread signals([&](int) { leave(); });
  const absl::StatusOr<std::optional<v1::RegisterServerReply>> again =
      AwaitEnd(shard_host, edge, setting->index, &end);
  (*shard)->EndStandby();
  served.End(/*begins_again=*/again.ok() && again->has_value());
  if (!again.ok()) return again.status();
  if (absl::Status result = shard_host->result(); !result.ok()) return result;
  if (!*again) return false;
  if (absl::Status status = BeginAgain(**again, layout, setting); !status.ok()) return status;
  return true;
}

// Tells members that still ask for a job that has ended how it has, in the place of a master that was lost too early.
absl::StatusOr<DaemonEnd> TellEnd(const v1::RunRecord& record, const ParameterLayout& layout,
                                  Setting* setting) {
  const std::string end = DescribeEnd(record.phase(), record.reason());
  LOG(INFO) << end << ": telling servers and workers for " << kTellSeconds << " s";
  Edge edge;
  EndedMasterService service(record);
  if (absl::Status status = edge.Begin({&service, edge.shard()}, layout, setting); !status.ok())
    return status;
  // Workers that call the shard try again until the master has answered.
  edge.End(/*begins_again=*/true);
  Mutex mu;
  CondVar changed;
  bool stopped = false;
  {
    SignalThread signals([&](int) {
      MutexLock lock(&mu);
      stopped = true;
      changed.Notify();
    });
    MutexLock lock(&mu);
    changed.WaitFor(&mu, kTellSeconds, [&] { return stopped; });
  }
  v1::RunRecord told = record;
  told.set_told(true);
  if (absl::Status status = WriteRunRecord(setting->checkpoint_dir, told); !status.ok()) return status;
  if (record.phase() == v1::JobStatus::Phase_Name(v1::JobStatus::FAILED))
    return absl::FailedPreconditionError(end);
  return DaemonEnd{end};
}

// Serves one run of the job after another.
absl::Status Serve(const ParameterLayout& layout, Setting* setting, Edge* edge) {
  while (true) {
    const absl::StatusOr<bool> again =
        setting->index == 0 ? RunMaster(layout, setting, edge) : RunServer(layout, setting, edge);
    if (!again.ok() || !*again) return again.status();
  }
}

absl::StatusOr<DaemonEnd> Main(const Flags& flags, MetricsEndpoint* metrics) {
  absl::StatusOr<Setting> setting = ReadSetting(flags);
  if (!setting.ok()) return setting.status();
  setting->metrics = metrics;
  const absl::StatusOr<ParameterLayout> layout = MakeLayout(*setting);
  if (!layout.ok()) return layout.status();
  LOG_IF(WARNING, IsInsecure(*setting)) << kInsecureWarning;
  if (setting->ended) return TellEnd(*setting->ended, *layout, &*setting);
  Edge edge;
  const absl::Status status = Serve(*layout, &*setting, &edge);
  if (!status.ok() && setting->index > 0 && !setting->refused) {
    ServerRegistration::Report(
        setting->servers[0], setting->client_credentials,
        MakeRegisterRequest(*setting, setting->servers[setting->index], /*server_instance=*/RandomId()),
        status);
  }
  if (!status.ok()) return status;
  return DaemonEnd{setting->end};
}

}  // namespace
}  // namespace catchment

int main(int argc, char** argv) {
  catchment::Flags flags;
  catchment::CommandLine line = catchment::MakeCommandLine(&flags);
  return catchment::RunDaemon(argc, argv, &line, [&flags](catchment::MetricsEndpoint* metrics) {
    return catchment::Main(flags, metrics);
  });
}
