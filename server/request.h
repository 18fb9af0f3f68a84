// What comes to a shard, and what it answers.
#ifndef CATCHMENT_SERVER_REQUEST_H_
#define CATCHMENT_SERVER_REQUEST_H_

#include <cstdint>
#include <memory>

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

// One block of a worker's push, pull or exchange.
struct Request {
  uint32_t worker = 0;
  uint64_t incarnation = 0;
  BlockHeader header;
  BufferPtr payload;  // of a push or exchange
  std::shared_ptr<AnswerSink> sink;
  bool finite = true;  // every value of the payload is
  BufferPtr sent;      // weights that it was computed with, where the rule needs them; the shard sees to it
};

}  // namespace catchment

#endif  // CATCHMENT_SERVER_REQUEST_H_
