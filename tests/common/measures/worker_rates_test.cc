#include <gtest/gtest.h>

#include "common/measures/measures.h"

namespace catchment {
namespace {

// Each time, the rates since the last time.
class WorkerRates {
 public:
  nlohmann::ordered_json Update(const v1::JobStatus& status) {
    const auto rates = RatesPerWorker(status, last_);
    last_ = status;
    return rates;
  }

 private:
  v1::JobStatus last_;
};

void SetWorker(v1::JobStatus* status, uint32_t index, uint64_t samples, double compute, double push,
               double pull, double data) {
  v1::WorkerStatus* worker = status->add_workers();
  worker->set_worker(index);
  v1::Progress* progress = worker->mutable_progress();
  progress->set_samples(samples);
  progress->set_compute_seconds(compute);
  progress->set_push_seconds(push);
  progress->set_pull_seconds(pull);
  progress->set_data_seconds(data);
}

TEST(WorkerRatesTest, AreOfWhatWasHeardSinceTheLastLook) {
  WorkerRates rates;
  v1::JobStatus status;
  SetWorker(&status, 3, 100, 1, 0.5, 0.25, 0.25);
  auto list = rates.Update(status);
  ASSERT_EQ(list.size(), 1u);
  EXPECT_EQ(list[0]["worker"], 3);
  EXPECT_EQ(list[0]["samples_per_second"], 50) << "since its registration";
  EXPECT_EQ(list[0]["compute_share"], 0.5);

  list = rates.Update(status);
  EXPECT_TRUE(list[0]["samples_per_second"].is_null()) << "nothing new";
  EXPECT_TRUE(list[0]["data_share"].is_null());

  status.clear_workers();
  SetWorker(&status, 3, 500, 2, 1.5, 1.25, 1.25);
  list = rates.Update(status);
  EXPECT_EQ(list[0]["samples_per_second"], 100);
  EXPECT_EQ(list[0]["compute_share"], 0.25);
  EXPECT_EQ(list[0]["push_share"], 0.25);
  EXPECT_EQ(list[0]["pull_share"], 0.25);
  EXPECT_EQ(list[0]["data_share"], 0.25);
}

TEST(WorkerRatesTest, AreOfWhatTheLoadersThreadsHaveRead) {
  WorkerRates rates;
  v1::JobStatus status;
  SetWorker(&status, 3, 100, 2, 1, 0.5, 0.5);
  status.mutable_workers(0)->mutable_progress()->set_bytes_read(1000);
  status.mutable_workers(0)->mutable_progress()->set_read_seconds(6);
  const auto list = rates.Update(status);
  EXPECT_EQ(list[0]["bytes_read_per_second"], 250);
  EXPECT_EQ(list[0]["read_threads"], 1.5) << "busy on average";
  EXPECT_TRUE(rates.Update(status)[0]["read_threads"].is_null()) << "nothing new";
}

TEST(WorkerRatesTest, AreOfWhatWasSentAndReceived) {
  WorkerRates rates;
  v1::JobStatus status;
  SetWorker(&status, 3, 100, 2, 1, 0.5, 0.5);
  v1::Progress* progress = status.mutable_workers(0)->mutable_progress();
  progress->set_steps(10);
  progress->set_bytes_pushed(3000);
  progress->set_bytes_pulled(1000);
  progress->add_round_trip_counts(2);
  progress->add_round_trip_counts(3);
  auto list = rates.Update(status);
  EXPECT_EQ(list[0]["bytes_per_second"], 1000);
  EXPECT_EQ(list[0]["bytes_per_step"], 400);
  EXPECT_EQ(list[0]["exchanges_per_step"], 0.5);

  progress->set_steps(12);
  progress->set_bytes_pulled(1500);
  progress->set_round_trip_counts(1, 7);
  list = rates.Update(status);
  EXPECT_EQ(list[0]["bytes_per_step"], 250) << "since the previous line";
  EXPECT_EQ(list[0]["exchanges_per_step"], 2);
  EXPECT_TRUE(list[0]["bytes_per_second"].is_null()) << "its time has not changed";
  EXPECT_TRUE(rates.Update(status)[0]["bytes_per_step"].is_null()) << "nothing new";
}

TEST(WorkerRatesTest, AWorkerThatBeginsAnewIsCountedFromItsBeginning) {
  WorkerRates rates;
  v1::JobStatus status;
  SetWorker(&status, 0, 1000, 10, 0, 0, 0);
  rates.Update(status);
  status.clear_workers();
  SetWorker(&status, 0, 60, 2, 0, 1, 0);
  status.mutable_workers(0)->set_incarnation(2);
  EXPECT_EQ(rates.Update(status)[0]["samples_per_second"], 20);
  status.clear_workers();
  EXPECT_TRUE(rates.Update(status).empty()) << "it has left";
}

}  // namespace
}  // namespace catchment
