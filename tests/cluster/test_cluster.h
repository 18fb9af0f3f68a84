// The daemons of one job as real processes over loopback, for tests: started, watched, killed with any
// signal.
//
//   <directory>/job.textproto          the job
//   <directory>/logs/NAME.log          what each daemon says: server-0, worker-0, evaluator-0, ...
//   <directory>/out                    the master's --out, with the checkpoints in out/checkpoints
//
// Every wait is for a condition and has a bound, past which the result fails with the daemons' last lines.
// Threads: none; used by the test's main thread, which the daemons end with (cli/base/process.h).
#ifndef CATCHMENT_TESTS_CLUSTER_TEST_CLUSTER_H_
#define CATCHMENT_TESTS_CLUSTER_TEST_CLUSTER_H_

#include <functional>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "cli/base/process.h"
#include "common/net/rpc.h"
#include "common/program/command_line.h"
#include "gtest/gtest.h"
#include "proto/master.grpc.pb.h"

namespace catchment {

// Seconds that a wait may take: ample, also for a busy machine and under a sanitizer.
constexpr double kPatience = 600;

// Returns the path of a file of the source tree among the test's runfiles.
std::string Runfile(const std::string& path);
std::string ServerProgram();
std::string WorkerProgram();

// A directory of the running test's own; emptied at the first call of each test.
std::string TestDirectory();

// Writes a CSV file of random features. The class of a row is that of the largest of `classes` sums of its
// features.
void WriteTable(const std::string& path, int rows, int features, int classes);

// False when `condition` did not come true in kPatience seconds.
bool Await(const std::function<bool()>& condition);

// Runs a program to its end. Output: stdout and stderr. A test failure where it does not end.
struct Finished {
  ProcessEnd end;
  std::string output;
};
Finished RunToEnd(const std::vector<std::string>& argv);

// The answer of an HTTP server on this machine. A status of 0: there was none.
struct HttpAnswer {
  int status = 0;
  std::string body;
};
HttpAnswer HttpGet(int port, const std::string& path);

// Makes an authority and certificates of all roles, as in docs/security.md, in a new directory.
std::string MakeCertificates(const std::string& name);
TlsFiles CertificateOf(const std::string& directory, const std::string& role);
// Returns the flags with which a daemon uses them.
std::vector<std::string> TlsArguments(const TlsFiles& tls);

// For AwaitStatus: true when there are `workers` workers, each of which has trained `samples` since it
// registered.
std::function<bool(const v1::JobStatus&)> AllHaveTrained(int workers, uint64_t samples);

// A job with a small dense network on drawn digits (2000 for training), the preset and `more` fields.
std::string SmallJob(const std::string& preset, const std::string& more);

// For SmallJob with two workers: they sleep for most of the time, so that a test which has to wait for a
// processor can interrupt the job before its end.
inline constexpr char kUnhurried[] =
    "faults { stragglers { worker: 0 slowdown_factor: 6 } stragglers { worker: 1 slowdown_factor: 6 } } ";

class TestCluster {
 public:
  struct Options {
    std::string job;  // text
    int servers = 1;
    // Two clusters with one directory are two lives of a job.
    std::string directory = TestDirectory() + "/run";
    AutoSwitch resume = AutoSwitch::kOff;
    // False: servers have neither --checkpoint_dir nor --out, and there are no outputs.
    bool keeps_checkpoints = true;
    // The directory of MakeCertificates: every daemon has the certificate of its role. Empty: clear text.
    std::string certificates = "";
    // The output of servers goes to a pipe whose reader ends as soon as they listen.
    bool servers_lose_their_log = false;
    // Command that workers and evaluators are started with; empty: none.
    std::string program = "";
    std::vector<std::string> flags = {};  // of every daemon
    std::vector<std::string> master_flags = {};
  };
  explicit TestCluster(Options options);

  // Starts the servers that are not running yet, the master first. Fails if one does not listen.
  testing::AssertionResult StartServers();
  testing::AssertionResult StartMaster();
  void StartWorkers(int count);
  // One with further flags, which go before the others of their name.
  Process& StartWorker(const std::vector<std::string>& flags);
  void StartEvaluator();
  // All of them.
  testing::AssertionResult Start(int workers);
  // Starts a server that has ended again, at its address.
  testing::AssertionResult RestartServer(int index);

  Process& server(int i) { return *servers_[i]; }
  Process& worker(int i) { return *workers_[i]; }
  Process& evaluator(int i) { return *evaluators_[i]; }
  const std::string& master() const { return master_; }
  // HOST:PORT of a server that was started.
  const std::string& address(int server) const { return addresses_[server]; }
  std::string checkpoint_dir() const { return options_.directory + "/out/checkpoints"; }
  std::string out_dir() const { return options_.directory + "/out"; }
  std::string job_file() const { return options_.directory + "/job.textproto"; }

  // Commands, for tests that change them.
  std::vector<std::string> ServerCommand(int index, const std::string& master) const;
  std::vector<std::string> WorkerCommand() const;

  absl::StatusOr<v1::JobStatus> Status();
  // Fails, too, when the master ends before.
  testing::AssertionResult AwaitStatus(const std::string& what,
                                       const std::function<bool(const v1::JobStatus&)>& condition);
  testing::AssertionResult AwaitTrained(uint64_t samples);

  testing::AssertionResult AwaitExit(Process& process, int exit_code);
  // Every daemon that no SIGKILL was sent to ends with exit code 0.
  testing::AssertionResult AwaitOrderlyEnd();
  testing::AssertionResult AwaitOutput(Process& process, const std::string& text);

  void Kill(Process& process);
  void KillAll();

  // Return the outputs of the master. If there are none, the test fails, and the results are empty.
  nlohmann::json Summary() const;
  std::map<std::string, std::vector<float>> Tensors(const std::string& file = "model.safetensors") const;
  std::string ModelBytes() const;

  // The last lines of every daemon.
  std::string LastWords() const;

 private:
  testing::AssertionResult StartServer(int index);
  testing::AssertionResult AwaitListening(int index, std::string* address);
  std::unique_ptr<Process> StartDaemon(const std::string& name, std::vector<std::string> argv);

  const Options options_;
  std::vector<std::unique_ptr<Process>> servers_;
  std::vector<std::unique_ptr<Process>> workers_;
  std::vector<std::unique_ptr<Process>> evaluators_;
  std::vector<pid_t> killed_;
  std::string master_;                  // HOST:PORT
  std::vector<std::string> addresses_;  // of each server
  std::unique_ptr<v1::MasterService::Stub> stub_;
};

// The largest absolute difference over all values; a test failure where names or sizes differ.
double LargestDifference(const std::map<std::string, std::vector<float>>& a,
                         const std::map<std::string, std::vector<float>>& b);

}  // namespace catchment

#endif  // CATCHMENT_TESTS_CLUSTER_TEST_CLUSTER_H_
