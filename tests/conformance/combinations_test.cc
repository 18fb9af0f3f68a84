// All choices on the four axes together: what is accepted trains, with several workers and servers; what is
// not is refused with a reason that names a field. docs/algorithms/README.md has the table.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <vector>

#include "common/job/validate.h"
#include "tests/conformance/in_process_parameters.h"
#include "tests/conformance/jobs.h"
#include "tests/conformance/layers.h"
#include "worker/algorithms/algorithm.h"

namespace catchment {
namespace {

constexpr int kWorkers = 4;
constexpr int64_t kValues = 64;

const std::vector<std::string> kConsistencies = {"consistency { synchronous {} }",
                                                 "consistency { synchronous { backup_workers: 1 } }",
                                                 "consistency { grouped { groups: 2 } }",
                                                 "consistency { grouped { groups: 2 backup_workers: 1 } }",
                                                 "consistency { asynchronous {} }",
                                                 "consistency { n_softsync { n: 1 } }",
                                                 "consistency { n_softsync { n: 2 } }",
                                                 "consistency { bounded_staleness { bound: 0 } }",
                                                 "consistency { bounded_staleness { bound: 2 } }",
                                                 "consistency { asynchronous { emulated_delay: 3 } }",
                                                 "consistency { asynchronous { staleness_limit: 3 } }"};
// Only with pseudo_gradient.
const std::vector<std::string> kQuorums = {"consistency { quorum {} }",
                                           "consistency { quorum { minimum: 3 } }"};
const std::vector<std::string> kContributions = {
    "gradient {}",
    "gradient { push_period: 2 }",
    "gradient { push_period: 2 mean: true }",
    "elastic { moving_rate: 0.2 }",
    "pseudo_gradient { local_steps: 2 local_optimizer { kind: SGD learning_rate: 0.01 } }",
    "energy_matching { learning_rate: 0.01 }",
    "look_ahead {}"};
const std::vector<std::string> kCompensations = {"none {}",
                                                 "inverse {}",
                                                 "power {}",
                                                 "exponential {}",
                                                 "delay_compensated {}",
                                                 "delay_compensated { adaptive: true }",
                                                 "gap_aware {}",
                                                 "open_loop_momentum {}",
                                                 "closed_loop_momentum {}",
                                                 "delayed_nesterov {}",
                                                 "delay_adaptive { threshold: 1 }",
                                                 "inverse {} of: GRADIENT",
                                                 "gap_aware {} delay_adaptive { threshold: 1 } of: GRADIENT",
                                                 "step_bound: 0.5"};
const std::vector<std::string> kOptimizers = {"kind: SGD learning_rate: 0.01 momentum: 0",
                                              "kind: SGD learning_rate: 1 momentum: 0",
                                              "kind: SGD learning_rate: 0.01 momentum: 0.5",
                                              "kind: SGD learning_rate: 0.01 momentum: 0.5 nesterov: true",
                                              "kind: ADAGRAD",
                                              "kind: RMSPROP",
                                              "kind: RMSPROP momentum: 0.5 centered: true",
                                              "kind: ADADELTA",
                                              "kind: ADAM",
                                              "kind: ADAMW",
                                              "kind: LARS",
                                              "kind: LARC",
                                              "kind: LAMB"};

v1::Job Parse(const std::string& consistency, const std::string& contribution,
              const std::string& compensation, const std::string& optimizer) {
  const std::string text = "algorithm { " + consistency + " contribution { " + contribution +
                           " } compensation { " + compensation + " } } optimizer { " + optimizer + " }";
  v1::Job job = JobWithModel(), additions;
  CHECK(google::protobuf::TextFormat::ParseFromString(text, &additions)) << text;
  job.MergeFrom(additions);
  job.set_workers(kWorkers);
  return job;
}

// A few steps of workers that pull the weights to 0, each from its own layer on.
void Train(const v1::Job& job) {
  const std::vector<float> initial(kValues, 1.0f);
  VirtualCluster cluster(job, initial, kWorkers, {2, 16, {35, 8, 1, 20}});
  cluster.Run([&](Parameters* parameters) {
    const auto algorithm = MakeAlgorithm(job, kValues, parameters);
    ASSERT_TRUE(algorithm->Start(0).ok());
    const auto gradient = InLayers([](absl::Span<const float> w, absl::Span<float> g) {
      for (size_t i = 0; i < w.size(); ++i) g[i] = 0.003f * w[i];
    });
    for (int step = 0; step < 8; ++step) ASSERT_TRUE(algorithm->Run({.samples = 2}, gradient).ok());
    ASSERT_TRUE(algorithm->Finish().ok());
    EXPECT_EQ(algorithm->counts().non_finite, 0u);
  });
  for (const float w : cluster.Weights()) {
    ASSERT_TRUE(std::isfinite(w));
    EXPECT_LT(w, 1);
    EXPECT_GT(w, -1);
  }
}

TEST(Combinations, TrainOrAreRefusedByName) {
  int accepted = 0, refused = 0;
  std::vector<std::string> consistencies = kConsistencies;
  consistencies.insert(consistencies.end(), kQuorums.begin(), kQuorums.end());
  for (const std::string& consistency : consistencies) {
    for (const std::string& contribution : kContributions) {
      for (const std::string& compensation : kCompensations) {
        for (const std::string& optimizer : kOptimizers) {
          const v1::Job job = Parse(consistency, contribution, compensation, optimizer);
          SCOPED_TRACE(job.ShortDebugString());
          const absl::StatusOr<v1::Job> filled = FillDefaultsAndValidate(job);
          if (filled.ok()) {
            ++accepted;
            Train(*filled);
          } else {
            ++refused;
            EXPECT_THAT(
                std::string(filled.status().message()),
                testing::ContainsRegex("^(algorithm\\.|optimizer\\.|compression\\.)[a-z_.]+: .{20,}"));
          }
          if (HasFailure()) return;
        }
      }
    }
  }
  RecordProperty("accepted", accepted);
  RecordProperty("refused", refused);
  EXPECT_GT(accepted, 1000);
  EXPECT_GT(refused, 1000);
}

// The most common combinations.
TEST(Combinations, TheUsualOnesAreAccepted) {
  const auto accepted = [](const std::string& consistency, const std::string& contribution,
                           const std::string& compensation, const std::string& optimizer) {
    return FillDefaultsAndValidate(Parse(consistency, contribution, compensation, optimizer)).status();
  };
  for (const std::string& optimizer : kOptimizers) {
    for (const std::string& consistency : kConsistencies) {
      EXPECT_TRUE(accepted(consistency, "gradient {}", "none {}", optimizer).ok())
          << consistency << optimizer;
    }
    for (const std::string compensation :
         {"inverse {}", "power {}", "exponential {}", "delay_compensated {}"}) {
      EXPECT_TRUE(accepted("consistency { asynchronous {} }", "gradient {}", compensation, optimizer).ok())
          << compensation << optimizer;
      EXPECT_TRUE(
          accepted("consistency { grouped { groups: 2 } }", "gradient {}", compensation, optimizer).ok())
          << compensation << optimizer;
    }
  }
  for (const std::string& consistency :
       {kConsistencies[0], kConsistencies[2], kConsistencies[4], kConsistencies[8]}) {
    EXPECT_TRUE(accepted(consistency, "elastic { moving_rate: 0.2 }", "none {}", kOptimizers[0]).ok())
        << consistency;
  }
}

}  // namespace
}  // namespace catchment
