// The judgments of `catchment doctor`, which turn observations of a machine into verdicts with remedies.
//
// Threads: pure functions.
#ifndef CATCHMENT_CLI_DOCTOR_JUDGE_H_
#define CATCHMENT_CLI_DOCTOR_JUDGE_H_

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "common/base/thread_limit.h"
#include "common/net/certificate.h"
#include "kernels/cuda/loader.h"
#include "proto/master.pb.h"

namespace catchment {

enum class Verdict { kOk, kWarn, kFail };

// The result of a check.
struct Finding {
  Verdict verdict = Verdict::kOk;
  std::string text;
  std::string remedy = "";  // a sentence; empty if and only if the verdict is kOk
};

inline Finding Ok(std::string text) { return {Verdict::kOk, std::move(text)}; }
inline Finding Warn(std::string text, std::string remedy) {
  return {Verdict::kWarn, std::move(text), std::move(remedy)};
}
inline Finding Fail(std::string text, std::string remedy) {
  return {Verdict::kFail, std::move(text), std::move(remedy)};
}

struct ProcessorFacts {
  std::string instructions;  // "AVX-512"
  std::string limited_by;    // DNNL_MAX_CPU_ISA; empty: not set
  int available = 0;         // processors of this process
  int of_machine = 0;
};
Finding JudgeProcessor(const ProcessorFacts& facts);

struct CudaFacts {
  std::string driver;   // DriverVersion; empty: there is none
  std::string plugin;   // path
  absl::Status opened;  // NotFound: there is no such file
  // If it was opened.
  absl::StatusOr<std::vector<CudaDevice>> devices = std::vector<CudaDevice>();
};
Finding JudgeCuda(const CudaFacts& facts);

// Returns the version of the driver in the text of /proc/driver/nvidia/version.
std::string DriverVersion(const std::string& text);

struct HostFacts {
  std::string name;
  std::vector<std::string> addresses;          // to which the C library resolves it
  std::vector<std::string> machine_addresses;  // of the interfaces
  std::string hosts_file;                      // the text of /etc/hosts
};
Finding JudgeHostName(const HostFacts& facts);

// Returns "line 2 of /etc/hosts" for the first line that names the host; empty if there is none.
std::string LineOfHost(const std::string& hosts_file, const std::string& name);

struct AddressFacts {
  std::string address;                                               // HOST:PORT
  std::vector<std::string> addresses;                                // of HOST
  bool is_here = false;                                              // HOST is this machine
  absl::Status secure;                                               // CheckSecure (common/net/rpc.h)
  absl::StatusOr<v1::GetJobReply> job = absl::UnavailableError("");  // the answer of a master
  absl::Status listening;  // the attempt to listen; only if it is here and no master has answered
};
Finding JudgeAddress(const AddressFacts& facts);

// `master` is absent if none has answered.
Finding JudgeVersion(const std::string& build, const std::optional<v1::GetJobReply>& master);

struct ClockFacts {
  absl::Time now;
  std::optional<bool> synchronized;  // by a time service; absent: the kernel does not say
  bool has_certificates = false;
  std::optional<absl::Duration>
      of_master;         // the master's time minus `now`; absent: no master has reported it
  absl::Duration error;  // the most by which of_master may be wrong
};
Finding JudgeClock(const ClockFacts& facts);

// `workers` is the job's number, or 0 if there is no job.
Finding JudgeOpenFiles(int64_t limit, int64_t workers, int64_t servers);

// `needed` is the number of threads of a job's processes on this machine.
Finding JudgeThreads(const ThreadRoom& room, int64_t needed);

struct MemoryFacts {
  int64_t free = 0;    // bytes; 0: not known
  int64_t limit = 0;   // of the cgroups; INT64_MAX: none
  int64_t server = 0;  // of the job's largest server; 0: no job
  int64_t worker = 0;
};
Finding JudgeMemory(const MemoryFacts& facts);

struct DataSetFacts {
  std::string name;
  absl::Status loaded;  // NotFound: its files are not there
};
// Without a job: data sets that a job may need.
Finding JudgeDataSets(const std::vector<DataSetFacts>& sets);

struct CertificateFacts {
  std::string file;
  std::string role;  // empty: of the authority
  Certificate certificate;
  // Its files can be read, and belong together.
  absl::Status usable;
  // For the role server, the host of the address: empty if it is valid for it.
  std::string wrong_host;
  // Users outside the group may read the key.
  bool is_key_public = false;
};
// Returns the worst of all findings.
Finding JudgeCertificates(const std::vector<CertificateFacts>& files, absl::Time now);

struct DirectoryFacts {
  std::string path;
  std::string existing;  // the path itself, or the directory above it that exists
  absl::Status written;  // a file was written, synced and renamed
  double bytes_per_second = 0;
  double free_bytes = 0;
};
Finding JudgeDirectory(const DirectoryFacts& facts);

}  // namespace catchment

#endif  // CATCHMENT_CLI_DOCTOR_JUDGE_H_
