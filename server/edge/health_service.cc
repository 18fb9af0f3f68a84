#include "server/edge/health_service.h"

namespace catchment {

using grpc::health::v1::HealthCheckRequest;
using grpc::health::v1::HealthCheckResponse;

void HealthService::Set(const std::string& name, bool serving) {
  MutexLock lock(&mu_);
  serving_[name] = serving;
}

void HealthService::Accept(CallQueue* queue) {
  DeferredCall<Async, HealthCheckRequest, HealthCheckResponse>::Accept(
      queue, Permission("grpc.health.v1.Health.Check"), {&service_, &Async::RequestCheck},
      [this](const HealthCheckRequest& request, const auto& respond) {
        MutexLock lock(&mu_);
        const auto found = serving_.find(request.service());
        if (found == serving_.end()) return respond(absl::NotFoundError("service name unknown"));
        HealthCheckResponse response;
        response.set_status(found->second ? HealthCheckResponse::SERVING : HealthCheckResponse::NOT_SERVING);
        respond(response);
      });
}

}  // namespace catchment
