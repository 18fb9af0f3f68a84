#include "server/process/server_flags.h"

#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "common/base/status_macros.h"
#include "common/net/address.h"
#include "common/program/command_line.h"

namespace catchment {
namespace {

constexpr char kUsage[] = R"(catchment_server --job=FILE --index=N --servers=HOST:PORT,... [flags]

Holds a shard of a job's weights. The server with index 0 is also the master.

Examples:
  catchment_server --job=job.textproto --index=0 --servers=node0:7000,node1:7000 --out=out
  catchment_server --job=job.textproto --index=1 --servers=node0:7000,node1:7000
)";

constexpr int kMaxThreads = 256;

absl::Status CheckFlags(ServerFlags* flags) {
  RETURN_IF_ERROR(TidyAddresses(&flags->servers));
  const std::vector<std::string> servers = absl::StrSplit(flags->servers, ',');
  if (flags->index >= std::ssize(servers)) {
    return absl::InvalidArgumentError(absl::StrCat("--index=", flags->index,
                                                   " is out of range: --servers lists ", servers.size(),
                                                   " servers, numbered from 0"));
  }
  if (flags->threads > kMaxThreads) {
    return absl::InvalidArgumentError(
        absl::StrCat("--threads=", flags->threads, " must be from 0 to ", kMaxThreads));
  }
  if (flags->apply_threads > kMaxThreads) {
    return absl::InvalidArgumentError(
        absl::StrCat("--apply_threads=", flags->apply_threads, " must be from 0 to ", kMaxThreads));
  }
  if (flags->resume != AutoSwitch::kOff && flags->checkpoint_dir.empty() && flags->out.empty())
    return absl::InvalidArgumentError("--resume requires --checkpoint_dir (or --out)");
  FillTlsFiles("server", &flags->tls);
  RETURN_IF_ERROR(CheckComplete(flags->tls));
  for (const std::string& address : servers) {
    RETURN_IF_ERROR(CheckSecure(address, flags->tls, flags->insecure));
  }
  return flags->listen_everywhere ? CheckSecure("[::]:0", flags->tls, flags->insecure) : absl::OkStatus();
}

}  // namespace

CommandLine MakeCommandLine(ServerFlags* f) {
  CommandLine line;
  line.usage = kUsage;
  line.flags.AddRequired("job", "FILE", &f->job, "The job file, the same for all servers.");
  line.flags.AddInt("index", "N", 0, &f->index,
                    "The index of this server in --servers. Default 0: the master.");
  line.flags.AddString("servers", "HOST:PORT,...", &f->servers,
                       "The addresses of all servers of the job, the master's first. With port 0 a server "
                       "chooses a free port; the others need to be given the master's port. "
                       "Default 127.0.0.1:0.");
  line.flags.AddString("out", "DIR", &f->out,
                       "Master only: directory for metrics.jsonl, summary.json and model.safetensors.");
  line.flags.AddString("checkpoint_dir", "DIR", &f->checkpoint_dir,
                       "Directory for checkpoints, the same for all servers (on a shared file system if they "
                       "run on several machines). Default: OUT/checkpoints if --out is given; "
                       "otherwise no checkpoints are written.");
  line.flags.AddString("control_log", "FILE", &f->control_log,
                       "Master only: file to which each call of the control plane is appended, with its "
                       "answer, so that a failure can be run again "
                       "(docs/testing.md). Slows the master. Default: none.");
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
  line.flags.AddSwitch("no_shared_memory", &f->no_shared_memory,
                       "Sends gradients and weights over the connection even between processes of this "
                       "machine. Default: the job's shared_memory.");
  AddSecurityFlags(&f->tls, &f->insecure, &line.flags);
  line.check = [f] { return CheckFlags(f); };
  return line;
}

}  // namespace catchment
