#include "common/checkpoint/run_record.h"

#include <google/protobuf/text_format.h>
#include <unistd.h>

#include <cerrno>

#include "absl/strings/str_cat.h"
#include "common/base/atomic_file.h"
#include "common/base/status_macros.h"
#include "common/job/text_format.h"
#include "glog/logging.h"

namespace catchment {
namespace {

std::string RecordPath(const std::string& dir) { return dir + "/run.textproto"; }

}  // namespace

absl::Status WriteRunRecord(const std::string& dir, const v1::RunRecord& record) {
  std::string text;
  CHECK(google::protobuf::TextFormat::PrintToString(record, &text));
  RETURN_IF_ERROR(CreateDirectories(dir));
  return WriteAtomically(RecordPath(dir), text);
}

absl::Status DeleteRunRecord(const std::string& dir) {
  if (unlink(RecordPath(dir).c_str()) == 0) return absl::OkStatus();
  return absl::ErrnoToStatus(errno, absl::StrCat("cannot delete ", RecordPath(dir)));
}

absl::StatusOr<v1::RunRecord> ReadRunRecord(const std::string& dir) {
  const std::string path = RecordPath(dir);
  ASSIGN_OR_RETURN(const std::string text, ReadTextFile(path));
  v1::RunRecord record;
  RETURN_IF_ERROR(ParseText(text, path, "", &record));
  return record;
}

}  // namespace catchment
