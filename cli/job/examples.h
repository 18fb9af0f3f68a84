// The files of examples/ and the script that fetches MNIST, which the program contains, so that an
// installation has them wherever it is. cli/BUILD generates the definition.
#ifndef CATCHMENT_CLI_JOB_EXAMPLES_H_
#define CATCHMENT_CLI_JOB_EXAMPLES_H_

#include <vector>

#include "absl/strings/string_view.h"

namespace catchment {

struct ExampleFile {
  const char* path;  // relative to the directory of examples
  absl::string_view content;
};

// Returns all of them, ordered by path.
const std::vector<ExampleFile>& ExampleFiles();

}  // namespace catchment

#endif  // CATCHMENT_CLI_JOB_EXAMPLES_H_
