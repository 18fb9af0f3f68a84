// The calls of a shard to its workers (consistency.quorum, CALL in proto/wire.proto): one for each fragment
// and version, from the block whose contribution is the first of them.
//
// Threads: safe; its lock is taken last.
#ifndef CATCHMENT_SERVER_SHARD_CALLS_H_
#define CATCHMENT_SERVER_SHARD_CALLS_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "common/base/mutex.h"
#include "server/shard/request.h"

namespace catchment {

class Calls {
 public:
  struct Call {
    uint32_t block = 0;
    uint64_t version = 0;
  };

  // `fragments_of_blocks`: of each block of the shard, below `fragments`.
  Calls(std::vector<uint32_t> fragments_of_blocks, int fragments)
      : fragments_of_blocks_(std::move(fragments_of_blocks)), last_(fragments) {}

  // Records the first contribution to an update of `block`, which is at `version`. Returns true if the
  // workers must be called: no other block of its fragment has begun this version.
  bool Begin(uint32_t block, uint64_t version);
  // Returns the last call of each fragment.
  std::vector<Call> Last() const;

 private:
  const std::vector<uint32_t> fragments_of_blocks_;
  mutable Mutex mu_;
  std::vector<std::optional<Call>> last_ ABSL_GUARDED_BY(mu_);  // by fragment
};

// Returns the message with which a worker is called over a connection.
Answer MakeCall(std::shared_ptr<AnswerSink> sink, const Calls::Call& call);

}  // namespace catchment

#endif  // CATCHMENT_SERVER_SHARD_CALLS_H_
