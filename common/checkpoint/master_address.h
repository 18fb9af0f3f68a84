// The files in the directory of a run (--out, or --checkpoint_dir without it) that say where its master is,
// so that commands about the job, and workers, can be given the directory. They exist while the master runs,
// and stay if it is killed: then the master of another job may have its address.
//
//   master.address   one line, HOST:PORT or unix:PATH
//   master.run       the id of the master's run (GetJobReply.run_id), by which it is recognized
#ifndef CATCHMENT_COMMON_CHECKPOINT_MASTER_ADDRESS_H_
#define CATCHMENT_COMMON_CHECKPOINT_MASTER_ADDRESS_H_

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace catchment {

struct MasterPlace {
  std::string address;
  uint64_t run_id = 0;  // 0: unknown, of a master of an earlier version
};

// Returns what the files say. NotFound if there is no address; other errors of reading it.
absl::StatusOr<MasterPlace> ReadMasterPlace(const std::string& directory);

// Returns FailedPrecondition if the master at `place` has answered with the id of another run: the job
// `job`, which is not that of the directory.
absl::Status CheckSameRun(const std::string& directory, const MasterPlace& place, uint64_t run_id,
                          const std::string& job);

// The files of this process, deleted at the end.
class MasterAddressFile {
 public:
  // An empty `directory` has no files.
  explicit MasterAddressFile(const std::string& directory) : directory_(directory) {}
  ~MasterAddressFile();
  MasterAddressFile(const MasterAddressFile&) = delete;

  // Replace the files. The run is written before its master answers, so that no answer is taken for that of
  // another run. Only log an error: no job depends on the files.
  void WriteRun(uint64_t run_id) const;
  void WriteAddress(const std::string& address) const;

 private:
  void Replace(const std::string& path, const std::string& line) const;

  const std::string directory_;
};

}  // namespace catchment

#endif  // CATCHMENT_COMMON_CHECKPOINT_MASTER_ADDRESS_H_
