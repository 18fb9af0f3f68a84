// From the names in data.table to the files that they stand for.
#ifndef CATCHMENT_WORKER_DATA_TABLE_FILES_H_
#define CATCHMENT_WORKER_DATA_TABLE_FILES_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "proto/job.pb.h"
#include "worker/data/data_paths.h"

namespace catchment {

enum class TableFormat { kCsv, kNpy, kHdf5, kShard };

struct TableFiles {
  TableFormat format = TableFormat::kCsv;
  std::vector<std::string> paths;
};

// `names` are data.table.train or test, which `field` names in errors. Wildcards give their files in
// alphabetical order. A list (.txt) has a name a line, with or without wildcards, which begins where names in
// the job begin, not where the list is: MPI-Learn's train_list.txt, that is. No names: no files. Errors:
// NotFound with the places where a name was looked for; InvalidArgument for an empty list, a list in a list,
// an unknown ending, or files of several kinds.
absl::StatusOr<TableFiles> FindTableFiles(const google::protobuf::RepeatedPtrField<std::string>& names,
                                          const std::string& field, const std::string& directory,
                                          const DataPaths& paths);

}  // namespace catchment

#endif  // CATCHMENT_WORKER_DATA_TABLE_FILES_H_
