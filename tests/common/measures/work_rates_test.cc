#include "common/measures/work_rates.h"

#include <limits>

#include "gtest/gtest.h"
#include "tests/cli/live/healthy_status.h"

namespace catchment {
namespace {

TEST(WorkRatesTest, OneReadingAloneIsSinceTheWorkersRegistration) {
  const v1::JobStatus status = HealthyStatus();
  const Work work = WorkOf(status.workers(1), nullptr);
  EXPECT_DOUBLE_EQ(*work.samples_per_second(), 38400.0 / 80);
  EXPECT_DOUBLE_EQ(*work.compute_per_step(), 0.05);
  EXPECT_DOUBLE_EQ(*work.share(work.compute), 0.75);
  EXPECT_DOUBLE_EQ(*work.share(work.pull), 0.15);
  EXPECT_DOUBLE_EQ(*SamplesPerSecond(status, nullptr), 1920.4);
}

// Trains a worker for 2 s of its own time, 1 s of it computing.
void GoOn(v1::JobStatus* status, int worker) {
  v1::Progress* progress = status->mutable_workers(worker)->mutable_progress();
  progress->set_steps(progress->steps() + 10);
  progress->set_samples(progress->samples() + 320);
  progress->set_compute_seconds(progress->compute_seconds() + 1);
  progress->set_pull_seconds(progress->pull_seconds() + 1);
}

TEST(WorkRatesTest, TwoReportsGiveTheRatesBetweenThem) {
  const v1::JobStatus before = HealthyStatus();
  v1::JobStatus now = before;
  GoOn(&now, 1);
  now.set_wall_seconds(before.wall_seconds() + 2.5);
  now.set_samples(before.samples() + 320);
  const Work work = WorkOf(now.workers(1), &before);
  EXPECT_DOUBLE_EQ(*work.samples_per_second(), 160);
  EXPECT_DOUBLE_EQ(*work.compute_per_step(), 0.1);
  EXPECT_DOUBLE_EQ(*work.share(work.pull), 0.5);
  EXPECT_DOUBLE_EQ(*SamplesPerSecond(now, &before), 128);
  // The others have not reported any work.
  EXPECT_DOUBLE_EQ(*WorkOf(now, &before).samples_per_second(), 160);
  EXPECT_FALSE(WorkOf(now.workers(0), &before).samples_per_second().has_value());
}

TEST(WorkRatesTest, AnotherIncarnationBeginsAnew) {
  const v1::JobStatus before = HealthyStatus();
  v1::JobStatus now = before;
  now.mutable_workers(1)->set_incarnation(9);
  now.mutable_workers(1)->mutable_progress()->Clear();
  GoOn(&now, 1);
  EXPECT_DOUBLE_EQ(WorkOf(now.workers(1), &before).samples, 320);
}

TEST(WorkRatesTest, NothingIsKnownOfAJobThatDoesNotTrain) {
  v1::JobStatus status = HealthyStatus();
  status.set_phase(v1::JobStatus::FINISHING);
  EXPECT_FALSE(SamplesPerSecond(status, nullptr).has_value());
  EXPECT_FALSE(WorkOf(v1::WorkerStatus(), nullptr).compute_per_step().has_value());
  EXPECT_FALSE(WorkOf(v1::WorkerStatus(), nullptr).share(0).has_value());
}

TEST(WorkRatesTest, ATimeThatIsNotANumberCountsAsZero) {
  v1::JobStatus status = HealthyStatus();
  status.mutable_workers(0)->mutable_progress()->set_pull_seconds(std::numeric_limits<double>::quiet_NaN());
  EXPECT_DOUBLE_EQ(WorkOf(status.workers(0), nullptr).seconds(), 68);
}

TEST(WorkRatesTest, AMasterThatWasStartedAgainGivesItsOwnRate) {
  const v1::JobStatus before = HealthyStatus();
  v1::JobStatus now = before;
  now.set_wall_seconds(60);
  now.set_samples(100000);
  EXPECT_DOUBLE_EQ(*SamplesPerSecond(now, &before), 1920.4);
}

}  // namespace
}  // namespace catchment
