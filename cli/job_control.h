// Requests to the master of a job.
#ifndef CATCHMENT_CLI_JOB_CONTROL_H_
#define CATCHMENT_CLI_JOB_CONTROL_H_

#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/rpc.h"
#include "proto/master.grpc.pb.h"

namespace catchment {

// Calls end within a few seconds, possibly with an error.
class JobControl {
 public:
  // Returns InvalidArgument if the TLS files cannot be used.
  static absl::StatusOr<JobControl> Create(const std::string& address, const TlsFiles& tls);

  // `again_in_seconds` is that of v1::GetStatusRequest.
  absl::StatusOr<v1::JobStatus> GetStatus(double again_in_seconds = 0);
  absl::Status Stop(const std::string& reason);
  // Closes the connection; later calls fail. Without this call a master that ends would wait for the
  // connection to be read.
  void Disconnect() { stub_.reset(); }

 private:
  JobControl(std::string address, std::unique_ptr<v1::MasterService::Stub> stub)
      : address_(std::move(address)), stub_(std::move(stub)) {}

  std::string address_;
  std::unique_ptr<v1::MasterService::Stub> stub_;
};

}  // namespace catchment

#endif  // CATCHMENT_CLI_JOB_CONTROL_H_
