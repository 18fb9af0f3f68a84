// Programs that compute the gradients in place of the worker, on real daemons: attached_program.py.
#include <csignal>
#include <cstdlib>
#include <fstream>
#include <map>
#include <tuple>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "common/base/random.h"
#include "common/checkpoint/safetensors.h"
#include "common/job/algorithm_facts.h"
#include "common/job/presets.h"
#include "gmock/gmock.h"
#include "tests/cluster/test_cluster.h"

namespace catchment {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr int kFeatures = 6, kHidden = 8, kClasses = 3;
constexpr int kRows = 240;
constexpr int kBatch = 16;

std::string CsvFile() { return TestDirectory() + "/rows.csv"; }
std::string WeightsFile() { return TestDirectory() + "/initial.safetensors"; }

void WriteInitialWeights() {
  Random random(8);
  std::map<std::string, std::vector<int64_t>> shapes = {{"dense1.weight", {kHidden, kFeatures}},
                                                        {"dense1.bias", {kHidden}},
                                                        {"dense2.weight", {kClasses, kHidden}},
                                                        {"dense2.bias", {kClasses}}};
  std::map<std::string, std::vector<float>> values;
  std::vector<TensorView> views;
  for (const auto& [name, shape] : shapes) {
    int64_t size = 1;
    for (const int64_t n : shape) size *= n;
    for (int64_t i = 0; i < size; ++i) values[name].push_back(static_cast<float>(random.Normal()) / 3);
    views.push_back({name, shape, values[name]});
  }
  const absl::Status status = WriteSafetensors(WeightsFile(), views, {});
  ASSERT_TRUE(status.ok()) << status;
}

std::string CommonJob(const std::string& more) {
  return absl::StrCat("batch_size: ", kBatch, " device: CPU block_kib: 16 ", more);
}

std::string BuiltInJob(const std::string& more) {
  return absl::StrCat("model { layers { dense { units: ", kHidden,
                      " } } layers { relu {} } layers { dense { units: ", kClasses, " } } initial_weights: '",
                      WeightsFile(), "' } data { table { train: '", CsvFile(), "' shape: ", kFeatures,
                      " classes: ", kClasses, " } } ", CommonJob(more));
}

std::string AttachedJob(const std::string& more, int test_samples = 0) {
  return absl::StrCat("model { external { tensors { name: 'dense1.weight' shape: ", kHidden,
                      " shape: ", kFeatures, " } tensors { name: 'dense1.bias' shape: ", kHidden,
                      " } tensors { name: 'dense2.weight' shape: ", kClasses, " shape: ", kHidden,
                      " } tensors { name: 'dense2.bias' shape: ", kClasses, " } } initial_weights: '",
                      WeightsFile(), "' } data { external { train_samples: ", kRows,
                      " test_samples: ", test_samples, " } } ", CommonJob(more));
}

std::string Program(const std::string& fault = "") {
  return absl::StrCat("exec python3 tests/cluster/attached_program.py ", CsvFile(), " ", fault);
}

class AttachedTest : public testing::Test {
 protected:
  void SetUp() override {
    TestDirectory();
    WriteTable(CsvFile(), kRows, kFeatures, kClasses);
    WriteInitialWeights();
  }

  // Trains to the end and returns the weights.
  std::map<std::string, std::vector<float>> Train(const std::string& name, const std::string& job,
                                                  const std::string& program, int workers) {
    TestCluster cluster({.job = job, .directory = TestDirectory() + "/" + name, .program = program});
    EXPECT_TRUE(cluster.StartServers());
    cluster.StartWorkers(workers);
    EXPECT_TRUE(cluster.AwaitOrderlyEnd());
    summary_ = cluster.Summary();
    return cluster.Tensors();
  }

  nlohmann::json summary_;  // of the last Train
};

class AttachedPresetTest : public AttachedTest, public testing::WithParamInterface<std::string> {};

bool HasQuorum(const std::string& preset) { return FindPreset(preset)->algorithm.consistency().has_quorum(); }

// Returns the changes with which some presets work with one worker, and give the same result each time.
std::string ForOneWorker(const std::string& preset) {
  if (HasQuorum(preset)) return "contribution { pseudo_gradient { fragments: 1 overlap_steps: 0 } }";
  const v1::Consistency& consistency = FindPreset(preset)->algorithm.consistency();
  if (BackupWorkers(consistency) > 0) return "consistency { synchronous { backup_workers: 0 } }";
  return NumGroups(consistency) > 1 ? "consistency { synchronous {} }" : "";
}

// The program computes in double precision, the worker in single.
TEST_P(AttachedPresetTest, FollowsTheBuiltInModel) {
  const std::string more =
      absl::StrCat("epochs: 2 deterministic: ", HasQuorum(GetParam()) ? "false" : "true",
                   " algorithm { preset: '", GetParam(), "' ", ForOneWorker(GetParam()), " }");
  const auto attached = Train("attached", AttachedJob(more), Program(), 1);
  const nlohmann::json summary = summary_;
  const auto built_in = Train("built-in", BuiltInJob(more), "", 1);
  EXPECT_LE(LargestDifference(attached, built_in), 1e-5);
  EXPECT_EQ(summary["samples"], summary_["samples"]);
  EXPECT_EQ(summary["updates"], summary_["updates"]);
  EXPECT_THAT(summary.value("device", ""), HasSubstr("program: "));
}

INSTANTIATE_TEST_SUITE_P(All, AttachedPresetTest, testing::ValuesIn(PresetNames()),
                         [](const auto& info) { return info.param; });

TEST_F(AttachedTest, SeveralWorkersFollowTheBuiltInModel) {
  // 240 samples are 5 steps of 3 workers, or 4 of 4 workers, of which the last has 48; or 3, the last of 112.
  for (const auto& [workers, steps, last] :
       std::vector<std::tuple<int, int, std::string>>{{3, 5, "KEEP"}, {4, 4, "KEEP"}, {4, 3, "MERGE"}}) {
    const std::string name = absl::StrCat(workers, last);
    const std::string more =
        absl::StrCat("epochs: 3 workers: ", workers, " deterministic: true last_minibatch: ", last);
    const auto attached = Train(name, AttachedJob(more), Program(), workers);
    EXPECT_EQ(summary_["samples"], 3 * kRows) << name;
    EXPECT_EQ(summary_["updates"], 3 * steps) << name;
    EXPECT_LE(LargestDifference(attached, Train(name + "-built-in", BuiltInJob(more), "", workers)), 1e-5)
        << name;
  }
}

TEST_F(AttachedTest, EvaluatorsProgramScoresTheWeights) {
  TestCluster cluster({.job = AttachedJob("epochs: 20 optimizer { learning_rate: 0.5 }", kRows),
                       .program = "export TEST_SAMPLES=1; " + Program()});
  ASSERT_TRUE(cluster.Start(1));
  ASSERT_TRUE(cluster.AwaitOrderlyEnd());
  const nlohmann::json summary = cluster.Summary();
  EXPECT_GE(summary.value("test_accuracy", 0.0), 0.9) << summary.dump(2);
  EXPECT_GT(summary.value("test_loss", 0.0), 0.0) << summary.dump(2);
}

TEST_F(AttachedTest, EvaluatorsProgramThatScoresNothingIsNamed) {
  TestCluster cluster(
      {.job = AttachedJob("epochs: 20", kRows), .program = "export TEST_SAMPLES=1; " + Program()});
  ASSERT_TRUE(cluster.StartServers());
  Process& evaluator = cluster.StartWorker(
      {"--role=evaluator", absl::StrCat("--program=export TEST_SAMPLES=1; ", Program("unscored"))});
  cluster.StartWorkers(1);
  EXPECT_TRUE(cluster.AwaitOutput(evaluator, "if worker.evaluates is true, it must call worker.evaluate()"))
      << evaluator.Output();
}

// The worker's program is done before the evaluator's has begun.
TEST_F(AttachedTest, JobWaitsForTheProgramOfItsEvaluator) {
  TestCluster cluster(
      {.job = AttachedJob("epochs: 1", kRows), .program = "export TEST_SAMPLES=1; " + Program()});
  ASSERT_TRUE(cluster.StartServers());
  const std::string gate = TestDirectory() + "/gate";
  Process& evaluator =
      cluster.StartWorker({"--role=evaluator", absl::StrCat("--program=export TEST_SAMPLES=1; until test -e ",
                                                            gate, "; do sleep 0.01; done; ", Program())});
  ASSERT_TRUE(cluster.AwaitOutput(evaluator, "evaluator of job"));
  cluster.StartWorkers(1);
  ASSERT_TRUE(cluster.AwaitOutput(cluster.server(0), "the budget is spent"));
  std::ofstream(gate) << "open";
  ASSERT_TRUE(cluster.AwaitOrderlyEnd());
  EXPECT_FALSE(cluster.Summary()["test_loss"].is_null()) << cluster.LastWords();
}

// Its worker ends it when it is told to.
TEST_F(AttachedTest, JobIsDoneWithoutAnEvaluatorWhoseProgramHangs) {
  const std::string faults = "faults { heartbeat_timeout_seconds: 2 stuck_seconds: 5 }";
  TestCluster cluster(
      {.job = AttachedJob("epochs: 1 " + faults, kRows), .program = "export TEST_SAMPLES=1; " + Program()});
  ASSERT_TRUE(cluster.StartServers());
  Process& evaluator = cluster.StartWorker(
      {"--role=evaluator", absl::StrCat("--program=export TEST_SAMPLES=1; ", Program("scoreless"))});
  ASSERT_TRUE(cluster.AwaitOutput(evaluator, "evaluator of job"));
  cluster.StartWorkers(1);
  ASSERT_TRUE(cluster.AwaitExit(cluster.worker(1), 0));
  ASSERT_TRUE(cluster.AwaitExit(cluster.server(0), 0));
  EXPECT_THAT(cluster.server(0).Output(), HasSubstr("(faults.stuck_seconds): considered lost"));
  const nlohmann::json summary = cluster.Summary();
  EXPECT_EQ(summary["phase"], "DONE");
  EXPECT_EQ(summary["reason"], "without a score of its final weights: no evaluator is left");
  EXPECT_TRUE(summary["test_loss"].is_null()) << summary.dump(2);
  evaluator.Signal(SIGTERM);
  EXPECT_TRUE(cluster.AwaitExit(evaluator, 0));
}

// -------------------------------------------------------------------------------------------------- failures

struct Fault {
  std::string name;
  std::string reason;  // in the worker's log
};

class AttachedFaultTest : public AttachedTest, public testing::WithParamInterface<Fault> {};

TEST_P(AttachedFaultTest, EndsTheWorkerWithTheReasonAndOthersTrainItsShare) {
  const std::string more = "epochs: 20 workers: 2 faults { heartbeat_timeout_seconds: 2 }";
  TestCluster cluster({.job = AttachedJob(more), .program = Program()});
  ASSERT_TRUE(cluster.StartServers());
  cluster.StartWorkers(1);
  ASSERT_TRUE(cluster.AwaitOutput(cluster.server(0), "joined"));
  Process& faulty = cluster.StartWorker({"--program=" + Program(GetParam().name)});
  EXPECT_TRUE(cluster.AwaitOutput(faulty, GetParam().reason));
  EXPECT_TRUE(cluster.AwaitExit(faulty, 1));
  // In place of one that never came to train.
  cluster.StartWorkers(1);
  ASSERT_TRUE(cluster.AwaitExit(cluster.worker(0), 0));
  ASSERT_TRUE(cluster.AwaitExit(cluster.server(0), 0));
  const nlohmann::json summary = cluster.Summary();
  EXPECT_EQ(summary["phase"], "DONE") << summary.dump(2);
  EXPECT_EQ(summary["samples"], 20 * kRows) << summary.dump(2);
}

INSTANTIATE_TEST_SUITE_P(
    All, AttachedFaultTest,
    testing::Values(
        Fault{"leave", "ended without calling catchment.join(): exit code 0"},
        Fault{"shape", "tensor 0: expected dense1.weight 8x6, got dense1.weight 8x7"},
        Fault{"name", "tensor 2: expected dense2.weight 3x8, got output.weight 3x8"},
        Fault{"memory", "the program failed: out of memory (MemoryError): set a smaller batch_size"},
        Fault{"killed", "killed by SIGKILL (9), probably by the kernel for lack of memory"},
        Fault{"version", "speaks version 99 of the protocol"},
        Fault{"raise", "the program failed: ValueError: no such thing as a second line"},
        Fault{"exit", "ended before the job was over: exit code 3"},
        Fault{"print", "15 bytes that are not a message"},
        Fault{"twice", "the program failed: RuntimeError: worker.step() was called without a minibatch"},
        Fault{"skip", "the program failed: RuntimeError: step 3 was skipped"}),
    [](const auto& info) { return info.param.name; });

// The id of the program that a worker has started, from its log; 0: none.
pid_t ProgramPid(const Process& worker) {
  const std::string output = worker.Output();
  const std::string mark = "started the program (pid ";
  const size_t at = output.find(mark);
  return at == std::string::npos ? 0 : std::atoi(output.c_str() + at + mark.size());
}

// A process that has ended and was not waited for has no command line.
bool Runs(pid_t pid) {
  std::ifstream file(absl::StrCat("/proc/", pid, "/cmdline"), std::ios::binary);
  return file.peek() != std::char_traits<char>::eof();
}

// A victim and the message after which it is killed.
class AttachedKillTest : public AttachedTest, public testing::WithParamInterface<std::string> {};

TEST_P(AttachedKillTest, LeavesNoProcessAndOthersTrainItsShare) {
  const std::string more = "epochs: 20 workers: 2 faults { heartbeat_timeout_seconds: 2 }";
  TestCluster cluster({.job = AttachedJob(more), .program = Program()});
  ASSERT_TRUE(cluster.StartServers());
  cluster.StartWorkers(1);
  ASSERT_TRUE(cluster.AwaitOutput(cluster.server(0), "joined"));
  Process& victim = cluster.StartWorker({"--program=" + Program(GetParam())});
  const std::optional<ProcessEnd> end = victim.WaitFor(kPatience);
  ASSERT_TRUE(end.has_value()) << cluster.LastWords();
  if (absl::StartsWith(GetParam(), "program")) {
    EXPECT_EQ(end->exit_code, 1);
    EXPECT_TRUE(cluster.AwaitOutput(victim, "killed by SIGKILL (9)"));
  } else {
    EXPECT_EQ(end->signal, SIGKILL);
  }
  const pid_t program = ProgramPid(victim);
  ASSERT_GT(program, 0) << victim.Output();
  EXPECT_TRUE(Await([program] { return !Runs(program); }));
  // In place of one that never came to train.
  cluster.StartWorkers(1);
  ASSERT_TRUE(cluster.AwaitExit(cluster.worker(0), 0));
  ASSERT_TRUE(cluster.AwaitExit(cluster.server(0), 0));
  const nlohmann::json summary = cluster.Summary();
  EXPECT_EQ(summary["phase"], "DONE") << summary.dump(2);
  EXPECT_EQ(summary["samples"], 20 * kRows) << summary.dump(2);
}

std::vector<std::string> Kills() {
  std::vector<std::string> kills;
  for (const char* victim : {"program", "daemon", "both"}) {
    for (const char* message : {"hello", "begin", "final", "done"})
      kills.push_back(absl::StrCat(victim, "-", message));
  }
  return kills;
}

INSTANTIATE_TEST_SUITE_P(All, AttachedKillTest, testing::ValuesIn(Kills()), [](const auto& info) {
  return absl::StrReplaceAll(info.param, {{"-", "_"}});
});

TEST_F(AttachedTest, ProgramThatFailsAfterItsLastStepHasAnExitCodeOfItsOwn) {
  TestCluster cluster({.job = AttachedJob("epochs: 1"), .program = Program("late")});
  ASSERT_TRUE(cluster.StartServers());
  cluster.StartWorkers(1);
  EXPECT_TRUE(cluster.AwaitExit(cluster.worker(0), 4));
  EXPECT_THAT(cluster.worker(0).Output(),
              AllOf(HasSubstr("ValueError: the result cannot be saved"),
                    HasSubstr(") failed after its last step: exit code 1; its output is above")));
  ASSERT_TRUE(cluster.AwaitExit(cluster.server(0), 0));
  EXPECT_EQ(cluster.Summary()["phase"], "DONE");
}

TEST_F(AttachedTest, WorkerAndJobDoNotGoTogetherWithoutAProgram) {
  TestCluster cluster({.job = AttachedJob("epochs: 1")});
  ASSERT_TRUE(cluster.StartServers());
  Process& worker = cluster.StartWorker({});
  EXPECT_TRUE(cluster.AwaitOutput(worker, "start this worker with --program=COMMAND"));
  EXPECT_TRUE(cluster.AwaitExit(worker, 1));
}

// A worker that must stop before the program has joined does not wait for it.
TEST_F(AttachedTest, ProgramThatNeverJoinsEndsWithItsWorker) {
  TestCluster cluster({.job = AttachedJob("epochs: 1"), .program = "sleep 100000; true"});
  ASSERT_TRUE(cluster.StartServers());
  Process& worker = cluster.StartWorker({});
  ASSERT_TRUE(cluster.AwaitOutput(worker, "started the program"));
  worker.Signal(SIGTERM);
  EXPECT_TRUE(cluster.AwaitExit(worker, 0));
  const pid_t program = ProgramPid(worker);
  EXPECT_TRUE(Await([program] { return !Runs(program); }));
}

// The program ignores SIGTERM; no time is asserted, because AwaitExit has a limit.
TEST_F(AttachedTest, ProgramThatHangsInAStepEndsWithItsWorker) {
  TestCluster cluster({.job = AttachedJob("epochs: 1"), .program = Program("busy")});
  ASSERT_TRUE(cluster.StartServers());
  Process& worker = cluster.StartWorker({});
  ASSERT_TRUE(cluster.AwaitOutput(worker, "the program computes forever"));
  worker.Signal(SIGTERM);
  EXPECT_TRUE(cluster.AwaitExit(worker, 0));
  const pid_t program = ProgramPid(worker);
  EXPECT_TRUE(Await([program] { return !Runs(program); }));
}

TEST_F(AttachedTest, ProgramThatHangsAfterItsLastStepEndsWithItsWorker) {
  TestCluster cluster({.job = AttachedJob("epochs: 1"), .program = Program("endless")});
  ASSERT_TRUE(cluster.StartServers());
  Process& worker = cluster.StartWorker({});
  ASSERT_TRUE(cluster.AwaitOutput(worker, "the program computes forever"));
  worker.Signal(SIGTERM);
  EXPECT_TRUE(cluster.AwaitExit(worker, 0));
  EXPECT_THAT(worker.Output(), HasSubstr("did not end within 12 s after its worker was asked to stop"));
  const pid_t program = ProgramPid(worker);
  EXPECT_TRUE(Await([program] { return !Runs(program); }));
}

// The process at a prompt is the program; it has no worker until it joins.
TEST_F(AttachedTest, InterpreterStartsAWorkerOfItsOwn) {
  TestCluster cluster({.job = AttachedJob("epochs: 3")});
  ASSERT_TRUE(cluster.StartServers());
  const std::string worker = WorkerProgram();
  const std::string cells = "exec(open('tests/cluster/attached_program.py').read())\nprint('the end')\n";
  const Finished python = RunToEnd(
      {"/bin/sh", "-c",
       absl::StrCat("export MASTER=", cluster.master(), " PATH=", worker.substr(0, worker.rfind('/')),
                    ":$PATH; exec python3 -i -q - ", CsvFile(), " <<'END'\n", cells, "END\n")});
  EXPECT_TRUE(python.end.in_order()) << python.output;
  EXPECT_THAT(python.output, HasSubstr("the program trained 45 steps"));
  EXPECT_THAT(python.output, HasSubstr("the end"));
  EXPECT_THAT(python.output, HasSubstr(" ended: exit code 0"));
  ASSERT_TRUE(cluster.AwaitExit(cluster.server(0), 0));
  EXPECT_EQ(cluster.Summary()["samples"], 3 * kRows) << python.output;
}

// The steps that were planned before are left out; what they were of is planned again, for some worker.
TEST_F(AttachedTest, ProgramGoesOnWhenItsWorkerRegistersAgain) {
  const std::string more =
      "epochs: 1000000 workers: 2 algorithm { preset: 'downpour' } faults { heartbeat_timeout_seconds: 2 }";
  TestCluster cluster({.job = AttachedJob(more), .program = Program()});
  ASSERT_TRUE(cluster.StartServers());
  cluster.StartWorkers(2);
  ASSERT_TRUE(cluster.AwaitStatus("both to train", AllHaveTrained(2, 200)));
  cluster.worker(1).Signal(SIGSTOP);
  ASSERT_TRUE(cluster.AwaitOutput(cluster.server(0), "considered lost"));
  cluster.worker(1).Signal(SIGCONT);
  ASSERT_TRUE(cluster.AwaitOutput(cluster.worker(1), "the membership was lost"));
  ASSERT_TRUE(cluster.AwaitStatus("both to train again", AllHaveTrained(2, 200)));
  cluster.server(0).Signal(SIGTERM);
  ASSERT_TRUE(cluster.AwaitOrderlyEnd());
  const std::string output = cluster.worker(1).Output();
  EXPECT_EQ(output.find("started the program"), output.rfind("started the program")) << output;
}

// The job ends when servers have refused the limit of consecutive gradients.
TEST_F(AttachedTest, GradientsThatAreNotFiniteEndTheJob) {
  TestCluster cluster(
      {.job = AttachedJob("epochs: 20 faults { non_finite_limit: 3 }"), .program = Program("nan")});
  ASSERT_TRUE(cluster.StartServers());
  Process& worker = cluster.StartWorker({});
  EXPECT_TRUE(cluster.AwaitOutput(cluster.server(0), "NaN"));
  EXPECT_TRUE(cluster.AwaitExit(worker, 1));
}

}  // namespace
}  // namespace catchment
