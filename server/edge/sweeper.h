// Ends the connections of lost and slow workers once a second, and frees unused memory from time to time, on
// a separate thread from construction to destruction.
#ifndef CATCHMENT_SERVER_EDGE_SWEEPER_H_
#define CATCHMENT_SERVER_EDGE_SWEEPER_H_

#include <thread>

#include "common/base/clock.h"
#include "common/base/mutex.h"
#include "server/edge/shard_service.h"
#include "server/shard/shard.h"

namespace catchment {

class Sweeper {
 public:
  // All of them must outlive the sweeper.
  Sweeper(ShardService* service, Shard* shard, const Clock* clock);
  ~Sweeper();

 private:
  void Run();

  ShardService& service_;
  Shard& shard_;
  const Clock& clock_;
  Mutex mu_;
  CondVar changed_;
  bool ending_ ABSL_GUARDED_BY(mu_) = false;
  std::thread thread_;
};

// Frees the shard's buffers that were not used since the last call. If `traffic` has not changed since then,
// the process's free memory is returned to the operating system.
class MemoryTrimmer {
 public:
  explicit MemoryTrimmer(BufferPool* pool) : pool_(*pool) {}
  void Trim(uint64_t traffic);

 private:
  BufferPool& pool_;
  uint64_t traffic_ = 0;
  bool trimmed_ = false;
};

}  // namespace catchment

#endif  // CATCHMENT_SERVER_EDGE_SWEEPER_H_
