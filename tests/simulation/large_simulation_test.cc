// As many workers as a job may have.
#include <google/protobuf/text_format.h>
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <string>

#include "common/job/algorithm_facts.h"
#include "common/job/validate.h"
#include "simulation/simulation.h"

namespace catchment {
namespace {

TEST(LargeSimulationTest, TenThousandWorkersMakeAHundredThousandPushes) {
  constexpr uint64_t kPushes = 100'000;
  v1::Job job;
  ASSERT_TRUE(google::protobuf::TextFormat::ParseFromString(
      "name: 'large' model { synthetic { parameters: 235146 } } data { synthetic { samples: 10000000 } } "
      "algorithm { preset: 'staleness_aware' } batch_size: 64",
      &job));
  job.set_workers(kMaxWorkers);
  job.set_samples(64 * kPushes);
  const absl::StatusOr<v1::Job> complete = FillDefaultsAndValidate(job);
  ASSERT_TRUE(complete.ok()) << complete.status();
  SimulationOptions options;
  options.servers = 8;
  options.step = Distribution{.kind = Distribution::kLogNormal, .mean = 0.12, .shape = 0.3};
  options.network = {.bytes_per_second = 12.5e9, .latency = 50e-6};
  options.quadratic = QuadraticModel{.condition = 100, .noise = 0.1};
  const absl::StatusOr<v1::JobStatus> status = Simulate(*complete, options);
  ASSERT_TRUE(status.ok()) << status.status();
  EXPECT_EQ(status->samples(), 64 * kPushes);
  EXPECT_EQ(status->pushes_applied(), kPushes);
  rusage usage = {};
  ASSERT_EQ(getrusage(RUSAGE_SELF, &usage), 0);
  const double peak = 1024.0 * static_cast<double>(usage.ru_maxrss);
  RecordProperty("peak_bytes", std::to_string(peak));
  EXPECT_LT(peak, 4e9);
  EXPECT_GT(*WorkersThatFit(*complete, options, 4e9), kMaxWorkers);
}

}  // namespace
}  // namespace catchment
