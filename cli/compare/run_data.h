// The data that runs were trained on, by which results of old data are told from those of new ones.
#ifndef CATCHMENT_CLI_COMPARE_RUN_DATA_H_
#define CATCHMENT_CLI_COMPARE_RUN_DATA_H_

#include <cstdint>
#include <string>

#include "nlohmann/json.hpp"

namespace catchment {

// The facts that the workers of a run have reported; 0 or empty: unknown.
struct RunData {
  uint64_t train_samples = 0;
  uint64_t test_samples = 0;
  std::string checksum;  // of all of them (worker/data/dataset.h)
};

// Returns the data of the run with this summary.json.
RunData DataOf(const nlohmann::json& summary);

// Returns "300 training samples, which were 600"; empty if nothing that is known of both differs.
std::string DescribeDifference(const RunData& before, const RunData& now);

// Returns the data as the record of a comparison has them, and reads them from there.
nlohmann::ordered_json ToJson(const RunData& data);
RunData DataFromJson(const nlohmann::ordered_json& record);

}  // namespace catchment

#endif  // CATCHMENT_CLI_COMPARE_RUN_DATA_H_
