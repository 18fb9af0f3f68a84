// The requests to a shard, and its answers.
#ifndef CATCHMENT_SERVER_SHARD_REQUEST_H_
#define CATCHMENT_SERVER_SHARD_REQUEST_H_

#include <cstdint>
#include <memory>
#include <optional>

#include "common/wire/block_frame.h"
#include "server/shard/buffer_pool.h"

namespace catchment {

// The receiver of answers: one end of a connection. The shard keeps it as long as a request waits.
struct Answer;
class AnswerSink {
 public:
  virtual ~AnswerSink() = default;
  virtual void Deliver(Answer answer) = 0;
};

struct Answer {
  std::shared_ptr<AnswerSink> sink;
  BlockHeader header;
  BufferPtr payload;  // may be shared with other answers; null: none
};

// What a worker was sent last for a block.
struct Sent {
  std::optional<double> at;  // seconds, on the clock of Request::now; absent: it was sent nothing
  BufferPtr weights;         // if the rule needs them
  BufferPtr sample;          // of the center at that time (server/shard/gap_sample.h)
};

// One block of a worker's push, pull or exchange.
struct Request {
  uint32_t worker = 0;
  uint64_t incarnation = 0;
  BlockHeader header;
  BufferPtr payload;  // of a push or exchange
  std::shared_ptr<AnswerSink> sink;
  bool finite = true;  // all values of the payload are finite
  Sent sent;           // what it was computed with; set by the shard
  double now = 0;      // the time when it is handled, in seconds, on any monotonic clock
  // The number of its connection; a later connection of the worker has a higher number. A copy of a request
  // over an older connection, whose thread was delayed, must not replace a newer one, because its answer
  // would be lost.
  uint64_t connection = 0;
};

}  // namespace catchment

#endif  // CATCHMENT_SERVER_SHARD_REQUEST_H_
