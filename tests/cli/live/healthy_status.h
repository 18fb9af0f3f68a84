// The status of a healthy job: four workers of asynchronous SGD on two servers, half of whose budget is used.
#ifndef CATCHMENT_TESTS_CLI_LIVE_HEALTHY_STATUS_H_
#define CATCHMENT_TESTS_CLI_LIVE_HEALTHY_STATUS_H_

#include <google/protobuf/text_format.h>

#include <string>

#include "proto/master.pb.h"

namespace catchment {

inline v1::JobStatus HealthyStatus() {
  v1::JobStatus status;
  const std::string text = R"(
      job: "digits" phase: TRAINING wall_seconds: 80 epochs: 2.56 samples: 153600 total_samples: 300000
      updates: 4800 samples_per_second: 1920.4 seconds_left: 76.2 train_loss: 0.1831 train_accuracy: 0.9451 has_accuracy: true
      test_samples: 10000 test_loss: 0.0721 test_accuracy: 0.977 tested_at_samples: 120000 tested_at_seconds: 62.5
      staleness_mean: 2.98 staleness_p50: 3 staleness_p99: 5 staleness_max: 9
      pushes_applied: 4800 bytes_pushed: 22500000000 bytes_pulled: 22400000000
      round_trip_p50_us: 2261.5 round_trip_p99_us: 10763
      last_checkpoint: 4000 writes_checkpoints: true evaluators: 1
      events: "worker 3 (node3:4713) joined" events: "training with 4 workers" events: "checkpoint 4000 is saved"
      servers { address: "node0:7000" parameters: 2000000 } servers { address: "node1:7000" parameters: 2000000 }
      settings {
        workers: 4
        algorithm { preset: "downpour" consistency { asynchronous {} }
                    contribution { gradient { push_period: 1 fetch_period: 1 } } }
        data { drawn_digits { test_samples: 10000 } }
        checkpoint { every_updates: 1000 }
        faults { heartbeat_timeout_seconds: 10 non_finite_limit: 10 }
      })";
  if (!google::protobuf::TextFormat::ParseFromString(text, &status)) std::abort();
  for (int i = 0; i < 4; ++i) {
    v1::WorkerStatus* worker = status.add_workers();
    worker->set_worker(i);
    worker->set_incarnation(i + 1);
    worker->set_host("node" + std::to_string(i));
    worker->set_pid(4710 + i);
    worker->set_device("cpu: oneDNN 2.6.3, 2 threads");
    worker->set_seconds_since_heartbeat(0.3);
    worker->set_staleness_mean(2.98);
    worker->set_staleness_p50(3);
    worker->set_staleness_p99(5);
    worker->set_staleness_max(9);
    v1::Progress* progress = worker->mutable_progress();
    progress->set_steps(1200);
    progress->set_samples(38400);
    progress->set_compute_seconds(60);
    progress->set_push_seconds(4);
    progress->set_pull_seconds(12);
    progress->set_data_seconds(4);
  }
  for (uint32_t s = 0; s < 2; ++s) {
    v1::ShardReport* shard = status.add_shards();
    shard->set_shard(s);
    shard->set_version(4800);
    shard->set_bytes_pushed(11250000000);
    shard->set_bytes_pulled(11200000000);
    for (uint32_t i = 0; i < 4; ++i) {
      v1::WorkerStatistics* worker = shard->add_workers();
      worker->set_worker(i);
      worker->set_applied(1200);
    }
  }
  return status;
}

}  // namespace catchment

#endif  // CATCHMENT_TESTS_CLI_LIVE_HEALTHY_STATUS_H_
