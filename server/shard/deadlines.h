// The times at which blocks of a shard make an update although no request arrives for them.
//
// Cost: O(log blocks) for each deadline that is set. A deadline that was replaced stays in the heap until its
// time, or until the heap has twice as many entries as there are blocks.
//
// Units: seconds. Threads: safe; its lock is taken last.
#ifndef CATCHMENT_SERVER_SHARD_DEADLINES_H_
#define CATCHMENT_SERVER_SHARD_DEADLINES_H_

#include <cstddef>
#include <cstdint>
#include <limits>
#include <vector>

#include "common/base/mutex.h"

namespace catchment {

class Deadlines {
 public:
  static constexpr double kNever = std::numeric_limits<double>::infinity();

  explicit Deadlines(size_t blocks) : of_block_(blocks, kNever) {}

  // Sets the deadline of a block in place of the one before. kNever: it has none.
  void Set(uint32_t block, double time);
  // Returns the earliest one; kNever: there is none.
  double Next();
  // Removes the deadlines up to `now`, and returns their blocks.
  std::vector<uint32_t> TakeDue(double now);

 private:
  struct Entry {
    double time = 0;
    uint32_t block = 0;
  };
  static bool IsLater(const Entry& a, const Entry& b) { return a.time > b.time; }
  // Removes the entries on top that were replaced.
  void DropReplaced() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Removes all entries that were replaced.
  void DropAllReplaced() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Removes the entry on top.
  void Pop() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  Mutex mu_;
  std::vector<double> of_block_ ABSL_GUARDED_BY(mu_);
  std::vector<Entry> heap_ ABSL_GUARDED_BY(mu_);  // the earliest on top
};

}  // namespace catchment

#endif  // CATCHMENT_SERVER_SHARD_DEADLINES_H_
