// Examines the machine on which `catchment doctor` runs.
#ifndef CATCHMENT_CLI_DOCTOR_CHECKUP_H_
#define CATCHMENT_CLI_DOCTOR_CHECKUP_H_

#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "cli/doctor/judge.h"
#include "cli/live/job_control.h"
#include "proto/job.pb.h"
#include "proto/master.pb.h"
#include "worker/data/data_paths.h"

namespace catchment {

struct DoctorOptions {
  MasterFlags master;  // possibly without a master
  std::string job;     // file; empty: none
  std::string checkpoint_dir;
  std::string out;
  DataPaths data;
  bool json = false;
};

class Checkup {
 public:
  // Reads the job and asks the master, if there are any.
  explicit Checkup(const DoctorOptions& options);

  // Each returns the result of a check; nothing if the options do not ask for it.
  std::optional<Finding> CheckProcessor();
  std::optional<Finding> CheckSystem();
  std::optional<Finding> CheckCuda();
  std::optional<Finding> CheckPrograms();
  std::optional<Finding> CheckHostName();
  std::optional<Finding> CheckAddress();
  std::optional<Finding> CheckVersion();
  std::optional<Finding> CheckClock();
  std::optional<Finding> CheckCertificates();
  std::optional<Finding> CheckOpenFiles();
  std::optional<Finding> CheckThreads();
  std::optional<Finding> CheckMemory();
  std::optional<Finding> CheckJob();
  std::optional<Finding> CheckData();
  std::optional<Finding> CheckCheckpoints();
  std::optional<Finding> CheckOutput();

 private:
  bool has_certificates() const;
  // Returns the certificate files of each role in --certs, or those of the three flags.
  std::vector<TlsFiles> CertificateFiles() const;

  const DoctorOptions& options_;
  absl::StatusOr<MasterPlace> place_;  // of the master; no address: none is given
  absl::Status secure_;
  absl::StatusOr<v1::GetJobReply> master_;
  absl::Time asked_, answered_;  // when the master was asked and had answered
  absl::StatusOr<v1::Job> job_;
};

}  // namespace catchment

#endif  // CATCHMENT_CLI_DOCTOR_CHECKUP_H_
