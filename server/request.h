// What comes to a shard, and what it answers.
#ifndef CATCHMENT_SERVER_REQUEST_H_
#define CATCHMENT_SERVER_REQUEST_H_

#include <cstdint>
#include <memory>
#include <optional>

#include "common/wire/block_frame.h"
#include "server/buffer_pool.h"

namespace catchment {

// Where answers go: one end of a connection. The shard keeps it as long as a request waits.
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

// What a worker was last sent of a block.
struct Sent {
  std::optional<double> at;  // seconds, on the clock of Request::now; nothing: it was sent none
  BufferPtr weights;         // where the rule needs them
  BufferPtr sample;          // of the center, as it was then (server/gap_sample.h)
};

// One block of a worker's push, pull or exchange.
struct Request {
  uint32_t worker = 0;
  uint64_t incarnation = 0;
  BlockHeader header;
  BufferPtr payload;  // of a push or exchange
  std::shared_ptr<AnswerSink> sink;
  bool finite = true;  // every value of the payload is
  Sent sent;           // what it was computed with; the shard sees to it
  double now = 0;      // seconds, on any clock that never goes back: when it comes to be handled
  // The number of the connection that it arrived over: a later one of the worker has a higher number. A copy of a
  // request that arrives over an older connection, whose thread was overtaken, is not to take the place of a newer
  // one: its answer would be lost.
  uint64_t connection = 0;
};

}  // namespace catchment

#endif  // CATCHMENT_SERVER_REQUEST_H_
