// summary.json and metrics.jsonl of finished runs, which comparisons read.
//
// Input: the summary up to a byte 0, the metrics.
#include <glog/logging.h>

#include <cmath>

#include "cli/report/run_result.h"
#include "nlohmann/json.hpp"
#include "tests/fuzz/input.h"

namespace catchment {
namespace {

void Test(absl::string_view input) {
  const size_t end = std::min(input.find('\0'), input.size());
  const nlohmann::json summary =
      nlohmann::json::parse(std::string(input.substr(0, end)), nullptr, /*allow_exceptions=*/false);
  if (!summary.is_object()) return;
  RunResult result;
  ReadResult(summary, std::string(end < input.size() ? input.substr(end + 1) : ""), &result);
  CHECK(!std::isnan(BestAccuracy(result)));
  FirstReached(result.scores, 0.5);
}

}  // namespace
}  // namespace catchment

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  catchment::Test({reinterpret_cast<const char*>(data), size});
  return 0;
}
