// Job files and overrides of the command line, through the checks. What is accepted must be read again from
// its own text.
//
// Input: a job file; after a byte 0, overrides, one on each line.
#include "common/job/job_text.h"

#include <glog/logging.h>

#include <string>
#include <vector>

#include "absl/strings/str_split.h"
#include "common/job/text_format.h"
#include "common/job/validate.h"
#include "tests/fuzz/input.h"

namespace catchment {
namespace {

void Test(absl::string_view input) {
  const size_t end = std::min(input.find('\0'), input.size());
  v1::Job job;
  if (!ParseText(std::string(input.substr(0, end)), "input", "", &job).ok()) return;
  if (end < input.size()) {
    const std::vector<std::string> overrides = absl::StrSplit(input.substr(end + 1), '\n', absl::SkipEmpty());
    if (!ApplyOverrides(overrides, &job).ok()) return;
  }
  const absl::StatusOr<v1::Job> valid = FillDefaultsAndValidate(job);
  if (!valid.ok()) {
    CHECK(!valid.status().message().empty());
    return;
  }
  const absl::StatusOr<v1::Job> again = FillDefaultsAndValidate(*valid);
  CHECK(again.ok()) << again.status();
  CHECK_EQ(JobText(*again), JobText(*valid));
  v1::Job read;
  const absl::Status status = ParseText(JobText(*valid), "its own text", "", &read);
  CHECK(status.ok()) << status;
  CHECK_EQ(JobFingerprint(read), JobFingerprint(*valid));
}

}  // namespace
}  // namespace catchment

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  catchment::Test({reinterpret_cast<const char*>(data), size});
  return 0;
}
