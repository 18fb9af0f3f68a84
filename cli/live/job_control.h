// Requests to the master of a job, and the lookup of its address.
#ifndef CATCHMENT_CLI_LIVE_JOB_CONTROL_H_
#define CATCHMENT_CLI_LIVE_JOB_CONTROL_H_

#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/checkpoint/master_address.h"
#include "common/net/rpc.h"
#include "common/program/command_line.h"
#include "proto/master.grpc.pb.h"

namespace catchment {

inline constexpr int kNoMaster = 3;  // exit code: no master answers
// The longest time without an answer, in seconds, before a command ends or says so.
inline constexpr double kMasterPatience = 10;
// The timeout of a call. It is short, since the caller does nothing else meanwhile.
inline constexpr double kMasterCallSeconds = 3;

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
// Returns the address: of a directory, the one that its master has written there, with its run. Errors:
// NotFound if there is none, with what to do; FailedPrecondition if it is neither local nor secure.
absl::StatusOr<MasterPlace> PlaceOfMaster(const MasterFlags& flags);

// Returns true if the job is DONE, STOPPED or FAILED.
bool HasEnded(const v1::JobStatus& status);

// Calls end within a few seconds, possibly with an error. Calls to the master of a directory reach only the
// directory's own run: another master at the same address, of a job that was started after this one was
// killed, causes FailedPrecondition, and is neither shown nor stopped. A run that was started again in the
// directory takes the place of the earlier one.
class JobControl {
 public:
  // Returns InvalidArgument if the TLS files cannot be used.
  static absl::StatusOr<JobControl> Create(const std::string& address, const TlsFiles& tls);
  // The same for the master of a directory, or at an address. Errors: also those of PlaceOfMaster.
  static absl::StatusOr<JobControl> Create(const MasterFlags& flags);

  const std::string& address() const { return place_.address; }

  // `again_in_seconds` is that of v1::GetStatusRequest.
  absl::StatusOr<v1::JobStatus> GetStatus(double again_in_seconds = 0);
  // Does not look at the run.
  absl::StatusOr<v1::GetJobReply> GetJob();
  // `now` is that of v1::StopRequest.
  absl::Status Stop(const std::string& reason, bool now = false);
  // Closes the connection; later calls fail. Without this call a master that ends would wait for the
  // connection to be read.
  void Disconnect() { stub_.reset(); }

 private:
  JobControl(MasterPlace place, std::unique_ptr<v1::MasterService::Stub> stub)
      : place_(std::move(place)), stub_(std::move(stub)) {}

  // Returns OK if `status` is that of the directory's run, perhaps of a new one.
  absl::Status CheckRun(const v1::JobStatus& status);

  template <typename Request, typename Reply>
  using Method = std::unique_ptr<grpc::ClientAsyncResponseReader<Reply>> (v1::MasterService::Stub::*)(
      grpc::ClientContext*, const Request&, grpc::CompletionQueue*);

  template <typename Request, typename Reply>
  absl::StatusOr<Reply> Call(Method<Request, Reply> method, const Request& request);

  MasterPlace place_;
  std::string directory_;  // empty: an address was given
  std::unique_ptr<v1::MasterService::Stub> stub_;
};

}  // namespace catchment

#endif  // CATCHMENT_CLI_LIVE_JOB_CONTROL_H_
