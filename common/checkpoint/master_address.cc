#include "common/checkpoint/master_address.h"

#include <glog/logging.h>
#include <unistd.h>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "common/base/atomic_file.h"
#include "common/base/file_access.h"
#include "common/base/random.h"
#include "common/base/status_macros.h"

namespace catchment {
namespace {

std::string AddressPath(const std::string& directory) { return absl::StrCat(directory, "/master.address"); }
std::string RunPath(const std::string& directory) { return absl::StrCat(directory, "/master.run"); }

absl::StatusOr<std::string> ReadLine(const std::string& path) {
  ASSIGN_OR_RETURN(std::string text, ReadFile(path));
  return std::string(absl::StripSuffix(text, "\n"));
}

}  // namespace

absl::StatusOr<MasterPlace> ReadMasterPlace(const std::string& directory) {
  MasterPlace place;
  ASSIGN_OR_RETURN(place.address, ReadLine(AddressPath(directory)));
  const absl::StatusOr<std::string> run = ReadLine(RunPath(directory));
  if (run.ok() && !absl::SimpleHexAtoi(*run, &place.run_id)) {
    return absl::InvalidArgumentError(absl::StrCat(RunPath(directory), ": is not the id of a run"));
  }
  return place;
}

absl::Status CheckSameRun(const std::string& directory, const MasterPlace& place, uint64_t run_id,
                          const std::string& job) {
  if (place.run_id == 0 || place.run_id == run_id) return absl::OkStatus();
  return absl::FailedPreconditionError(absl::StrCat(
      "the master at ", place.address, " is that of another run (", FormatId(run_id), ", job \"", job,
      "\") than the one of ", directory, " (", FormatId(place.run_id), "), which has ended without removing ",
      AddressPath(directory), ": give the --out or the HOST:PORT of the run that you mean"));
}

MasterAddressFile::~MasterAddressFile() {
  if (directory_.empty()) return;
  unlink(AddressPath(directory_).c_str());
  unlink(RunPath(directory_).c_str());
}

void MasterAddressFile::WriteRun(uint64_t run_id) const { Replace(RunPath(directory_), FormatId(run_id)); }

void MasterAddressFile::WriteAddress(const std::string& address) const {
  Replace(AddressPath(directory_), address);
}

void MasterAddressFile::Replace(const std::string& path, const std::string& line) const {
  if (directory_.empty()) return;
  const absl::Status status = WriteAtomically(path, line + "\n");
  LOG_IF(ERROR, !status.ok()) << "cannot write the master's address: " << status.message();
}

}  // namespace catchment
