#ifndef CATCHMENT_CLI_DOCTOR_DOCTOR_H_
#define CATCHMENT_CLI_DOCTOR_DOCTOR_H_

#include <string>
#include <vector>

#include "cli/base/terminal.h"
#include "worker/data/data_paths.h"

namespace catchment {

// `catchment doctor [MASTER]`: checks whether this machine can run the daemons of a job. Exit code 0: no
// check has failed; 1: some have.
int RunDoctor(const std::vector<std::string>& args, const DataPaths& paths, const Streams& streams);

}  // namespace catchment

#endif  // CATCHMENT_CLI_DOCTOR_DOCTOR_H_
