#include "common/checkpoint/run_record.h"

#include <google/protobuf/text_format.h>

#include <memory>

#include "common/checkpoint/atomic_file.h"
#include "common/job/text_format.h"
#include "glog/logging.h"

namespace catchment {
namespace {

std::string RecordPath(const std::string& dir) { return dir + "/run.textproto"; }

}  // namespace

absl::Status WriteRunRecord(const std::string& dir, const v1::RunRecord& record) {
  std::string text;
  CHECK(google::protobuf::TextFormat::PrintToString(record, &text));
  if (absl::Status status = CreateDirectories(dir); !status.ok()) return status;
  return WriteAtomically(RecordPath(dir), text);
}

absl::StatusOr<v1::RunRecord> ReadRunRecord(const std::string& dir) {
  const std::string path = RecordPath(dir);
  const absl::StatusOr<std::string> text = ReadTextFile(path);
  if (!text.ok()) return text.status();
  v1::RunRecord record;
  if (absl::Status status = ParseText(*text, path, "", &record); !status.ok()) return status;
  return record;
}

}  // namespace catchment
