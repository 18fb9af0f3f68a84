// The requests to a shard, and its answers.
#ifndef CATCHMENT_SERVER_SHARD_REQUEST_H_
#define CATCHMENT_SERVER_SHARD_REQUEST_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <utility>

#include "common/wire/block_frame.h"
#include "server/shard/buffer_pool.h"

namespace catchment {

struct Answer;

// The receiver of answers: one end of a connection. The shard keeps it as long as a request waits.
class AnswerSink {
 public:
  virtual ~AnswerSink() = default;
  virtual void Deliver(Answer answer) = 0;
  // Returns true if the worker sends a block again when it is asked to (Answer::again).
  virtual bool CanSendAgain() const { return false; }
};

struct Answer {
  std::shared_ptr<AnswerSink> sink;
  BlockHeader header;
  BufferPtr payload;  // may be shared with other answers; null: none
  // The change that the shard's standby must have before the answer leaves (standby_log.h); 0: none.
  uint64_t change = 0;
  double made_at = 0;  // seconds, on the clock of Shard::Handle
  // There is no answer: the contribution is not part of an update, and must be sent again.
  bool again = false;
};

// The sender of a request, and the destination of the answer.
struct Envelope {
  uint32_t worker = 0;
  uint64_t incarnation = 0;
  // The number of the connection; a later connection of the worker has a higher number. A copy of a request
  // over an older connection, whose thread was delayed, must not replace a newer one, because its answer
  // would be lost.
  uint64_t connection = 0;
  v1::Block::Operation operation = v1::Block::OPERATION_UNSET;
  uint64_t sequence = 0;  // of the push or exchange; 0 for a pull
  uint64_t steps = 0;     // Block.steps (proto/wire.proto)
  std::shared_ptr<AnswerSink> sink;
};

// A worker's contribution to an update of a block. A pull sets only `block` and `version`.
struct Contribution {
  uint32_t block = 0;
  uint64_t version = 0;  // that it was computed at; of a pull: the lowest one that is an answer
  uint32_t samples = 0;
  BufferPtr values;    // null: none
  bool finite = true;  // all values are usable (IsUsable)
};

// One block of a worker's push, pull or exchange.
struct Request {
  Envelope envelope;
  Contribution contribution;
};

// Makes a request from its header. The values of its contribution are still missing (Shard::ReadPayload).
inline Request MakeRequest(uint32_t worker, uint64_t incarnation, const BlockHeader& header,
                           std::shared_ptr<AnswerSink> sink, uint64_t connection = 0) {
  return {{.worker = worker,
           .incarnation = incarnation,
           .connection = connection,
           .operation = header.operation,
           .sequence = header.sequence,
           .steps = header.steps,
           .sink = std::move(sink)},
          {.block = header.block, .version = header.version, .samples = header.samples}};
}

// The last answer that a worker was sent for a block.
struct Sent {
  std::optional<double> at;  // seconds, on the clock of Shard::Handle; absent: it was sent nothing
  // The version of the weights, and that of the weights that it was sent before, with which it may still
  // compute. Before it is sent any: the version of the shard when it joined.
  uint64_t version = 0, version_before = 0;
  BufferPtr weights;  // if the rule needs them
  BufferPtr sample;   // of the center at that time (server/shard/gap_sample.h)
};

// A contribution that waits at its block for the update.
struct WaitingContribution {
  Envelope envelope;
  Contribution contribution;
  Sent sent;           // the weights with which it was computed
  bool added = false;  // its values are in the sum of its group
};

}  // namespace catchment

#endif  // CATCHMENT_SERVER_SHARD_REQUEST_H_
