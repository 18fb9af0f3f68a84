#include "cli/local/local_cluster.h"

#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <system_error>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "common/base/clock.h"
#include "common/base/status_macros.h"
#include "common/base/thread_limit.h"

namespace catchment {
namespace {

namespace fs = std::filesystem;

constexpr int kTailLines = 5;
constexpr char kFreePort[] = "127.0.0.1:0";

Command MakeCommand(const ClusterPlan& plan, const std::string& name, std::vector<std::string> argv) {
  if (!plan.trace.empty()) argv.push_back("--trace=" + plan.trace);
  Command command{name, std::move(argv), absl::StrCat(plan.out, "/logs/", name, ".log")};
  // By default idle threads of libgomp spin. Several processes share the processors here, and a spinning
  // thread would delay the others.
  command.defaults = {"OMP_WAIT_POLICY=PASSIVE"};
  return command;
}

std::string Quote(const std::vector<std::string>& lines) {
  if (lines.empty()) return "\n    (nothing)";
  return absl::StrCat("\n    ", absl::StrJoin(lines, "\n    "));
}

absl::StatusOr<std::string> FindDaemon(const fs::path& directory, const std::string& folder,
                                       const std::string& program) {
  const fs::path beside = directory / program;
  const fs::path neighbour = directory.parent_path() / folder / program;
  for (const fs::path& path : {beside, neighbour}) {
    if (access(path.c_str(), X_OK) == 0 && fs::is_regular_file(path)) return path.string();
  }
  return absl::NotFoundError(absl::StrCat("no program ", program, ": looked for ", beside.string(), " and ",
                                          neighbour.string(), "; build it with: bazel build //", folder, ":",
                                          program));
}

}  // namespace

absl::StatusOr<DaemonPaths> FindDaemons(const std::string& directory) {
  ASSIGN_OR_RETURN(std::string server, FindDaemon(directory, "server", "catchment_server"));
  ASSIGN_OR_RETURN(std::string worker, FindDaemon(directory, "worker", "catchment_worker"));
  return DaemonPaths{std::move(server), std::move(worker)};
}

absl::StatusOr<std::string> OwnDirectory() {
  std::error_code error;
  const fs::path self = fs::read_symlink("/proc/self/exe", error);
  if (error) return absl::UnavailableError(absl::StrCat("cannot read /proc/self/exe: ", error.message()));
  return self.parent_path().string();
}

absl::StatusOr<DaemonPaths> FindOwnDaemons() {
  ASSIGN_OR_RETURN(const std::string here, OwnDirectory());
  return FindDaemons(here);
}

std::string ToString(const Departure& departure) {
  const std::string member =
      departure.worker < 0 ? "" : absl::StrCat(", worker ", departure.worker, " of the job");
  return absl::StrCat(departure.name, " (pid ", departure.pid, member, ") died: ", ToString(departure.end),
                      "; the last lines of ", departure.log, ":", Quote(departure.tail));
}

std::string ReasonOf(const Departure& departure) {
  if (departure.end.signal != 0 || departure.tail.empty()) return ToString(departure.end);
  // glog begins a line with "E20260101 12:00:00.000000  4711 trainer.cc:12] ".
  const std::string& line = departure.tail.back();
  const size_t source = line.find("] ");
  const bool logged = source != std::string::npos && line.size() > 9 && absl::StrContains("IWEF", line[0]) &&
                      absl::ascii_isdigit(line[1]) && absl::ascii_isdigit(line[8]);
  return logged ? line.substr(source + 2) : line;
}

int64_t ThreadsOf(const ClusterPlan& plan) {
  // A program has an interpreter, and its libraries have threads.
  const int64_t program = plan.program.empty() ? 0 : 4 + plan.threads;
  const int64_t workers = plan.workers * (ThreadsOfWorker(plan.threads) + program);
  const int64_t evaluator = plan.evaluator ? ThreadsOfWorker(1) + program : 0;
  return kFewestThreads + plan.servers * ThreadsOfServer() + workers + evaluator;
}

absl::StatusOr<TemporaryDirectory> CreateSocketDirectory(const std::string& last_resort) {
  // A socket's path has at most 107 bytes.
  constexpr size_t kLongest = 107 - sizeof("/catchment-XXXXXX/server-12345");
  absl::Status status;
  std::error_code error;
  const std::string last = fs::absolute(last_resort, error).string();
  const char* const parents[] = {std::getenv("XDG_RUNTIME_DIR"), std::getenv("TMPDIR"), "/tmp", last.c_str()};
  for (const char* parent : parents) {
    if (parent == nullptr || *parent != '/' || std::strlen(parent) > kLongest) continue;
    absl::StatusOr<TemporaryDirectory> directory = TemporaryDirectory::CreateIn(parent, "catchment");
    if (directory.ok()) return directory;
    status = directory.status();
  }
  return status;
}

Command ServerCommand(const ClusterPlan& plan, int index, const std::string& master,
                      const std::string& address) {
  std::vector<std::string> servers;
  for (int i = 0; i < plan.servers; ++i) {
    servers.push_back(plan.sockets.empty() ? kFreePort : absl::StrCat("unix:", plan.sockets, "/server-", i));
  }
  if (index > 0) servers[0] = master;
  if (!address.empty()) servers[index] = address;
  std::vector<std::string> argv = {plan.daemons.server, "--job=" + plan.job, absl::StrCat("--index=", index),
                                   "--servers=" + absl::StrJoin(servers, ","),
                                   "--checkpoint_dir=" + plan.checkpoints};
  if (index == 0) argv.push_back("--out=" + plan.out);
  if (index == 0 && plan.evaluator) argv.push_back("--evaluators=1");
  if (plan.resume) argv.push_back("--resume");
  return MakeCommand(plan, absl::StrCat("server-", index), std::move(argv));
}

Command WorkerCommand(const ClusterPlan& plan, int index, const std::string& master) {
  std::vector<std::string> argv = {plan.daemons.worker, "--master=" + master,
                                   absl::StrCat("--threads=", plan.threads),
                                   absl::StrCat("--local_index=", index)};
  if (!plan.device.empty()) argv.push_back("--device=" + plan.device);
  if (!plan.program.empty()) argv.push_back("--program=" + plan.program);
  if (!plan.stage.empty()) argv.push_back("--stage=" + plan.stage);
  return MakeCommand(plan, absl::StrCat("worker-", index), std::move(argv));
}

Command EvaluatorCommand(const ClusterPlan& plan, const std::string& master) {
  std::vector<std::string> argv = {plan.daemons.worker, "--master=" + master, "--role=evaluator",
                                   "--threads=1"};
  if (!plan.device.empty()) argv.push_back("--device=" + plan.device);
  if (!plan.program.empty()) argv.push_back("--program=" + plan.program);
  if (!plan.stage.empty()) argv.push_back("--stage=" + plan.stage);
  Command command = MakeCommand(plan, "evaluator", std::move(argv));
  command.nice = plan.evaluator_nice;
  return command;
}

absl::Status LocalCluster::Add(Part part, int index, const Command& command) {
  ASSIGN_OR_RETURN(Process process, Process::Start(command));
  children_.push_back({part, index, std::move(process), command.log, /*address=*/""});
  return absl::OkStatus();
}

absl::Status LocalCluster::Start(double listen_seconds, SignalWaiter* signals) {
  RETURN_IF_ERROR(Add(Part::kServer, 0, ServerCommand(plan_, 0, "")));
  RETURN_IF_ERROR(AwaitMaster(listen_seconds, signals));
  for (int i = 1; i < plan_.servers; ++i) {
    RETURN_IF_ERROR(Add(Part::kServer, i, ServerCommand(plan_, i, master_)));
  }
  for (int i = 0; i < plan_.workers; ++i) {
    RETURN_IF_ERROR(Add(Part::kWorker, i, WorkerCommand(plan_, i, master_)));
  }
  return plan_.evaluator ? Add(Part::kEvaluator, 0, EvaluatorCommand(plan_, master_)) : absl::OkStatus();
}

absl::Status LocalCluster::AwaitMaster(double seconds, SignalWaiter* signals) {
  const SteadyClock clock;
  const double deadline = clock.Now() + seconds;
  Process& master = children_[0].process;
  const std::string& log = children_[0].log;
  while (true) {
    // Polls before it reads the output, so that it sees all output of a process that has ended.
    const std::optional<ProcessEnd> end = master.Poll();
    master_ = ListeningAddress(master.Output(), 0);
    if (!master_.empty()) return absl::OkStatus();
    if (end.has_value()) {
      return absl::UnavailableError(absl::StrCat("server-0 did not start: ", ToString(*end),
                                                 "; the last lines of ", log, ":",
                                                 Quote(master.LastLines(kTailLines))));
    }
    if (clock.Now() >= deadline) {
      return absl::DeadlineExceededError(absl::StrCat("server-0 did not listen within ", seconds,
                                                      " s; the last lines of ", log, ":",
                                                      Quote(master.LastLines(kTailLines))));
    }
    const int signal = signals->Wait(0.02);
    if (signal != 0 && signal != SIGCHLD) return absl::AbortedError("stopped before training began");
  }
}

std::vector<Departure> LocalCluster::Reap() {
  std::vector<Departure> departures;
  for (Child& child : children_) {
    if (child.reaped) continue;
    const std::optional<ProcessEnd> end = child.process.Poll();
    if (!end.has_value()) continue;
    child.reaped = true;
    departures.push_back({.part = child.part,
                          .name = child.process.name(),
                          .pid = child.process.pid(),
                          .end = *end,
                          .log = child.log,
                          .tail = child.process.LastLines(kTailLines)});
  }
  return departures;
}

int LocalCluster::Running(Part part) const {
  int running = 0;
  for (const Child& child : children_) running += child.part == part && !child.reaped;
  return running;
}

bool LocalCluster::MasterRuns() const { return !children_.empty() && !children_[0].reaped; }

bool LocalCluster::AnyRuns() const {
  for (const Child& child : children_) {
    if (!child.reaped) return true;
  }
  return false;
}

std::string LocalCluster::NameOf(pid_t pid) const {
  for (const Child& child : children_) {
    if (child.process.pid() == pid) return child.process.name();
  }
  return "";
}

std::vector<pid_t> LocalCluster::Members() const {
  std::vector<pid_t> members;
  for (const Child& child : children_) {
    if (child.part != Part::kServer && !child.reaped) members.push_back(child.process.pid());
  }
  return members;
}

void LocalCluster::Kill(pid_t pid) {
  for (Child& child : children_) {
    if (child.process.pid() == pid) child.process.Signal(SIGKILL);
  }
}

absl::Status LocalCluster::RestartEvaluator() {
  return Add(Part::kEvaluator, 0, EvaluatorCommand(plan_, master_));
}

absl::Status LocalCluster::Restart(Child* child) {
  if (child->part == Part::kServer && child->address.empty()) {
    child->address = ListeningAddress(child->process.Output(), child->index);
  }
  const Command command = child->part == Part::kServer
                              ? ServerCommand(plan_, child->index, master_, child->address)
                              : WorkerCommand(plan_, child->index, master_);
  ASSIGN_OR_RETURN(child->process, Process::Start(command));
  child->reaped = false;
  return absl::OkStatus();
}

absl::Status LocalCluster::Restart(const std::string& name) {
  for (Child& child : children_) {
    if (child.reaped && child.process.name() == name) return Restart(&child);
  }
  return absl::NotFoundError(absl::StrCat("no process ", name, " has ended"));
}

absl::Status LocalCluster::RestartWorkers() {
  for (Child& child : children_) {
    if (!child.reaped || child.part != Part::kWorker) continue;
    RETURN_IF_ERROR(Restart(&child));
  }
  return absl::OkStatus();
}

void LocalCluster::SignalMaster(int signal) {
  if (!children_.empty()) children_[0].process.Signal(signal);
}

void LocalCluster::SignalWorkers(int signal) {
  for (Child& child : children_) {
    if (child.part != Part::kServer) child.process.Signal(signal);
  }
}

void LocalCluster::SignalAll(int signal) {
  for (Child& child : children_) child.process.Signal(signal);
}

std::string ListeningAddress(const std::string& output, int index) {
  const std::string mark = absl::StrCat("catchment_server ", index, ": listening on ");
  const size_t at = output.find(mark);
  if (at == std::string::npos) return "";
  const size_t begin = at + mark.size();
  const size_t end = output.find('\n', begin);
  if (end == std::string::npos) return "";  // the line is incomplete
  return output.substr(begin, end - begin);
}

}  // namespace catchment
