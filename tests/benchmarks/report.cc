#include "tests/benchmarks/report.h"

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iostream>

#include "absl/strings/str_cat.h"

namespace catchment {

double Median(std::vector<double> values) {
  const size_t middle = values.size() / 2;
  std::nth_element(values.begin(), values.begin() + middle, values.end());
  if (values.size() % 2 == 1) return values[middle];
  return (values[middle] + *std::max_element(values.begin(), values.begin() + middle)) / 2;
}

absl::Status WriteRows(const std::vector<nlohmann::ordered_json>& rows, const std::string& path) {
  if (path.empty()) return absl::OkStatus();
  // `bazel run` starts programs in another directory, and passes the one where it was called in this
  // variable.
  const char* caller = std::getenv("BUILD_WORKING_DIRECTORY");
  const std::filesystem::path file = std::filesystem::path(caller == nullptr ? "" : caller) / path;
  std::ofstream out(file);
  out << "[";
  for (size_t i = 0; i < rows.size(); ++i) out << (i == 0 ? "\n" : ",\n") << rows[i].dump();
  out << "\n]\n";
  out.close();
  if (out) return absl::OkStatus();
  return absl::UnavailableError(
      absl::StrCat("cannot write ", file.string(), "; give --json a folder that exists"));
}

int RunBenchmark(const std::string& name, const std::string& usage, const FlagSet& flags,
                 const std::vector<std::string>& args, const std::function<absl::Status()>& run) {
  CommandLine line{.name = name, .usage = usage, .flags = flags};
  return RunCommandLine(&line, args, &std::cout, &std::cerr, [&]() -> absl::StatusOr<int> {
    absl::Status status = run();
    if (status.ok()) return 0;
    if (!absl::IsInvalidArgument(status)) return status;
    std::cerr << name << ": " << status.message() << std::endl;
    return kExitUsage;
  });
}

}  // namespace catchment
