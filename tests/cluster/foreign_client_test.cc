// Workers in plain Python (tests/python/foreign), written from docs/wire_protocol.md, beside the project's
// own on real
// daemons: they train the same weights, and are refused where they do not fit.
#include <map>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "gmock/gmock.h"
#include "tests/cluster/test_cluster.h"

namespace catchment {
namespace {

using testing::AllOf;
using testing::HasSubstr;

constexpr int kFeatures = 6, kClasses = 3;
constexpr int kRows = 230;  // the last minibatch of an epoch is not a whole one

std::string CsvFile() { return TestDirectory() + "/rows.csv"; }

// With two servers, and several blocks on each. `model` goes into the model, after its layers.
std::string Job(const std::string& algorithm, const std::string& more, const std::string& model = "") {
  return absl::StrCat(
      "name: 'foreign' model { layers { dense { units: 150 } } layers { relu {} } layers { dense { units: ",
      kClasses, " } } ", model, " } data { table { train: '", CsvFile(), "' shape: ", kFeatures,
      " classes: ", kClasses,
      " } } batch_size: 16 workers: 2 device: CPU block_kib: 1 deterministic: true algorithm { ", algorithm,
      " } ", more);
}

Finished RunPython(const TestCluster& cluster, const std::string& fault = "") {
  std::vector<std::string> command = {"/usr/bin/python3", Runfile("tests/python/foreign/worker.py"),
                                      cluster.master()};
  if (!fault.empty()) command.push_back(fault);
  return RunToEnd(command);
}

using Tensors = std::map<std::string, std::vector<float>>;

class ForeignClientTest : public testing::Test {
 protected:
  void SetUp() override {
    TestDirectory();
    WriteTable(CsvFile(), kRows, kFeatures, kClasses);
  }

  // Trains with two of the project's workers, or with one and the client.
  Tensors Train(const std::string& name, const std::string& job, bool python, const std::string& fault = "") {
    TestCluster cluster({.job = job, .servers = 2, .directory = TestDirectory() + "/" + name});
    EXPECT_TRUE(cluster.StartServers());
    cluster.StartWorkers(python ? 1 : 2);
    if (python) {
      const Finished client = RunPython(cluster, fault);
      EXPECT_TRUE(client.end.in_order()) << client.output << cluster.LastWords();
    }
    EXPECT_TRUE(cluster.AwaitOrderlyEnd());
    summary_ = cluster.Summary();
    return cluster.Tensors();
  }

  // Trains with the client alone, without which the job does not end. Returns what it printed.
  std::string TrainAlone(const std::string& preset, const std::string& fault) {
    const std::string job = Job(absl::StrCat("preset: '", preset, "'"), "epochs: 3");
    TestCluster cluster({.job = absl::StrReplaceAll(job, {{"workers: 2", "workers: 1"}}), .servers = 2});
    EXPECT_TRUE(cluster.StartServers());
    const Finished client = RunPython(cluster, fault);
    EXPECT_TRUE(client.end.in_order()) << client.output << cluster.LastWords();
    EXPECT_TRUE(cluster.AwaitOrderlyEnd());
    EXPECT_EQ(cluster.Summary()["samples"], 3 * kRows);
    return client.output;
  }

  nlohmann::json summary_;  // of the last Train
};

struct Case {
  std::string name, algorithm, more;
  double tolerance = 1e-5;
  std::string fault = "";
};

class SameWeightsTest : public ForeignClientTest, public testing::WithParamInterface<Case> {};

TEST_P(SameWeightsTest, AsOfTwoWorkersOfTheProject) {
  const Case& c = GetParam();
  const std::string job = Job(c.algorithm, absl::StrCat("epochs: 3 ", c.more));
  const Tensors own = Train("own", job, /*python=*/false);
  const nlohmann::json counted = summary_;
  const double difference = LargestDifference(own, Train("python", job, /*python=*/true, c.fault));
  EXPECT_LE(difference, c.tolerance);
  std::cout << "largest difference of a weight: " << difference << std::endl;
  for (const char* what : {"phase", "samples", "updates", "pushes_applied", "pushes_non_finite"}) {
    EXPECT_EQ(summary_[what], counted[what]) << what;
  }
  const Tensors begun =
      Train("begun", Job(c.algorithm, absl::StrCat("updates: 1 ", c.more)), /*python=*/false);
  EXPECT_GT(LargestDifference(own, begun), 100 * c.tolerance) << "training has hardly changed the weights";
}

// A value that is rounded to 8 or 11 bits, or is to be among the largest, may come to lie on the other side
// for a difference of one bit in 24.
INSTANTIATE_TEST_SUITE_P(
    All, SameWeightsTest,
    testing::Values(
        Case{"Gradient", "preset: 'sync'"},
        Case{"AccruedGradient",
             "preset: 'sync' contribution { gradient { push_period: 3 mean: true "
             "local_learning_rate: 0.01 } }"},
        Case{"Elastic", "preset: 'easgd_sync'"},
        Case{"PseudoGradient",
             "preset: 'local_sgd' contribution { pseudo_gradient { local_steps: 3 local_optimizer { "
             "learning_rate: 0.02 momentum: 0.5 schedule { decay: CONSTANT } } } }"},
        Case{"ElasticWithMomentum",
             "preset: 'easgd_sync' contribution { elastic { communication_period: 3 } }",
             "optimizer { learning_rate: 0.05 momentum: 0.9 schedule { decay: COSINE warmup: 0.2 } }"},
        Case{"Bfloat16", "preset: 'sync'", "compression { push: BFLOAT16 pull: BFLOAT16 }", 3e-4},
        Case{"Float16", "preset: 'sync'", "compression { push: FLOAT16 pull: FLOAT16 }", 3e-4},
        Case{"TopK", "preset: 'sync'", "compression { push: TOP_K top_k_fraction: 0.2 residual_decay: 0.95 }",
             3e-4},
        Case{"Int8", "preset: 'sync'", "compression { push: INT8 }", 3e-4},
        Case{"E2m1", "preset: 'sync'", "compression { push: E2M1 residual_decay: 0.95 }", 1e-3},
        Case{"E3m0", "preset: 'sync'", "compression { push: E3M0 }", 1e-3},
        Case{"BrokenConnections", "preset: 'sync'", "", 1e-5, "cut"}),
    [](const auto& info) { return info.param.name; });

// An exchange that is sent again is answered with the difference to the center as it has become.
TEST_F(ForeignClientTest, CountsEveryExchangeOnceOverBrokenConnections) {
  const std::string job = Job("preset: 'easgd_sync'", "epochs: 3");
  Train("own", job, /*python=*/false);
  const nlohmann::json counted = summary_;
  Train("python", job, /*python=*/true, "cut");
  for (const char* what : {"phase", "samples", "updates", "pushes_applied"}) {
    EXPECT_EQ(summary_[what], counted[what]) << what;
  }
}

TEST_F(ForeignClientTest, RegistersAgainWhenItsStreamWasReplaced) {
  EXPECT_THAT(TrainAlone("sync", "replace"),
              AllOf(HasSubstr("registering again: worker "), HasSubstr("has opened a newer connection")));
}

TEST_F(ForeignClientTest, RegistersAgainWhenAServerDoesNotKnowIt) {
  EXPECT_THAT(TrainAlone("sync", "member"),
              HasSubstr("is not, or no longer, a member of the job; register again"));
}

// The servers' state decides how much counts as trained.
TEST_F(ForeignClientTest, EndsTheJobWithoutHavingReportedProgress) { TrainAlone("downpour", "silent"); }

// The test ends the job, which trains on without the client.
TEST_F(ForeignClientTest, MayIgnoreCalls) {
  const std::string job =
      Job("consistency { quorum { minimum: 1 } } contribution { pseudo_gradient { local_steps: 5 "
          "local_optimizer { kind: SGD learning_rate: 0.001 momentum: 0 schedule { decay: CONSTANT } } } }",
          "epochs: 1000000 optimizer { learning_rate: 0.5 momentum: 0 nesterov: false }");
  TestCluster cluster({.job = absl::StrReplaceAll(job, {{"deterministic: true", ""}}), .servers = 2});
  ASSERT_TRUE(cluster.StartServers());
  cluster.StartWorkers(1);
  const Finished client = RunPython(cluster, "calls");
  EXPECT_TRUE(client.end.in_order()) << client.output << cluster.LastWords();
  EXPECT_THAT(client.output, HasSubstr("ignored calls, and sent contributions after them"));
  cluster.KillAll();
}

// The job is done by the project's own worker, which has waited for it.
TEST_F(ForeignClientTest, GivesUpWhereItDoesNotFitTheJob) {
  TestCluster cluster({.job = Job("preset: 'sync'", "epochs: 3"), .servers = 2});
  ASSERT_TRUE(cluster.StartServers());
  const Finished model = RunPython(cluster, "model");
  EXPECT_EQ(model.end.exit_code, 1);
  EXPECT_THAT(model.output, AllOf(HasSubstr("Register: FAILED_PRECONDITION: "), HasSubstr("dense1.weight")));
  cluster.StartWorkers(1);
  const Finished hello = RunPython(cluster, "hello");
  EXPECT_EQ(hello.end.exit_code, 1);
  EXPECT_THAT(hello.output,
              HasSubstr("ended the stream, FAILED_PRECONDITION: the worker's model has different tensors"));
  EXPECT_TRUE(cluster.AwaitOrderlyEnd());
  EXPECT_EQ(cluster.Summary()["samples"], 3 * kRows);
}

TEST_F(ForeignClientTest, RefusesWhatItDoesNotDo) {
  const std::string downpour = "preset: 'downpour'";
  const std::pair<std::string, std::string> jobs[] = {
      {Job(downpour, "optimizer { clip_norm: 1 }"),
       "this client does not clip gradients (optimizer.clip_norm)"},
      {Job("preset: 'dana'", ""),
       "this client does not know what to do with algorithm.contribution.look_ahead"},
      {Job(downpour, "", "layers { tanh {} }"),
       "this client does not know what to do with model.layers.tanh"},
      {Job(downpour, "", "loss { label_smoothing: 0.1 }"),
       "this client cannot do model.loss.label_smoothing"},
      {Job("preset: 'easgd'", "checkpoint { worker_state: true }"),
       "this client cannot do checkpoint.worker_state: True"},
  };
  int number = 0;
  for (const auto& [job, reason] : jobs) {
    TestCluster cluster({.job = job, .directory = absl::StrCat(TestDirectory(), "/", ++number)});
    ASSERT_TRUE(cluster.StartServers());
    const Finished client = RunPython(cluster);
    EXPECT_EQ(client.end.exit_code, 1);
    EXPECT_THAT(client.output, HasSubstr(reason));
    cluster.KillAll();
  }
}

}  // namespace
}  // namespace catchment
