// ProgressMeter and WorkTotals.
#include <gtest/gtest.h>

#include <limits>

#include "common/job/program_metrics.h"
#include "server/control/progress_meter.h"
#include "server/control/work_totals.h"

namespace catchment {
namespace {

v1::Progress ProgressOf(uint64_t samples, double loss_sum, uint64_t correct) {
  v1::Progress progress;
  progress.set_samples(samples);
  progress.set_loss_sum(loss_sum);
  progress.set_correct(correct);
  return progress;
}

TEST(ProgressMeterTest, RatesCoverTheLastSeconds) {
  ProgressMeter meter;
  meter.Restart(0);
  v1::Progress before;
  for (int second = 1; second <= 30; ++second) {
    // 100 samples a second at loss 2, then 10 a second at loss 1.
    const bool fast = second <= 15;
    v1::Progress after = before;
    after.set_samples(before.samples() + (fast ? 100 : 10));
    after.set_loss_sum(before.loss_sum() + (fast ? 200 : 10));
    after.set_correct(before.correct() + (fast ? 50 : 9));
    meter.Add(before, after, second);
    before = after;
  }
  EXPECT_DOUBLE_EQ(meter.samples_per_second(30), 10);
  EXPECT_DOUBLE_EQ(meter.mean_loss(), 1);
  EXPECT_DOUBLE_EQ(meter.accuracy(), 0.9);
}

TEST(ProgressMeterTest, AddsUpWorkersThatComeAndGo) {
  ProgressMeter meter;
  meter.Restart(0);
  meter.Add({}, ProgressOf(50, 100, 5), 1);
  meter.Add({}, ProgressOf(150, 150, 15), 2);  // another worker; its counts begin at 0
  EXPECT_DOUBLE_EQ(meter.samples_per_second(4), 50);
  EXPECT_DOUBLE_EQ(meter.mean_loss(), 1.25);
  EXPECT_DOUBLE_EQ(meter.accuracy(), 0.1);
}

TEST(ProgressMeterTest, RateFallsToZeroInSilenceAndTheLossStays) {
  ProgressMeter meter;
  meter.Restart(0);
  meter.Add({}, ProgressOf(50, 100, 5), 1);
  EXPECT_DOUBLE_EQ(meter.samples_per_second(5), 10);
  EXPECT_DOUBLE_EQ(meter.samples_per_second(20), 0);
  EXPECT_DOUBLE_EQ(meter.mean_loss(), 2);
}

TEST(ProgressMeterTest, ALossThatIsNotFiniteDoesNotSpoilTheOthers) {
  ProgressMeter meter;
  meter.Restart(0);
  meter.Add({}, ProgressOf(50, std::numeric_limits<double>::quiet_NaN(), 5), 1);
  meter.Add({}, ProgressOf(10, 30, 5), 1.5);
  EXPECT_DOUBLE_EQ(meter.mean_loss(), 3);
}

TEST(ProgressMeterTest, KeepsFewTotalsForManyReports) {
  ProgressMeter meter;
  meter.Restart(0);
  v1::Progress before;
  for (int i = 1; i <= 100000; ++i) {
    v1::Progress after;
    after.set_samples(i);
    meter.Add(before, after, i * 1e-3);
    before = after;
  }
  EXPECT_NEAR(meter.samples_per_second(100), 1000, 20);
}

TEST(WorkTotalsTest, AddsUpTheProgressOfWorkers) {
  v1::Progress before, after;
  before.set_compute_seconds(10);
  after.set_compute_seconds(13);
  after.set_push_seconds(0.5);
  after.set_pull_seconds(0.25);
  after.set_data_seconds(2);
  before.set_bytes_read(100);
  after.set_bytes_read(1100);
  after.set_read_seconds(1.5);
  WorkTotals work;
  work.Add(v1::Progress(), before);
  work.Add(before, after);
  work.Add(v1::Progress(), after);  // another worker
  v1::JobStatus status;
  work.Fill(&status);
  EXPECT_EQ(status.compute_seconds(), 26);
  EXPECT_EQ(status.push_seconds(), 1);
  EXPECT_EQ(status.pull_seconds(), 0.5);
  EXPECT_EQ(status.data_seconds(), 4);
  EXPECT_EQ(status.bytes_read(), 2200u);
  EXPECT_EQ(status.read_seconds(), 3);
  WorkTotals restored;
  restored.Restore(work.Save());
  v1::JobStatus same;
  restored.Fill(&same);
  EXPECT_EQ(same.bytes_read(), 2200u);
  EXPECT_EQ(same.read_seconds(), 3);
  EXPECT_EQ(status.round_trip_p50_us(), 0) << "there was none";
}

TEST(WorkTotalsTest, AddsUpTheMetricsOfPrograms) {
  const auto of = [](const std::string& name, double sum, uint64_t count) {
    v1::Progress progress;
    AddProgramMetric(name, sum, count, progress.mutable_program_metrics());
    return progress;
  };
  const v1::Progress before = of("norm", 6, 2);
  v1::Progress after = before;
  AddProgramMetric("norm", -1, 1, after.mutable_program_metrics());
  AddProgramMetric("rate", 0.5, 1, after.mutable_program_metrics());
  WorkTotals work, restored;
  work.Add(v1::Progress(), before);
  work.Add(before, after);
  work.Add(after, after);
  work.Add(v1::Progress(), of("norm", 10, 4));  // another worker
  work.Add(v1::Progress(), of("norm", std::numeric_limits<double>::infinity(), 1));
  restored.Restore(work.Save());
  for (const WorkTotals* totals : {&work, &restored}) {
    v1::JobStatus status;
    totals->Fill(&status);
    ASSERT_EQ(status.program_metrics_size(), 2);
    EXPECT_EQ(status.program_metrics(0).name(), "norm");
    EXPECT_EQ(status.program_metrics(0).sum(), 15);
    EXPECT_EQ(status.program_metrics(0).count(), 7u);
    EXPECT_EQ(status.program_metrics(1).name(), "rate");
  }
  for (int i = 0; i < 100; ++i) work.Add(v1::Progress(), of(std::to_string(i), 1, 1));
  v1::JobStatus status;
  work.Fill(&status);
  EXPECT_EQ(status.program_metrics_size(), 64);
}

TEST(WorkTotalsTest, CountsEveryRoundTripOnce) {
  const auto trips = [](uint64_t fast, uint64_t slow) {
    v1::Progress progress;
    for (uint64_t us : {100, 10000}) progress.add_round_trip_us(us);
    for (uint64_t count : {fast, slow}) progress.add_round_trip_counts(count);
    return progress;
  };
  WorkTotals work;
  work.Add(v1::Progress(), trips(90, 0));
  // If the first 90 were counted again, the slow ones would be fewer than one in ten.
  work.Add(trips(90, 0), trips(90, 12));
  v1::JobStatus status;
  work.Fill(&status);
  EXPECT_NEAR(status.round_trip_p50_us(), 100, 10);
  EXPECT_NEAR(status.round_trip_p99_us(), 10000, 1000);
  work.Add(trips(0, 12), trips(0, 112));
  work.Fill(&status);
  EXPECT_NEAR(status.round_trip_p50_us(), 10000, 1000);
}

TEST(WorkTotalsTest, WhatMakesNoSenseIsNotCounted) {
  v1::Progress odd;
  odd.set_compute_seconds(std::numeric_limits<double>::quiet_NaN());
  odd.set_push_seconds(-1);
  odd.add_round_trip_us(5);
  WorkTotals work;
  work.Add(v1::Progress(), odd);
  v1::JobStatus status;
  work.Fill(&status);
  EXPECT_EQ(status.compute_seconds(), 0);
  EXPECT_EQ(status.push_seconds(), 0);
  EXPECT_EQ(status.round_trip_p99_us(), 0);
}

}  // namespace
}  // namespace catchment
