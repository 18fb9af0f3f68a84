// `catchment validate JOB`: checks a job and explains it.
#ifndef CATCHMENT_CLI_VALIDATE_H_
#define CATCHMENT_CLI_VALIDATE_H_

#include <ostream>
#include <string>
#include <vector>

namespace catchment {

std::string ValidateHelp();

// Returns the exit code: 0 for a valid job, 1 for another one, 2 for a wrong command line. Errors go to
// `err`.
int RunValidate(const std::vector<std::string>& args, std::ostream* out, std::ostream* err);

}  // namespace catchment

#endif  // CATCHMENT_CLI_VALIDATE_H_
