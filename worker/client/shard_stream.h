// A worker's end of one ShardService.Train stream.
#ifndef CATCHMENT_WORKER_CLIENT_SHARD_STREAM_H_
#define CATCHMENT_WORKER_CLIENT_SHARD_STREAM_H_

#include <grpcpp/generic/generic_stub.h>
#include <grpcpp/grpcpp.h>

#include <deque>
#include <functional>
#include <memory>

#include "absl/status/status.h"
#include "common/mutex.h"
#include "common/wire/grpc_frame.h"
#include "proto/wire.pb.h"

namespace catchment {

// Threads: Send and Cancel from any; the callbacks come on gRPC's threads, answers one at a time.
class ShardStream final : private grpc::ClientBidiReactor<grpc::ByteBuffer, grpc::ByteBuffer> {
 public:
  // An error ends the stream with it.
  using AnswerHandler = std::function<absl::Status(const BlockHeader& header, const PayloadView& payload)>;
  // Once, last of all; the stream may be destroyed after it, not in it.
  using ClosedHandler = std::function<void(const absl::Status& status)>;

  ShardStream(const std::shared_ptr<grpc::Channel>& channel, const v1::Hello& hello, AnswerHandler on_answer,
              ClosedHandler on_closed);
  // Ends the stream and waits for the end.
  ~ShardStream() override;

  // `payload` is not copied: its memory stays as it is until the block is answered or the stream has closed.
  void Send(const BlockHeader& header, absl::string_view payload);
  void Cancel();

 private:
  void OnReadDone(bool ok) override;
  void OnWriteDone(bool ok) override;
  void OnDone(const grpc::Status& status) override;
  void WriteNext() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  grpc::GenericStub stub_;
  grpc::ClientContext context_;
  const AnswerHandler on_answer_;
  const ClosedHandler on_closed_;

  // Of the reading callback.
  grpc::ByteBuffer incoming_;
  ReceivedFrame frame_;

  Mutex mu_;
  CondVar changed_;
  std::deque<grpc::ByteBuffer> queue_ ABSL_GUARDED_BY(mu_);
  bool writing_ ABSL_GUARDED_BY(mu_) = false;
  bool ending_ ABSL_GUARDED_BY(mu_) = false;
  bool done_ ABSL_GUARDED_BY(mu_) = false;
  absl::Status error_ ABSL_GUARDED_BY(mu_);  // of on_answer
};

}  // namespace catchment

#endif  // CATCHMENT_WORKER_CLIENT_SHARD_STREAM_H_
