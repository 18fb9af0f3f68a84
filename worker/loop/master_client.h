// Calls to the master. One that does not get through is tried again with growing pauses, and says so.
//
// Threads: safe.
// Errors: the master's own; Unavailable when it was unreachable for the time that is allowed; Cancelled when
// the stop flag was set meanwhile, or when the master ended in order during a call and has not returned in
// that time. A call of CallOnce fails with Cancelled as soon as the master ends or begins another run.
#ifndef CATCHMENT_WORKER_LOOP_MASTER_CLIENT_H_
#define CATCHMENT_WORKER_LOOP_MASTER_CLIENT_H_

#include <atomic>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "common/base/clock.h"
#include "common/base/mutex.h"
#include "common/base/status_macros.h"
#include "common/net/rpc.h"
#include "proto/master.grpc.pb.h"
#include "worker/stop_flag.h"

namespace catchment {

// The longest reason with which members leave: the master's limit (REASON in proto/limits.proto).
inline constexpr size_t kMaxReasonBytes = 1024;
// Returns OneLine of the text in so many bytes: of a longer one, its beginning and its end, where the cause
// of a chain of errors is.
std::string ShortReason(absl::string_view text);

class MasterClient {
 public:
  using Stub = v1::MasterService::Stub;
  template <typename Request, typename Reply>
  using Method = grpc::Status (Stub::*)(grpc::ClientContext*, const Request&, Reply*);

  // `clock` and `stop` outlive the client.
  MasterClient(std::string address, const std::shared_ptr<grpc::ChannelCredentials>& credentials,
               double give_up_seconds, const Clock* clock, const StopFlag* stop);

  const std::string& address() const { return address_; }
  const StopFlag& stop() const { return stop_; }

  // `stop`: another flag than the client's. An attempt may take `seconds`.
  template <typename Request, typename Reply>
  absl::StatusOr<Reply> Call(Method<Request, Reply> method, const Request& request,
                             const StopFlag* stop = nullptr, double seconds = kCallSeconds) {
    Reply reply;
    RETURN_IF_ERROR(
        Retry([&](grpc::ClientContext* context) { return (stub_.get()->*method)(context, request, &reply); },
              stop == nullptr ? stop_ : *stop, seconds));
    return reply;
  }

  // Registers. Later calls have the registration's token.
  absl::StatusOr<v1::RegisterReply> Register(const v1::RegisterRequest& request);

  // Asks for a lease, for which the call may wait at the master; `stop` breaks it off.
  absl::StatusOr<v1::Lease> GetLease(const v1::GetLeaseRequest& request, const StopFlag& stop);

  // Sends weights that were asked for (ReportEvaluationReply.keep): the whole flat vector.
  absl::Status KeepBest(uint64_t incarnation, uint64_t evaluation, absl::Span<const float> weights);

  // Makes one attempt of at most `seconds`, for calls that are repeated anyway and for leaving.
  template <typename Request, typename Reply>
  absl::StatusOr<Reply> CallOnce(Method<Request, Reply> method, const Request& request,
                                 double seconds = kCallSeconds) {
    Reply reply;
    const std::unique_ptr<grpc::ClientContext> context = MakeContext(seconds);
    RETURN_IF_ERROR(FromGrpc((stub_.get()->*method)(context.get(), request, &reply), Who()));
    return reply;
  }

 private:
  static constexpr double kCallSeconds = 10;
  // Time limit for each message of a stream, and, after the last one, for the master to write to its disk.
  static constexpr double kStallSeconds = 120;

  // Returns the context of a call that ends after `seconds`, if there are any, with the token.
  std::unique_ptr<grpc::ClientContext> MakeContext(std::optional<double> seconds) const;
  // Limits an attempt to `seconds`; if absent, to the limit of the call itself.
  absl::Status Retry(const std::function<grpc::Status(grpc::ClientContext*)>& call, const StopFlag& stop,
                     std::optional<double> seconds = kCallSeconds);
  grpc::Status TryGetLease(grpc::ClientContext* context, const v1::GetLeaseRequest& request,
                           const StopFlag& stop, v1::Lease* lease);
  grpc::Status StreamBest(grpc::ClientContext* context, v1::BestWeights message,
                          absl::Span<const float> weights);
  // Returns early when the connection comes about, and, with true, when `stop` is set.
  bool Pause(double seconds, const StopFlag& stop);
  std::string Who() const { return "master at " + address_; }

  const std::string address_;
  const std::shared_ptr<grpc::Channel> channel_;
  const std::unique_ptr<Stub> stub_;
  const double give_up_seconds_;
  const Clock& clock_;
  const StopFlag& stop_;
  std::atomic<bool> reached_ = false;  // the master, by any call of Retry
  mutable Mutex mu_;
  std::string token_ ABSL_GUARDED_BY(mu_);  // of the last registration; empty: there was none
};

}  // namespace catchment

#endif  // CATCHMENT_WORKER_LOOP_MASTER_CLIENT_H_
