// gRPC's health protocol (proto/health.proto), on the queues of the other services.
//
// gRPC's own implementation is not used: it starts two or more threads that wait for all of the process's
// connections; they take most events from the threads that transfer weights, and pass them on. With a small
// model on two cores this took a sixth of the processor time of a step.
#ifndef CATCHMENT_SERVER_EDGE_HEALTH_SERVICE_H_
#define CATCHMENT_SERVER_EDGE_HEALTH_SERVICE_H_

#include <map>
#include <string>

#include "common/base/mutex.h"
#include "proto/health.grpc.pb.h"
#include "server/edge/calls.h"

namespace catchment {

// Answers Check. NotFound for a name that was never set; "", the process, is SERVING from the beginning.
//
// Threads: safe.
class HealthService final : public CallService {
 public:
  void Set(const std::string& name, bool serving);

  grpc::Service* grpc_service() override { return &service_; }
  void Accept(CallQueue* queue) override;

 private:
  using Async = grpc::health::v1::Health::AsyncService;

  Async service_;
  Mutex mu_;
  std::map<std::string, bool> serving_ ABSL_GUARDED_BY(mu_) = {{"", true}};
};

}  // namespace catchment

#endif  // CATCHMENT_SERVER_EDGE_HEALTH_SERVICE_H_
