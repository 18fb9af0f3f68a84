#include "cli/compare/run_data.h"

#include <cmath>

#include "absl/strings/str_cat.h"
#include "cli/report/run_result.h"
#include "common/base/text.h"

namespace catchment {
namespace {

template <typename Json>
double NumberIn(const Json& object, const char* key) {
  const auto found = object.find(key);
  return found != object.end() && found->is_number() ? found->template get<double>() : 0;
}

template <typename Json>
RunData ReadFrom(const Json& object) {
  RunData data;
  data.train_samples = static_cast<uint64_t>(NumberIn(object, "train_samples"));
  data.test_samples = static_cast<uint64_t>(NumberIn(object, "test_samples"));
  const auto checksum = object.find("data_checksum");
  if (checksum != object.end() && checksum->is_string())
    data.checksum = checksum->template get<std::string>();
  return data;
}

bool Differ(uint64_t a, uint64_t b) { return a > 0 && b > 0 && a != b; }

}  // namespace

RunData DataOf(const nlohmann::json& summary) {
  RunData data = ReadFrom(summary);
  // Earlier versions have only counted epochs.
  const double epochs = NumberIn(summary, "epochs");
  if (data.train_samples == 0 && epochs > 0)
    data.train_samples = static_cast<uint64_t>(std::llround(NumberIn(summary, "samples") / epochs));
  return data;
}

std::string DescribeDifference(const RunData& before, const RunData& now) {
  if (Differ(before.train_samples, now.train_samples)) {
    return absl::StrCat(Count(now.train_samples), " training samples, which were ",
                        Count(before.train_samples));
  }
  if (Differ(before.test_samples, now.test_samples))
    return absl::StrCat(Count(now.test_samples), " test samples, which were ", Count(before.test_samples));
  const bool differ = !before.checksum.empty() && !now.checksum.empty() && before.checksum != now.checksum;
  return differ ? "as many samples, with other contents" : "";
}

nlohmann::ordered_json ToJson(const RunData& data) {
  return {{"train_samples", data.train_samples},
          {"test_samples", data.test_samples},
          {"data_checksum", data.checksum}};
}

RunData DataFromJson(const nlohmann::ordered_json& record) {
  return record.is_object() ? ReadFrom(record) : RunData();
}

}  // namespace catchment
