#include "tests/cluster/test_cluster.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <thread>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "cli/local/local_cluster.h"
#include "common/base/clock.h"
#include "common/base/not_ready.h"
#include "common/base/random.h"
#include "common/checkpoint/safetensors.h"

namespace catchment {
namespace {

using testing::AssertionFailure;
using testing::AssertionResult;
using testing::AssertionSuccess;

constexpr auto kPollPause = std::chrono::milliseconds(10);
constexpr double kStatusSeconds = 5;
constexpr int kLastLines = 12;

std::string FileBytes(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  EXPECT_TRUE(file.good()) << path << " is not there";
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

std::string Describe(const Process& process, const std::optional<ProcessEnd>& end) {
  return absl::StrCat("--- ", process.name(), ": ", end.has_value() ? ToString(*end) : "runs", "\n",
                      absl::StrJoin(process.LastLines(kLastLines), "\n"), "\n");
}

}  // namespace

std::string Runfile(const std::string& path) {
  const char* const root = std::getenv("TEST_SRCDIR");
  const char* const workspace = std::getenv("TEST_WORKSPACE");
  if (root == nullptr || workspace == nullptr) return path;
  return absl::StrCat(root, "/", workspace, "/", path);
}

void WriteTable(const std::string& path, int rows, int features, int classes) {
  Random random(7);
  std::ofstream file(path);
  for (int row = 0; row < rows; ++row) {
    std::vector<double> sums(classes);
    for (int i = 0; i < features; ++i) {
      const double value = static_cast<double>(random.Below(2001)) / 1000 - 1;
      sums[i % classes] += value;
      file << value << ',';
    }
    file << std::max_element(sums.begin(), sums.end()) - sums.begin() << '\n';
  }
}

std::string ServerProgram() { return Runfile("server/catchment_server"); }
std::string WorkerProgram() { return Runfile("worker/catchment_worker"); }

std::string TestDirectory() {
  static std::string made;
  const auto* info = testing::UnitTest::GetInstance()->current_test_info();
  std::string name = absl::StrCat(info->test_suite_name(), ".", info->name());
  std::replace(name.begin(), name.end(), '/', '.');
  const std::string path = testing::TempDir() + "/" + name;
  if (path == made) return path;
  made = path;
  std::filesystem::remove_all(path);
  std::filesystem::create_directories(path);
  return path;
}

bool Await(const std::function<bool()>& condition) {
  const SteadyClock clock;
  const double deadline = clock.Now() + kPatience;
  while (!condition()) {
    if (clock.Now() >= deadline) return false;
    std::this_thread::sleep_for(kPollPause);
  }
  return true;
}

Finished RunToEnd(const std::vector<std::string>& argv) {
  absl::StatusOr<Process> process = Process::Start({"program", argv, TestDirectory() + "/program.log"});
  if (!process.ok()) {
    ADD_FAILURE() << process.status();
    return {{-1, 0}, ""};
  }
  const std::optional<ProcessEnd> end = process->WaitFor(kPatience);
  EXPECT_TRUE(end.has_value()) << absl::StrJoin(argv, " ") << " did not end:\n" << process->Output();
  return {end.value_or(ProcessEnd{-1, 0}), process->Output()};
}

HttpAnswer HttpGet(int port, const std::string& path) {
  const int connection = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address = {
      .sin_family = AF_INET, .sin_port = htons(port), .sin_addr = {htonl(INADDR_LOOPBACK)}};
  std::string text;
  if (connect(connection, reinterpret_cast<const sockaddr*>(&address), sizeof(address)) == 0) {
    const std::string request = absl::StrCat("GET ", path, " HTTP/1.0\r\nHost: 127.0.0.1:", port, "\r\n\r\n");
    char buffer[4096];
    ssize_t count = send(connection, request.data(), request.size(), MSG_NOSIGNAL);
    while (count > 0 && (count = recv(connection, buffer, sizeof(buffer), 0)) > 0) text.append(buffer, count);
  }
  close(connection);
  const size_t head = text.find("\r\n\r\n");
  if (head == std::string::npos) return {};
  return {atoi(text.c_str() + text.find(' ')), text.substr(head + 4)};
}

std::function<bool(const v1::JobStatus&)> AllHaveTrained(int workers, uint64_t samples) {
  return [=](const v1::JobStatus& status) {
    const auto has = [=](const v1::WorkerStatus& worker) { return worker.progress().samples() >= samples; };
    return status.workers_size() == workers &&
           std::all_of(status.workers().begin(), status.workers().end(), has);
  };
}

std::string SmallJob(const std::string& preset, const std::string& more) {
  return absl::StrCat(R"(
      name: "small"
      model {
        layers { flatten {} }
        layers { dense { units: 32 } }
        layers { relu {} }
        layers { dense { units: 10 } }
      }
      data { drawn_digits { train_samples: 2000 test_samples: 500 } }
      device: CPU
      block_kib: 16
      algorithm { preset: ")",
                      preset, "\" }\n", more, "\n");
}

std::string MakeCertificates(const std::string& name) {
  const std::string directory = TestDirectory() + "/" + name;
  const Finished made = RunToEnd({Runfile("deploy/make_certs.sh"), directory});
  EXPECT_TRUE(made.end.in_order()) << made.output;
  return directory;
}

TlsFiles CertificateOf(const std::string& directory, const std::string& role) {
  return {directory + "/ca.crt", directory + "/" + role + ".crt", directory + "/" + role + ".key"};
}

std::vector<std::string> TlsArguments(const TlsFiles& tls) {
  return {"--tls_ca=" + tls.ca, "--tls_cert=" + tls.cert, "--tls_key=" + tls.key};
}

// --------------------------------------------------------------------------------------------------- daemons

TestCluster::TestCluster(Options options) : options_(std::move(options)) {
  std::filesystem::create_directories(options_.directory + "/logs");
  std::ofstream(job_file()) << options_.job;
}

std::vector<std::string> TestCluster::ServerCommand(int index, const std::string& master) const {
  std::vector<std::string> servers(options_.servers, "127.0.0.1:0");
  if (!master.empty()) servers[0] = master;
  std::vector<std::string> argv = {ServerProgram(), "--job=" + job_file(), absl::StrCat("--index=", index),
                                   "--servers=" + absl::StrJoin(servers, ",")};
  if (options_.keeps_checkpoints) argv.push_back("--checkpoint_dir=" + checkpoint_dir());
  if (options_.keeps_checkpoints && index == 0) argv.push_back("--out=" + out_dir());
  if (index == 0) argv.insert(argv.end(), options_.master_flags.begin(), options_.master_flags.end());
  if (options_.resume == AutoSwitch::kOn) argv.push_back("--resume");
  if (options_.resume == AutoSwitch::kAuto) argv.push_back("--resume=auto");
  return argv;
}

std::vector<std::string> TestCluster::WorkerCommand() const {
  std::vector<std::string> command = {WorkerProgram(), "--master=" + master_};
  if (!options_.program.empty()) command.push_back("--program=" + options_.program);
  return command;
}

std::unique_ptr<Process> TestCluster::StartDaemon(const std::string& name, std::vector<std::string> argv) {
  if (!options_.certificates.empty()) argv.push_back("--certs=" + options_.certificates);
  argv.insert(argv.end(), options_.flags.begin(), options_.flags.end());
  absl::StatusOr<Process> process =
      Process::Start({name, argv, absl::StrCat(options_.directory, "/logs/", name, ".log")});
  // Without its programs no test means anything.
  if (!process.ok()) {
    std::cerr << process.status() << std::endl;
    std::abort();
  }
  return std::make_unique<Process>(*std::move(process));
}

AssertionResult TestCluster::AwaitListening(int index, std::string* address) {
  Process& server = *servers_[index];
  Await([&] {
    const bool ended = server.Poll().has_value();
    *address = ListeningAddress(server.Output(), index);
    return ended || !address->empty();
  });
  if (!address->empty()) return AssertionSuccess();
  return AssertionFailure() << "server " << index << " is not up\n" << LastWords();
}

AssertionResult TestCluster::StartServer(int index) {
  std::vector<std::string> command = ServerCommand(index, master_);
  if (options_.servers_lose_their_log) {
    const char kScript[] = "exec \"$0\" \"$@\" > >(exec sed '/listening on/q') 2>&1";
    command.insert(command.begin(), {"/bin/bash", "-c", kScript});
  }
  servers_.push_back(StartDaemon(absl::StrCat("server-", index), command));
  addresses_.emplace_back();
  const AssertionResult up = AwaitListening(index, &addresses_[index]);
  if (index == 0) master_ = addresses_[0];
  return up;
}

AssertionResult TestCluster::RestartServer(int index) {
  std::vector<std::string> servers(options_.servers, "127.0.0.1:0");
  servers[0] = master_;
  servers[index] = addresses_[index];
  std::vector<std::string> argv = ServerCommand(index, master_);
  argv.push_back("--servers=" + absl::StrJoin(servers, ","));
  servers_[index] = StartDaemon(absl::StrCat("server-", index), argv);
  std::string address;
  return AwaitListening(index, &address);
}

AssertionResult TestCluster::StartMaster() {
  if (AssertionResult up = StartServer(0); !up) return up;
  const TlsFiles tls =
      options_.certificates.empty() ? TlsFiles() : CertificateOf(options_.certificates, "operator");
  absl::StatusOr<std::shared_ptr<grpc::ChannelCredentials>> credentials = ClientCredentials(tls);
  if (!credentials.ok()) return AssertionFailure() << credentials.status();
  stub_ = v1::MasterService::NewStub(Connect(master_, *credentials));
  // The master answers no call of a test while it makes its shard.
  while (IsNotReady(Status().status()) && !servers_[0]->Poll().has_value())
    std::this_thread::sleep_for(kPollPause);
  return AssertionSuccess();
}

AssertionResult TestCluster::StartServers() {
  if (servers_.empty()) {
    if (AssertionResult up = StartMaster(); !up) return up;
  }
  for (int i = static_cast<int>(servers_.size()); i < options_.servers; ++i) {
    if (AssertionResult up = StartServer(i); !up) return up;
  }
  return AssertionSuccess();
}

void TestCluster::StartWorkers(int count) {
  for (int i = 0; i < count; ++i) StartWorker({});
}

Process& TestCluster::StartWorker(const std::vector<std::string>& flags) {
  std::vector<std::string> command = WorkerCommand();
  command.insert(command.end(), flags.begin(), flags.end());
  workers_.emplace_back(StartDaemon(absl::StrCat("worker-", workers_.size()), command));
  return *workers_.back();
}

void TestCluster::StartEvaluator() {
  std::vector<std::string> argv = WorkerCommand();
  argv.push_back("--role=evaluator");
  evaluators_.emplace_back(StartDaemon(absl::StrCat("evaluator-", evaluators_.size()), argv));
}

AssertionResult TestCluster::Start(int workers) {
  if (AssertionResult up = StartServers(); !up) return up;
  StartEvaluator();
  // A job is not kept from its end by an evaluator that has not come yet.
  if (AssertionResult here = AwaitOutput(*evaluators_[0], "evaluator of job"); !here) return here;
  StartWorkers(workers);
  return AssertionSuccess();
}

void TestCluster::Kill(Process& process) {
  killed_.push_back(process.pid());
  process.Signal(SIGKILL);
  process.WaitFor(kPatience);
}

void TestCluster::KillAll() {
  for (const auto* group : {&servers_, &workers_, &evaluators_}) {
    for (const auto& process : *group) process->Signal(SIGKILL);
  }
  for (const auto* group : {&servers_, &workers_, &evaluators_}) {
    for (const auto& process : *group) Kill(*process);
  }
}

// ----------------------------------------------------------------------------------------------------- waits

absl::StatusOr<v1::JobStatus> TestCluster::Status() {
  v1::JobStatus reply;
  const std::unique_ptr<grpc::ClientContext> context = DeadlineContext(kStatusSeconds);
  const absl::Status status = FromGrpc(stub_->GetStatus(context.get(), v1::GetStatusRequest(), &reply));
  if (!status.ok()) return status;
  return reply;
}

AssertionResult TestCluster::AwaitStatus(const std::string& what,
                                         const std::function<bool(const v1::JobStatus&)>& condition) {
  absl::StatusOr<v1::JobStatus> status;
  bool met = false;
  Await([&] {
    const bool ended = servers_[0]->Poll().has_value();
    if (!ended) status = Status();
    met = !ended && status.ok() && condition(*status);
    return met || ended;
  });
  if (met) return AssertionSuccess();
  return AssertionFailure() << "waited in vain for " << what << "; the last status:\n"
                            << (status.ok() ? status->DebugString() : status.status().ToString())
                            << LastWords();
}

AssertionResult TestCluster::AwaitTrained(uint64_t samples) {
  return AwaitStatus(absl::StrCat(samples, " samples"),
                     [samples](const v1::JobStatus& status) { return status.samples() >= samples; });
}

AssertionResult TestCluster::AwaitExit(Process& process, int exit_code) {
  // The master's server waits a second for a client that is connected and calls nothing.
  if (&process == servers_[0].get()) stub_.reset();
  const std::optional<ProcessEnd> end = process.WaitFor(kPatience);
  if (end.has_value() && end->signal == 0 && end->exit_code == exit_code) return AssertionSuccess();
  return AssertionFailure() << process.name() << " was to end with exit code " << exit_code << ", but "
                            << (end.has_value() ? ToString(*end) : "runs") << "\n"
                            << LastWords();
}

AssertionResult TestCluster::AwaitOrderlyEnd() {
  for (const auto* group : {&servers_, &workers_, &evaluators_}) {
    for (const auto& process : *group) {
      if (std::count(killed_.begin(), killed_.end(), process->pid()) > 0) continue;
      if (AssertionResult ended = AwaitExit(*process, 0); !ended) return ended;
    }
  }
  return AssertionSuccess();
}

AssertionResult TestCluster::AwaitOutput(Process& process, const std::string& text) {
  const auto said = [&] { return process.Output().find(text) != std::string::npos; };
  Await([&] {
    const bool ended = process.Poll().has_value();
    return said() || ended;
  });
  if (said()) return AssertionSuccess();
  return AssertionFailure() << process.name() << " did not say '" << text << "'\n" << LastWords();
}

std::string TestCluster::LastWords() const {
  std::string words;
  for (const auto* group : {&servers_, &workers_, &evaluators_}) {
    for (const auto& process : *group) words += Describe(*process, process->Poll());
  }
  return words;
}

// --------------------------------------------------------------------------------------------------- results

nlohmann::json TestCluster::Summary() const {
  const nlohmann::json summary =
      nlohmann::json::parse(FileBytes(out_dir() + "/summary.json"), nullptr, false);
  if (summary.is_object()) return summary;
  ADD_FAILURE() << "no summary in " << out_dir() << "\n" << LastWords();
  return nlohmann::json::object();
}

std::string TestCluster::ModelBytes() const { return FileBytes(out_dir() + "/model.safetensors"); }

std::map<std::string, std::vector<float>> TestCluster::Tensors(const std::string& name) const {
  std::map<std::string, std::vector<float>> tensors;
  const auto file = SafetensorsFile::Open(out_dir() + "/" + name);
  if (!file.ok()) {
    ADD_FAILURE() << file.status() << "\n" << LastWords();
    return tensors;
  }
  for (const TensorEntry& entry : (*file)->tensors()) {
    std::vector<float>& values = tensors[entry.name];
    values.resize(entry.size);
    const absl::Status status = (*file)->Read(entry.name, 0, entry.size, values.data());
    EXPECT_TRUE(status.ok()) << status;
  }
  return tensors;
}

double LargestDifference(const std::map<std::string, std::vector<float>>& a,
                         const std::map<std::string, std::vector<float>>& b) {
  double largest = 0;
  EXPECT_EQ(a.size(), b.size());
  EXPECT_FALSE(a.empty());
  for (const auto& [name, values] : a) {
    const auto other = b.find(name);
    if (other == b.end() || other->second.size() != values.size()) {
      ADD_FAILURE() << "tensor " << name << " has no equal";
      continue;
    }
    for (size_t i = 0; i < values.size(); ++i) {
      const double difference = std::abs(double{values[i]} - double{other->second[i]});
      // A NaN is as far away as can be.
      largest = std::isnan(difference) ? INFINITY : std::max(largest, difference);
    }
  }
  return largest;
}

}  // namespace catchment
