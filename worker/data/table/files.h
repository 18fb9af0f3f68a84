// Finds the files that the names in data.table mean.
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

// Returns the files of `names`, which are data.table.train or test; `field` is the field's name for errors.
// The files of a wildcard are in alphabetical order. A list (.txt), such as MPI-Learn's train_list.txt, has
// one name on each line, with or without wildcards, relative to the same directory as names in the job.
// Without names there are no files. Errors: NotFound with the places that were searched for a name;
// InvalidArgument for an empty list, a list in a list, an unknown ending, or files of several formats.
absl::StatusOr<TableFiles> FindTableFiles(const google::protobuf::RepeatedPtrField<std::string>& names,
                                          const std::string& field, const std::string& directory,
                                          const DataPaths& paths);

}  // namespace catchment

#endif  // CATCHMENT_WORKER_DATA_TABLE_FILES_H_
