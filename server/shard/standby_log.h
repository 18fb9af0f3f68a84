// The changes of a shard that its standby must have before answers that show them may leave.
//
// Blocks append a change for each operation, under their locks. A link (server/edge/standby_link.h) sends the
// changes and records which are acknowledged; answers wait for their changes. The master
// (server/host/master_host.h) has one state instead, of which only the newest version matters.
//
// Threads: safe. No lock of another object is taken under its own.
#ifndef CATCHMENT_SERVER_SHARD_STANDBY_LOG_H_
#define CATCHMENT_SERVER_SHARD_STANDBY_LOG_H_

#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <vector>

#include "absl/status/status.h"
#include "common/base/mutex.h"
#include "proto/standby.pb.h"
#include "server/shard/buffer_pool.h"
#include "server/shard/ring.h"

namespace catchment {

// Returns the error for those who wait when the log ends.
inline absl::Status LogHasEnded() { return absl::UnavailableError("the server's run has ended"); }

class StandbyLog {
 public:
  struct Change {
    v1::StandbyPart part;  // a block or a checkpoint
    std::vector<BufferPtr> vectors;
    bool state = false;  // the master's state: only the number is set
  };

  // Appends a change, and returns its number. The change is queued while the log is open; an image that is
  // made later contains it.
  uint64_t Append(Change change);
  // Returns the parts that describe the master's state: those that have changed since the last call, or with
  // `whole` all.
  using Describe = std::function<std::vector<v1::StandbyPart>(bool whole)>;
  // Sets the function; null: none. It is not running when the call returns.
  void SetState(Describe describe);
  // Appends a change of the master's state, and returns its number. The state is described when the change is
  // sent, so that one change serves for all of them until then. Whoever describes the state may hold a lock
  // of its own here, but not with Flush.
  uint64_t AppendState();
  // Returns the number of the last change.
  uint64_t last() const { return last_; }
  // Returns the number of changes that the standby has not acknowledged.
  uint64_t unacknowledged() const {
    const uint64_t acknowledged = acknowledged_;
    return last_ - acknowledged;
  }

  // Called once: with true when the change is acknowledged, or with false when the log has ended before.
  using Then = std::function<void(bool acknowledged)>;
  enum class Wait { kAcknowledged, kLater, kNever };
  // Waits for change `number`: with kLater `then` is called on the thread that acknowledges the change or
  // ends the log. Otherwise it is not called: the change is acknowledged already, or the log has ended before
  // it was.
  Wait Await(uint64_t number, Then then);
  bool IsAcknowledged(uint64_t number) const { return number <= acknowledged_; }
  // Sends the changes that were appended, if they are not being sent. Not to be called with a block's lock.
  void Flush();
  // Ends the log: changes are not acknowledged any more. Returns when no callback is running or will be
  // called.
  void End();

  // For the link. Sets the function that sends the changes; null: none. It is not running when the call
  // returns.
  void SetSender(std::function<void()> send);
  // Opens the log: later changes are queued. Returns the number of the last change before.
  uint64_t Open();
  // Drops the changes in the queue, and queues no more.
  void Close();
  // Returns the parts of the master's state; none if there is none.
  std::vector<v1::StandbyPart> DescribeState(bool whole);
  // Returns the next change to send; nothing if there is none.
  std::optional<Change> Next();
  // Acknowledges all changes up to this one.
  void Acknowledge(uint64_t number);

 private:
  void ClearQueue() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  mutable Mutex mu_;
  std::atomic<uint64_t> last_{0};
  std::atomic<uint64_t> acknowledged_{0};
  bool open_ ABSL_GUARDED_BY(mu_) = false;
  Ring<Change> queue_ ABSL_GUARDED_BY(mu_);
  uint64_t queued_state_ ABSL_GUARDED_BY(mu_) = 0;  // the number of the state's change in the queue; 0: none
  std::multimap<uint64_t, Then> waiting_ ABSL_GUARDED_BY(mu_);  // by number of the change
  bool ended_ ABSL_GUARDED_BY(mu_) = false;
  int calling_ ABSL_GUARDED_BY(mu_) = 0;  // threads that call the functions of others
  CondVar changed_;

  mutable SharedMutex state_mu_;
  Describe describe_ ABSL_GUARDED_BY(state_mu_);
  mutable SharedMutex sender_mu_;
  std::function<void()> send_ ABSL_GUARDED_BY(sender_mu_);
};

}  // namespace catchment

#endif  // CATCHMENT_SERVER_SHARD_STANDBY_LOG_H_
