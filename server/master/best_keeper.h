// Keeps the weights of the best evaluation: puts them together from an evaluator's messages (KeepBest in
// proto/master.proto), and has them written on a thread of its own, since a disk takes its time and the
// threads that receive serve training.
//
// One stream at a time: a new one takes the place of the one before, which may be of an evaluator that hangs.
// Memory: one copy of the weights while they come, one while they wait, one while they are written.
// Errors: InvalidArgument for values that are out of order, too many or none, or of another evaluation than
// the stream's first; DataLoss where they end too early; Aborted for a stream whose place another took; the
// owner's.
// Threads: safe. The owner is called without locks: admit on the caller's thread, write on the keeper's.
#ifndef CATCHMENT_SERVER_MASTER_BEST_KEEPER_H_
#define CATCHMENT_SERVER_MASTER_BEST_KEEPER_H_

#include <cstdint>
#include <functional>
#include <optional>
#include <thread>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "common/mutex.h"
#include "proto/checkpoint.pb.h"
#include "proto/master.pb.h"

namespace catchment {

class BestKeeper {
 public:
  struct Owner {
    // The score of an evaluation whose weights are wanted from this evaluator, or why they are not.
    std::function<absl::StatusOr<v1::BestState>(uint64_t incarnation, uint64_t evaluation)> admit;
    std::function<absl::Status(const v1::BestState& score, absl::Span<const float> weights)> write;
    // What became of an admitted stream, unless another took its place.
    std::function<void(const v1::BestState& score, const absl::Status& status)> ended;
  };
  using Done = std::function<void(const absl::Status&)>;

  // num_values: of the flat vector of parameters.
  BestKeeper(int64_t num_values, Owner owner);
  // Writes what still waits.
  ~BestKeeper();

  // Begins a stream with its first message; returns its number.
  absl::StatusOr<uint64_t> Begin(const v1::BestWeights& first);
  // The next message. After an error the stream is over.
  absl::Status Add(uint64_t stream, const v1::BestWeights& message);
  // There are no more messages. `done` hears once, on this thread or the keeper's, whether all are on disk.
  void End(uint64_t stream, Done done);

 private:
  struct Incoming {
    uint64_t stream = 0;  // 0: none
    uint64_t incarnation = 0;
    v1::BestState score;
    std::vector<float> weights;
    uint64_t next = 0;  // value
  };
  struct Whole {
    v1::BestState score;
    std::vector<float> weights;
    Done done;
  };

  // Of the stream that `incoming` is of.
  absl::Status Take(const v1::BestWeights& message, Incoming* incoming) const;
  absl::Status CheckCurrent(uint64_t stream) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void Hand(Incoming incoming, Done done);
  void Run();

  const uint64_t num_values_;
  const Owner owner_;

  Mutex mu_;
  CondVar changed_;
  uint64_t streams_ ABSL_GUARDED_BY(mu_) = 0;  // how many have asked to begin
  uint64_t newest_ ABSL_GUARDED_BY(mu_) = 0;   // the last one that was admitted
  Incoming incoming_ ABSL_GUARDED_BY(mu_);
  std::optional<Whole> waiting_ ABSL_GUARDED_BY(mu_);
  bool ending_ ABSL_GUARDED_BY(mu_) = false;
  std::thread thread_;
};

}  // namespace catchment

#endif  // CATCHMENT_SERVER_MASTER_BEST_KEEPER_H_
