// The file in the directory of a run (--out, or --checkpoint_dir without it) with the address of its master,
// so that commands about the job can be given the directory: one line, HOST:PORT or unix:PATH. It is there
// while the master runs, and stays if the master is killed.
#ifndef CATCHMENT_COMMON_CHECKPOINT_MASTER_ADDRESS_H_
#define CATCHMENT_COMMON_CHECKPOINT_MASTER_ADDRESS_H_

#include <string>

#include "absl/status/statusor.h"

namespace catchment {

// Returns the address. NotFound if the directory has no such file; other errors of reading it.
absl::StatusOr<std::string> ReadMasterAddress(const std::string& directory);

// The file of this process, deleted at the end.
class MasterAddressFile {
 public:
  // An empty `directory` has no file.
  explicit MasterAddressFile(const std::string& directory);
  ~MasterAddressFile();
  MasterAddressFile(const MasterAddressFile&) = delete;

  // Replaces the file. Only logs an error: no job depends on it.
  void Write(const std::string& address) const;

 private:
  const std::string path_;
};

}  // namespace catchment

#endif  // CATCHMENT_COMMON_CHECKPOINT_MASTER_ADDRESS_H_
