// Writes the states of workers that belong to checkpoints to files, and reads them after a resume
// (SaveWorkerState and LoadWorkerState in proto/master.proto).
//
// All work is done on the store's own thread, because writing to disk is slow and the receiving threads serve
// training. The store receives one worker's state at a time: the first part of another state waits until the
// current one is complete, or until no part of it has arrived for kTurnSeconds. The same applies to reading
// states. The store therefore holds at most two states in memory: each up to kMaxVectors vectors as long as
// the weights. Duplicate parts are ignored. A worker saves and loads the state of its own index, whatever
// index the request names.
//
// Threads: safe; the owner's functions are called on the store's thread, without locks. Errors, in the
// answers: InvalidArgument for parts that do not fit the model, or arrive or are requested out of order, and
// for a state of more vectors or numbers than any algorithm has; DataLoss for a file that is missing or
// damaged; those of the owner and of writing files.
#ifndef CATCHMENT_SERVER_HOST_WORKER_STATE_STORE_H_
#define CATCHMENT_SERVER_HOST_WORKER_STATE_STORE_H_

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <thread>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/base/clock.h"
#include "common/base/mutex.h"
#include "common/checkpoint/worker_file.h"
#include "proto/master.pb.h"
#include "server/control/calls.h"

namespace catchment {

class WorkerStateStore {
 public:
  static constexpr double kTurnSeconds = 30;
  static constexpr size_t kMaxVectors = 16, kMaxNumbers = 64;

  struct Options {
    std::string directory;   // for checkpoints; if empty, nothing is written or read
    int64_t num_values = 0;  // parameters of the model
    uint64_t resumed = 0;    // the checkpoint that the job was resumed from; 0: none
  };
  struct Owner {
    // Returns the index of this worker if its state is wanted for this checkpoint.
    std::function<absl::StatusOr<uint32_t>(uint64_t incarnation, uint64_t checkpoint)> admit;
    // Returns the index of this worker. NotFound if it is not a member.
    std::function<absl::StatusOr<uint32_t>(uint64_t incarnation)> index_of;
    // Called with the result when the state of an admitted worker is on disk or could not be saved.
    std::function<void(uint64_t incarnation, uint64_t checkpoint, const absl::Status& status)> saved;
  };

  // `clock` outlives the store.
  WorkerStateStore(Options options, Owner owner, const Clock* clock);
  ~WorkerStateStore();

  // Answers a call of SaveWorkerState or LoadWorkerState. `respond` is called on the store's thread, or,
  // after End, on the caller's.
  void Answer(const v1::Call& call, Respond respond);

  // Answers all waiting calls, and later ones at once, with Unavailable.
  void End();

 private:
  struct Waiting {
    v1::Call call;
    Respond respond;
  };
  // The worker whose state is being received.
  struct Turn {
    uint32_t worker = 0;
    uint64_t incarnation = 0;
    uint64_t checkpoint = 0;
    SavedWorker state;
  };

  void Run();
  // Blocks until there is a call that need not wait for another worker's turn; returns nothing after End.
  std::optional<Waiting> WaitForCall();
  std::optional<Waiting> TakeNext() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Returns true if the call belongs to the worker whose turn of its kind it is, or no worker has it.
  bool MayGo(const v1::Call& call) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  absl::StatusOr<v1::Reply> Handle(const v1::Call& call);
  absl::Status HandleSave(const v1::SaveWorkerStateRequest& request);
  absl::Status BeginTurn(const v1::SaveWorkerStateRequest& request);
  void EndTurn(const absl::Status& status);
  absl::Status TakePart(const v1::WorkerStatePart& part);
  absl::Status Write() const;
  absl::StatusOr<v1::LoadWorkerStateReply> HandleLoad(const v1::LoadWorkerStateRequest& request);
  absl::StatusOr<SavedWorker> StateOf(uint32_t worker) const;

  const Options options_;
  const Owner owner_;
  const Clock& clock_;

  // Used by the store's thread.
  std::optional<Turn> turn_;
  uint64_t loaded_of_ = 0;  // the incarnation whose state is in loaded_; 0: none
  SavedWorker loaded_;
  // The part that is due to each incarnation that loads its state. kAllParts: it has all.
  std::map<uint64_t, uint64_t> next_parts_;

  Mutex mu_;
  CondVar changed_;
  std::deque<Waiting> calls_ ABSL_GUARDED_BY(mu_);
  // The incarnation whose state is being saved, and the one whose is being loaded, when heard of last.
  struct Turns {
    uint64_t of = 0;  // 0: none
    double heard = 0;
  };
  Turns save_turn_ ABSL_GUARDED_BY(mu_);
  Turns load_turn_ ABSL_GUARDED_BY(mu_);
  bool ending_ ABSL_GUARDED_BY(mu_) = false;
  std::thread thread_;
};

}  // namespace catchment

#endif  // CATCHMENT_SERVER_HOST_WORKER_STATE_STORE_H_
