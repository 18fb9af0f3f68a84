// A stand-in for catchment_server: a master that follows a script instead of training anything, so that tests
// can make it hang, die or finish. The script is the environment variable FAKE_MASTER (words, separated by
// spaces), and files in the --out directory: "finish" ends the job as done; the master creates "asked" for
// every request for its status. "fail" ends it as failed, with the file's line as the reason: the master
// closes its port, creates "deaf", and ends with exit code 1 when there is a file "failed".
//   refuse      ends with exit code 1 and a reason
//   mute        does not print its address
//   deaf        prints an address at which no process answers
//   waiting     stays in the phase WAITING
//   recovers    has gone back to a checkpoint once
//   stubborn    ignores Stop and SIGTERM
//   checkpoint  has written a checkpoint
//   scored      reports a score of the test set
//   swapped     has the workers in the file "pids", one in each line, which ends with that of worker 0
//   endless     has a budget of 10^12 samples
//   watches     considers the worker lost whose process id is in the file "hung", and has those in "pids"
// FAKE_SUMMARY, if set, has more members of summary.json: "\"train_samples\": 600, ".
// A server of another index waits for SIGTERM; with FAKE_SERVER=die it ends with exit code 3.
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <iterator>
#include <sstream>
#include <string>
#include <vector>

#include "common/base/machine.h"
#include "tests/common/net/scripted_master.h"

namespace {

namespace fs = std::filesystem;
namespace v1 = catchment::v1;
using catchment::ScriptedMaster;

std::atomic<bool> asked_to_end{false};
std::string stop_reason;  // written before asked_to_end
const auto began = std::chrono::steady_clock::now();

std::string Flag(int argc, char** argv, const std::string& name) {
  const std::string prefix = "--" + name + "=";
  for (int i = 1; i < argc; ++i) {
    if (std::string(argv[i]).rfind(prefix, 0) == 0) return std::string(argv[i]).substr(prefix.size());
  }
  return "";
}

bool Scripted(const std::string& word) {
  const char* script = std::getenv("FAKE_MASTER");
  std::istringstream words(script == nullptr ? "" : script);
  return std::find(std::istream_iterator<std::string>(words), std::istream_iterator<std::string>(), word) !=
         std::istream_iterator<std::string>();
}

void AddWorkers(const std::string& out, v1::JobStatus* status) {
  std::ifstream file(out + "/pids");
  std::vector<uint32_t> pids{std::istream_iterator<uint32_t>(file), {}};
  for (size_t i = 0; i < pids.size(); ++i) {
    v1::WorkerStatus* worker = status->add_workers();
    worker->set_worker(pids.size() - 1 - i);
    worker->set_pid(pids[i]);
  }
}

void LoseWorker(const std::string& out, v1::JobStatus* status) {
  status->mutable_settings()->mutable_faults()->set_stuck_seconds(Scripted("patient") ? 0 : 0.05);
  int pid = 0;
  if (!(std::ifstream(out + "/hung") >> pid)) return;
  status->add_events("worker 0 (" + catchment::HostName() + ":" + std::to_string(pid) +
                     ") has made no progress: considered lost");
}

absl::Status Report(const std::string& out, v1::JobStatus* status) {
  std::ofstream(out + "/asked").flush();
  status->set_phase(Scripted("waiting") ? v1::JobStatus::WAITING : v1::JobStatus::TRAINING);
  status->set_samples(100);
  if (Scripted("recovers")) status->set_recoveries(1);
  if (Scripted("endless")) status->set_total_samples(1'000'000'000'000);
  status->set_wall_seconds(std::chrono::duration<double>(std::chrono::steady_clock::now() - began).count());
  if (Scripted("swapped") || Scripted("watches")) AddWorkers(out, status);
  if (Scripted("watches")) LoseWorker(out, status);
  if (Scripted("scored")) {
    status->set_test_samples(10);
    status->set_has_accuracy(true);
    status->set_test_accuracy(0.5);
    status->set_tested_at_samples(100);
  }
  return absl::OkStatus();
}

absl::Status Stop(const v1::StopRequest& request) {
  std::cerr << "Stop: " << request.reason() << std::endl;
  stop_reason = request.reason();
  if (!Scripted("stubborn")) asked_to_end = true;
  return absl::OkStatus();
}

void AwaitEnd(const std::string& out) {
  while (!asked_to_end && (out.empty() || !(fs::exists(out + "/finish") || fs::exists(out + "/fail"))))
    usleep(5000);
}

int Fail(const std::string& out, ScriptedMaster* master) {
  std::string reason;
  std::getline(std::ifstream(out + "/fail") >> std::ws, reason);
  master->Shutdown();
  std::ofstream(out + "/deaf").flush();
  while (!fs::exists(out + "/failed")) usleep(5000);
  std::ofstream(out + "/summary.json") << "{\"phase\": \"FAILED\", \"reason\": \"" << reason << "\"}\n";
  return 1;
}

int RunMaster(const std::string& out) {
  if (Scripted("refuse")) {
    std::cerr << "the data is missing" << std::endl;
    return 1;
  }
  if (Scripted("checkpoint")) {
    fs::create_directories(out + "/checkpoints/checkpoint-1");
    std::ofstream(out + "/checkpoints/checkpoint-1/manifest.textproto") << "number: 1\n";
  }
  ScriptedMaster master;
  master.get_status.SetHandler([out](const auto&, v1::JobStatus* status) { return Report(out, status); });
  master.stop.SetHandler([](const v1::StopRequest& request, auto*) { return Stop(request); });
  if (Scripted("deaf")) master.Shutdown();
  if (!Scripted("mute")) std::cout << "catchment_server 0: listening on " << master.address() << std::endl;
  AwaitEnd(out);
  if (fs::exists(out + "/fail")) return Fail(out, &master);
  const char* const facts = std::getenv("FAKE_SUMMARY");
  std::ofstream(out + "/summary.json")
      << "{" << (facts == nullptr ? "" : facts) << "\"phase\": \"" << (asked_to_end ? "STOPPED" : "DONE")
      << (asked_to_end ? "\", \"reason\": \"" + stop_reason : "") << "\", \"test_accuracy\": 0.5}\n";
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  signal(
      SIGTERM, Scripted("stubborn") ? SIG_IGN : +[](int) { asked_to_end = true; });
  const std::string out = Flag(argc, argv, "out");
  if (Flag(argc, argv, "index") == "0") return RunMaster(out);
  const char* behaviour = std::getenv("FAKE_SERVER");
  if (behaviour != nullptr && std::string(behaviour) == "die") return 3;
  AwaitEnd("");
  return 0;
}
