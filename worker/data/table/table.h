// Reads the samples of a user's files of rows (data.table).
#ifndef CATCHMENT_WORKER_DATA_TABLE_TABLE_H_
#define CATCHMENT_WORKER_DATA_TABLE_TABLE_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "proto/job.pb.h"
#include "worker/data/data_paths.h"
#include "worker/data/dataset.h"

namespace catchment {

// Loads the table of `job`, which is complete and valid (common/job/validate.h). Without data.table.test the
// test set has no samples. Errors: those of files.h and formats.h, each naming file and row; InvalidArgument
// for fewer training rows than batch_size, or more than 2^32 - 1.
absl::StatusOr<DataSets> LoadTable(const v1::Job& job, const DataPaths& paths);

// Returns the absolute paths of the training or test set's files if they are packed shards, which are mapped
// into memory; none for other formats, which LoadTable reads into memory. Errors: those of files.h.
absl::StatusOr<std::vector<std::string>> ListMappedFiles(const v1::FileDataset& table, bool test,
                                                         const DataPaths& paths);

}  // namespace catchment

#endif  // CATCHMENT_WORKER_DATA_TABLE_TABLE_H_
