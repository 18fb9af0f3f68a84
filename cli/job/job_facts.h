// Figures that follow from a job: samples, steps, updates, bytes. Training does not use them.
#ifndef CATCHMENT_CLI_JOB_JOB_FACTS_H_
#define CATCHMENT_CLI_JOB_JOB_FACTS_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "common/job/algorithm_facts.h"
#include "common/job/model_shapes.h"
#include "common/job/parameter_layout.h"
#include "proto/job.pb.h"

namespace catchment {

// Bytes of payload after compression.
struct WireBytes {
  int64_t sent = 0;        // by a worker to all servers, in one push
  int64_t received = 0;    // in one pull
  int64_t send_every = 1;  // steps
  int64_t receive_every = 1;
  double per_step() const { return 1.0 * sent / send_every + 1.0 * received / receive_every; }
};

struct ServerBytes {
  int64_t parameters = 0;  // count
  int64_t blocks = 0;      // count
  int64_t weights = 0;
  int64_t optimizer_state = 0;
  int64_t compensation = 0;  // at most: the weights sent to each worker, and averages
  // Contributions that wait to be applied, and answers that wait to be sent, at most.
  int64_t waiting = 0;
  // A copy from which checkpoints are written, each as large.
  int64_t snapshot = 0;
  int64_t standby = 0;  // the copy of another server's shard
  int64_t total() const { return weights + optimizer_state + compensation + waiting + snapshot + standby; }
};

struct WorkerBytes {
  int64_t model = 0;      // weights, gradients, activations, masks
  int64_t algorithm = 0;  // the state of its contribution, and the residual of error feedback
  int64_t total() const { return model + algorithm; }
};

class JobFacts {
 public:
  // `job` is complete and valid (common/job/validate.h). InvalidArgument if the parameters cannot be split
  // between that number of servers.
  static absl::StatusOr<JobFacts> Create(const v1::Job& job, int servers);

  const v1::Job& job() const { return job_; }
  const std::vector<LayerShape>& layers() const { return layers_; }
  const ParameterLayout& layout() const { return layout_; }
  int servers() const { return layout_.num_shards(); }
  int64_t workers() const { return job_.workers(); }

  bool synchronous() const { return IsSynchronous(job_.algorithm().consistency()); }
  bool elastic() const { return job_.algorithm().contribution().has_elastic(); }
  // Returns the number of steps between two contributions of a worker.
  int64_t period() const;
  // Every contributions() contributions make contributions_make() updates of the center.
  int64_t contributions() const;
  int64_t contributions_make() const;
  // Returns the largest number of contributions that wait on the servers, for others or for a delay.
  int64_t contributions_waiting() const;
  // Return how many vectors as long as the weights the servers keep at most for contributions that wait,
  // fewer if they are added up, and for the answers to those of a group: one for all, or with elastic
  // averaging one for each and the weights before the update.
  int64_t contributions_held() const;
  int64_t answers_held() const;

  // Return the numbers of samples of the data; 0 for data.table, whose rows are known after a worker has read
  // them.
  int64_t train_samples() const;
  int64_t samples_per_epoch() const;  // fewer than train_samples with last_minibatch DROP
  int64_t test_samples() const;
  bool knows_samples() const { return train_samples() > 0; }
  // Returns true if the budget is known; one in epochs follows from the number of samples.
  bool knows_budget() const { return knows_samples() || job_.budget_case() != v1::Job::kEpochs; }
  // These four require knows_budget().
  int64_t total_samples() const;  // the budget, over all workers
  int64_t total_steps() const;    // over all workers
  int64_t steps_per_worker() const;
  int64_t updates() const;  // of the center
  double epochs() const;    // requires knows_samples() as well

  WireBytes wire() const;
  ServerBytes server(int index) const;
  WorkerBytes worker() const;
  // Return the bytes that all servers and workers need together, and the checkpoints that are kept and the
  // final weights on disk.
  int64_t memory() const;
  int64_t disk() const;

 private:
  JobFacts(v1::Job job, std::vector<LayerShape> layers, ParameterLayout layout)
      : job_(std::move(job)), layers_(std::move(layers)), layout_(std::move(layout)) {}

  v1::Job job_;
  std::vector<LayerShape> layers_;
  ParameterLayout layout_;
};

// Returns a sentence for each of memory and disk of which the job needs more than this machine has free if
// all of its processes run here. `directory`: of the run; empty: not known yet.
std::vector<std::string> DescribeShortages(const JobFacts& facts, const std::string& directory);

}  // namespace catchment

#endif  // CATCHMENT_CLI_JOB_JOB_FACTS_H_
