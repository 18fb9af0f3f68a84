// Asks a job's master how it goes, and tells it to stop.
#ifndef CATCHMENT_CLI_JOB_CONTROL_H_
#define CATCHMENT_CLI_JOB_CONTROL_H_

#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/rpc.h"
#include "proto/master.grpc.pb.h"

namespace catchment {

// Every call ends within a few seconds, with an error if need be.
class JobControl {
 public:
  // InvalidArgument for TLS files that cannot be used.
  static absl::StatusOr<JobControl> Create(const std::string& address, const TlsFiles& tls);

  // again_in_seconds: as in v1::GetStatusRequest.
  absl::StatusOr<v1::JobStatus> GetStatus(double again_in_seconds = 0);
  absl::Status Stop(const std::string& reason);
  // Closes the connection; calls fail from now on. A master that ends would wait a while for a connection
  // that is not read.
  void Disconnect() { stub_.reset(); }

 private:
  JobControl(std::string address, std::unique_ptr<v1::MasterService::Stub> stub)
      : address_(std::move(address)), stub_(std::move(stub)) {}

  std::string address_;
  std::unique_ptr<v1::MasterService::Stub> stub_;
};

}  // namespace catchment

#endif  // CATCHMENT_CLI_JOB_CONTROL_H_
