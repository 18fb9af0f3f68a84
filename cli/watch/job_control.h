// Requests to the master of a job, and the lookup of its address.
#ifndef CATCHMENT_CLI_WATCH_JOB_CONTROL_H_
#define CATCHMENT_CLI_WATCH_JOB_CONTROL_H_

#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/net/rpc.h"
#include "common/program/command_line.h"
#include "proto/master.grpc.pb.h"

namespace catchment {

inline constexpr int kNoMaster = 3;  // exit code: no master answers
// The longest time without an answer, in seconds, before a command ends or says so.
inline constexpr double kMasterPatience = 10;

// Flags that all commands on a running job share.
struct MasterFlags {
  std::string master;  // HOST:PORT, or the --out of the run
  TlsFiles tls;
  bool insecure = false;
};

// Declares the argument HOST:PORT|DIR, whose default is $CATCHMENT_MASTER, and the flags of security.
void AddMasterFlags(MasterFlags* flags, CommandLine* line);
// For the directory of a run whose master is reached over a network: unless others are given, uses the
// certificates in DIR/certs or DIR/certs.JOBID, those of an operator.
void FindCertificates(MasterFlags* flags);
// Checks the values of these flags, after FindCertificates. Errors: InvalidArgument.
absl::Status CheckMasterFlags(MasterFlags* flags);

// Returns true if the text is a directory rather than an address.
bool IsRunDirectory(const std::string& master);
// Returns the address: of a directory, the one that its master has written there. Errors: NotFound if there
// is none, with what to do; FailedPrecondition if it is neither local nor secure.
absl::StatusOr<std::string> AddressOfMaster(const MasterFlags& flags);

// Returns true if the job is DONE, STOPPED or FAILED.
bool HasEnded(const v1::JobStatus& status);

// Calls end within a few seconds, possibly with an error.
class JobControl {
 public:
  // Returns InvalidArgument if the TLS files cannot be used.
  static absl::StatusOr<JobControl> Create(const std::string& address, const TlsFiles& tls);

  // `again_in_seconds` is that of v1::GetStatusRequest.
  absl::StatusOr<v1::JobStatus> GetStatus(double again_in_seconds = 0);
  absl::StatusOr<v1::GetJobReply> GetJob();
  // `now` is that of v1::StopRequest.
  absl::Status Stop(const std::string& reason, bool now = false);
  // Closes the connection; later calls fail. Without this call a master that ends would wait for the
  // connection to be read.
  void Disconnect() { stub_.reset(); }

 private:
  JobControl(std::string address, std::unique_ptr<v1::MasterService::Stub> stub)
      : address_(std::move(address)), stub_(std::move(stub)) {}

  template <typename Request, typename Reply>
  using Method = grpc::Status (v1::MasterService::Stub::*)(grpc::ClientContext*, const Request&, Reply*);

  template <typename Request, typename Reply>
  absl::StatusOr<Reply> Call(Method<Request, Reply> method, const Request& request);

  std::string address_;
  std::unique_ptr<v1::MasterService::Stub> stub_;
};

}  // namespace catchment

#endif  // CATCHMENT_CLI_WATCH_JOB_CONTROL_H_
