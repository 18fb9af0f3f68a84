#include "common/checkpoint/master_address.h"

#include <glog/logging.h>
#include <unistd.h>

#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "common/base/file_access.h"
#include "common/base/status_macros.h"
#include "common/checkpoint/atomic_file.h"

namespace catchment {
namespace {

std::string PathIn(const std::string& directory) { return absl::StrCat(directory, "/master.address"); }

}  // namespace

absl::StatusOr<std::string> ReadMasterAddress(const std::string& directory) {
  ASSIGN_OR_RETURN(std::string text, ReadFile(PathIn(directory)));
  return std::string(absl::StripSuffix(text, "\n"));
}

MasterAddressFile::MasterAddressFile(const std::string& directory)
    : path_(directory.empty() ? "" : PathIn(directory)) {}

MasterAddressFile::~MasterAddressFile() {
  if (!path_.empty()) unlink(path_.c_str());
}

void MasterAddressFile::Write(const std::string& address) const {
  if (path_.empty()) return;
  const absl::Status status = WriteAtomically(path_, absl::StrCat(address, "\n"));
  LOG_IF(ERROR, !status.ok()) << "cannot write the master's address: " << status.message();
}

}  // namespace catchment
