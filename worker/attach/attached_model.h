// A model that the user's own program computes: the daemon's half of proto/attach.proto.
//
//   Train, on the worker's thread             the program
//     Begin                            ->       takes the step's samples from the plan
//     BeforeForward, copy, Here        ->       forward, layer by layer as the weights come
//     copy, AfterBackward             <-        Final: backward, the last layers first
//     the score                       <-        Done
//
// A program that keeps its weights gets and gives no vectors in its steps: Train has none then, and the
// exchange goes through LocalWeights, whose vectors are the memory shared with the program.
//
// Shapes: weights and gradient as in trainable.h, in the order of Options.tensors; each is copied once, in
// parts of 1 MiB, unless it is in memory() already. Threads: Plan may be called from one thread while another
// calls the rest. Errors: Train has none to return (trainable.h): if the program fails, it returns before the
// pass is complete, status() says why, and the gradient is of no use.
#ifndef CATCHMENT_WORKER_ATTACH_ATTACHED_MODEL_H_
#define CATCHMENT_WORKER_ATTACH_ATTACHED_MODEL_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/base/mutex.h"
#include "common/base/shared_memory.h"
#include "proto/attach.pb.h"
#include "proto/job.pb.h"
#include "worker/attach/child_program.h"
#include "worker/attach/plan_board.h"
#include "worker/attach/program_link.h"
#include "worker/data/batch_loader.h"
#include "worker/data/epoch_order.h"
#include "worker/local_weights.h"
#include "worker/model/trainable.h"

namespace catchment {

// The channels between a program and the daemon.
struct ProgramChannels {
  std::unique_ptr<ProgramLink> link;
  SharedMemory weights;
  SharedMemory gradient;
  PlanBoard plan;
  std::function<void()> on_hello = [] {};  // called when the program has said Hello, and it is the job's
  // Returns for how many seconds the worker has been asked to stop; nothing if it is not.
  std::function<std::optional<double>()> stopped_for = [] { return std::nullopt; };
};

class AttachedModel final : public Trainable, public LocalWeights {
 public:
  static constexpr uint32_t kVersion = 2;  // of the protocol; 1 is spoken, too

  struct Options {
    std::string job;  // its name
    std::vector<TensorSpec> tensors;
    uint64_t train_samples = 0;
    uint64_t test_samples = 0;
    uint32_t batch_size = 0;
    uint32_t largest_minibatch = 0;  // in samples
    uint64_t seed = 0;
    bool evaluates = false;
  };

  // `child` may be null: the program is not the model's to end.
  AttachedModel(Options options, ProgramChannels channels, std::unique_ptr<ChildProgram> child);

  // Waits for the program's Hello and compares it with the job. Call before Welcome; later calls change
  // nothing. InvalidArgument names what differs.
  absl::Status AwaitHello();
  // Has the program keep its weights if it can: call it before Welcome. fragments: the ranges of each.
  void KeepWeights(const std::vector<std::vector<Range>>& fragments, const v1::Contribution& contribution);
  // Returns the weights that the program keeps, or the vectors that it shares with the daemon. A program that
  // speaks version 1 uses them longer than an algorithm leaves them alone, and has copies.
  ModelMemory memory();
  const SharedMemory& shared_gradient() const { return channels_.gradient; }
  absl::Span<float> received() override { return channels_.weights.floats(); }
  absl::Span<float> sent() override { return channels_.gradient.floats(); }
  void Restart() override;
  void Use(int fragment) override;
  absl::Status Write(int fragment) override;

  // Lets the program begin: the worker is a member of the job. Later calls change nothing.
  absl::Status Welcome(uint32_t worker);

  // Tells the program the samples of a later Train. A minibatch without samples is left out.
  // ResourceExhausted if it is too far behind.
  absl::Status Plan(absl::Span<const uint32_t> samples);
  // Leaves out the steps that are planned and have not begun. No other thread may plan meanwhile.
  void SkipPlanned();

  // Describes the next step for the program. rate: the learning rate at this progress (Begin in
  // attach.proto).
  void DescribeStep(double progress, uint64_t epoch, double rate);
  // Has `read` write the job's final weights for the program. Returns its error; the program then has none.
  absl::Status SetResult(absl::FunctionRef<absl::Status(absl::Span<float> weights)> read);

  // Says that there are no more steps, and waits until the program has ended, at most kEndSeconds. Once the
  // worker is asked to stop, the limit is kStopSeconds from then on, but at least kFailureSeconds from the
  // last step on. Then the program is killed. `why`: ok, or the error that the program must also end with.
  // Errors, only if `why` is ok: Internal if the program fails after its last step, DeadlineExceeded if it is
  // killed.
  absl::Status Finish(const absl::Status& why);
  static constexpr double kEndSeconds = 60;
  // The limit if `why` is an error.
  static constexpr double kFailureSeconds = 5;
  // The limit for a step or a score that is under way when the worker is asked to stop. With kFailureSeconds
  // it is below 20 seconds: what starts workers, such as Slurm, kills them soon after that.
  static constexpr double kStopSeconds = 12;

  const absl::Status& status() const { return status_; }
  // Returns true if status() is an error only because the program has left the job in order.
  bool left() const { return left_; }

  const std::vector<TensorSpec>& tensors() const override { return options_.tensors; }
  std::string device() const override { return device_; }

  // Runs the next planned step in the program. Only the number of samples of `batch` is used.
  Score Train(absl::Span<const float> weights, const Minibatch& batch, absl::Span<float> gradient,
              PassObserver* observer) override;
  void EstimateStatistics(absl::Span<const float>, absl::FunctionRef<bool(Minibatch*)>) override {}
  // Does nothing: the program scores a whole test set (ScoreTestSet), not minibatches.
  Score Evaluate(absl::Span<const float>, const Minibatch&) override { return Score(); }

  // The program's metrics of the last step.
  const google::protobuf::RepeatedPtrField<v1::FromProgram::Metric>& metrics() const { return metrics_; }

  // Has the program score its test set. statistics() are then the program's.
  absl::StatusOr<Score> ScoreTestSet(absl::Span<const float> weights);
  std::vector<Statistic> statistics() const override;

  // Returns true if the program makes the local steps itself: it then reports the change of the weights
  // instead of a gradient.
  bool local_steps() const { return local_steps_; }

 private:
  // Waits at most `limit` seconds for the end of the program of a job that is over. Returns OK if its exit
  // code is 0.
  absl::Status AwaitEnd(double limit);
  void AddStatistic(const v1::FromProgram::Statistic& part);
  absl::Status CheckHello(const v1::FromProgram::Hello& hello) const;
  // The error of a program that has left.
  absl::Status NoteLeft(const v1::FromProgram::Left& left);
  absl::Status AwaitSent(int fragment);
  absl::Status RunPass(absl::Span<const float> weights, absl::Span<float> gradient, PassObserver* observer,
                       Score* score);
  absl::Status SendWeights(absl::Span<const float> weights, PassObserver* observer);
  absl::Status SetMetrics(const v1::FromProgram::Done& done);
  absl::Status AwaitGradient(uint64_t step, absl::Span<float> gradient, PassObserver* observer, Score* score);
  // Handles the program's message that the gradient is final from `begin`; from *end it was final before.
  absl::Status TakeGradient(uint64_t begin, uint64_t* end, absl::Span<float> gradient,
                            PassObserver* observer);

  const Options options_;
  ProgramChannels channels_;
  const std::unique_ptr<ChildProgram> child_;
  std::string device_ = "program";
  bool local_steps_ = false;
  uint32_t version_ = 0;              // of the protocol, that the program speaks
  bool keeps_weights_ = false;        // the program can
  std::vector<v1::ToProgram> parts_;  // of the weights that it keeps
  v1::Contribution contribution_;
  bool moved_ = false;  // it has begun a step since the last Restart
  bool greeted_ = false;
  bool welcomed_ = false;
  bool left_ = false;
  bool has_result_ = false;
  v1::ToProgram begin_;  // of the next step, without its number
  std::vector<v1::FromProgram::Statistic> statistics_;
  google::protobuf::RepeatedPtrField<v1::FromProgram::Metric> metrics_;
  absl::Status status_;

  Mutex mu_;
  uint64_t begun_ ABSL_GUARDED_BY(mu_) = 0;  // steps, or skipped
};

struct ProgramOptions {
  std::string command;  // for /bin/sh
  int threads = 1;      // for the program's computations
  int local_index = 0;  // among this machine's workers
};

// Starts the program, whose Hello is still to be awaited. Call on a thread that lasts (child_program.h).
// While the model waits for the program, it gives up with Cancelled once `stopped` returns true; of a step
// that is under way only after kStopSeconds.
absl::StatusOr<std::unique_ptr<AttachedModel>> StartAttachedModel(const ProgramOptions& program,
                                                                  AttachedModel::Options options,
                                                                  std::function<bool()> stopped);

// Returns a function that does what `next` does, and passes each minibatch that has samples to `model`.
// `order` is over the whole training set. Errors: those of `next` and of AttachedModel::Plan. A span outside
// the training set is left to the loader to refuse.
NextPlan AnnouncePlans(NextPlan next, EpochOrder order, AttachedModel* model);

}  // namespace catchment

#endif  // CATCHMENT_WORKER_ATTACH_ATTACHED_MODEL_H_
