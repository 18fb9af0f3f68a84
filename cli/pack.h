// `catchment pack JOB --out=DIR`: writes a job's data as packed shards (worker/data/table/formats.h).
#ifndef CATCHMENT_CLI_PACK_H_
#define CATCHMENT_CLI_PACK_H_

#include <ostream>
#include <string>
#include <vector>

#include "worker/data/data_paths.h"

namespace catchment {

// Returns the exit code: 0, 1 for a job, data or a folder that does not do, 2 for a wrong command line. `out`
// gets the `data` to put into the job; errors go to `err`.
int RunPack(const std::vector<std::string>& args, const DataPaths& paths, std::ostream* out,
            std::ostream* err);

}  // namespace catchment

#endif  // CATCHMENT_CLI_PACK_H_
