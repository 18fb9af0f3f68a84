// Receives the weights of the best evaluation from an evaluator (KeepBest in proto/master.proto) and writes
// them on a separate thread, because writing to disk is slow and the receiving threads serve training.
//
// It serves one stream at a time. A new stream replaces the previous one, whose evaluator may hang.
// Memory: one copy of the weights for each of these: being received, waiting to be written, being written.
// Errors: InvalidArgument if values are out of order, missing or too many, or if a message belongs to another
// evaluation than the stream; DataLoss if the stream ends too early; Aborted if another stream has replaced
// this one; errors of the owner.
// Threads: safe. The owner is called without locks: `admit` on the caller's thread, `write` on the keeper's.
#ifndef CATCHMENT_SERVER_HOST_BEST_KEEPER_H_
#define CATCHMENT_SERVER_HOST_BEST_KEEPER_H_

#include <cstdint>
#include <functional>
#include <optional>
#include <thread>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "common/base/mutex.h"
#include "proto/checkpoint.pb.h"
#include "proto/master.pb.h"

namespace catchment {

class BestKeeper {
 public:
  struct Owner {
    // Returns the score of the evaluation if its weights are wanted from this evaluator, otherwise an error.
    std::function<absl::StatusOr<v1::BestState>(uint64_t incarnation, uint64_t evaluation)> admit;
    std::function<absl::Status(const v1::BestState& score, absl::Span<const float> weights)> write;
    // Called when an admitted stream has ended, with its result, unless another stream has replaced it.
    std::function<void(const v1::BestState& score, const absl::Status& status)> ended;
  };
  using Done = std::function<void(const absl::Status&)>;

  // `num_values` is the size of the flat parameter vector.
  BestKeeper(int64_t num_values, Owner owner);
  // Writes the weights that are still waiting.
  ~BestKeeper();

  // Begins a stream with its first message and returns the stream's number.
  absl::StatusOr<uint64_t> Begin(const v1::BestWeights& first);
  // Adds the next message. An error ends the stream.
  absl::Status Add(uint64_t stream, const v1::BestWeights& message);
  // Ends the stream. `done` is called once, on this thread or the keeper's, when the weights are on disk or
  // the stream has failed.
  void End(uint64_t stream, Done done);

 private:
  struct Incoming {
    uint64_t stream = 0;  // 0: none
    uint64_t incarnation = 0;
    v1::BestState score;
    std::vector<float> weights;
    uint64_t next = 0;  // index of the next value
  };
  struct Received {
    v1::BestState score;
    std::vector<float> weights;
    Done done;
  };

  // Appends the message's values to `incoming`, the stream that the message belongs to.
  absl::Status Take(const v1::BestWeights& message, Incoming* incoming) const;
  // Returns Aborted if another stream has replaced `stream`.
  absl::Status CheckCurrent(uint64_t stream) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Queues the weights for writing; they replace weights that are still waiting.
  void Enqueue(Incoming incoming, Done done);
  void Run();

  const uint64_t num_values_;
  const Owner owner_;

  Mutex mu_;
  CondVar changed_;
  uint64_t streams_ ABSL_GUARDED_BY(mu_) = 0;  // calls of Begin
  uint64_t newest_ ABSL_GUARDED_BY(mu_) = 0;   // the last admitted stream
  Incoming incoming_ ABSL_GUARDED_BY(mu_);
  std::optional<Received> waiting_ ABSL_GUARDED_BY(mu_);
  bool ending_ ABSL_GUARDED_BY(mu_) = false;
  std::thread thread_;
};

}  // namespace catchment

#endif  // CATCHMENT_SERVER_HOST_BEST_KEEPER_H_
