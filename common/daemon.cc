#include "common/daemon.h"

#include <gflags/gflags.h>
#include <glog/logging.h>

#include <algorithm>
#include <csignal>
#include <filesystem>
#include <iostream>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/open_files.h"
#include "common/version.h"

DEFINE_string(tls_ca, "",
              "PEM file of the authority that has issued the certificates of both sides (mutual TLS).");
DEFINE_string(tls_cert, "", "PEM file of this daemon's certificate.");
DEFINE_string(tls_key, "", "PEM file of this daemon's key.");

namespace catchment {
namespace {

bool IsOurs(const gflags::CommandLineFlagInfo& flag) {
  return flag.filename.ends_with("/main.cc") || flag.filename == __FILE__;
}

// Prints the help. That of gflags would also list the flags of all libraries.
void PrintHelp(const std::string& usage) {
  std::cout << usage << "\n\nFlags:\n";
  std::vector<gflags::CommandLineFlagInfo> flags;
  gflags::GetAllFlags(&flags);
  for (const gflags::CommandLineFlagInfo& flag : flags) {
    if (!IsOurs(flag)) continue;
    std::cout << "  --" << flag.name << (flag.type == "bool" ? "" : absl::StrCat("=", flag.type));
    if (!flag.default_value.empty()) std::cout << "  (default " << flag.default_value << ")";
    std::cout << "\n      " << flag.description << "\n";
  }
}

}  // namespace

TlsFiles TlsFilesFromFlags() { return {FLAGS_tls_ca, FLAGS_tls_cert, FLAGS_tls_key}; }

int RunDaemon(int argc, char** argv, const std::string& usage, const std::function<absl::Status()>& run) {
  TuneProcess();
  RaiseOpenFiles();
  BlockSignals();
  // Writing a file beyond the size limit then returns an error instead of ending the process.
  std::signal(SIGXFSZ, SIG_IGN);
  // Writing the log to a pipe whose reader has ended then returns an error instead of ending the process.
  std::signal(SIGPIPE, SIG_IGN);
  const std::string name = std::filesystem::path(argv[0]).filename();
  if (std::find(argv, argv + argc, std::string("--help")) != argv + argc) {
    PrintHelp(absl::StrCat(name, " ", usage));
    return 0;
  }
  if (std::find(argv, argv + argc, std::string("--version")) != argv + argc) {
    std::cout << DescribeVersion(name);
    return 0;
  }
  google::InitGoogleLogging(argv[0]);
  FLAGS_logtostderr = true;
  gflags::SetUsageMessage(usage);
  gflags::ParseCommandLineFlags(&argc, &argv, true);
  const absl::Status status = argc > 1 ? absl::InvalidArgumentError(absl::StrCat(
                                             "accepts only flags, but got '", argv[1], "'; see --help"))
                                       : run();
  if (!status.ok()) std::cerr << name << ": " << status.message() << std::endl;
  return status.ok() ? 0 : 1;
}

}  // namespace catchment
