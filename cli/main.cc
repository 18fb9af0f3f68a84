// The `catchment` command. Each subcommand has its own files: cli/train.h, cli/validate.h,
// cli/compare/compare.h, cli/health.h.
#include <iostream>
#include <string>
#include <vector>

#include "cli/compare/compare.h"
#include "cli/health.h"
#include "cli/train.h"
#include "cli/validate.h"
#include "common/nearest_name.h"
#include "common/version.h"

namespace catchment {
namespace {

constexpr char kHelp[] =
    R"(catchment: trains neural networks with asynchronous or synchronous SGD on parameter servers

  catchment validate JOB              checks a job file and explains what it will do
  catchment train JOB --out=DIR       trains it with servers and workers on this machine
  catchment compare JOB --algorithms=A,B,... --out=DIR
                                      trains it with several algorithms and reports which is best
  catchment health HOST:PORT          asks a server whether it serves, for probes
  catchment SUBCOMMAND --help         examples and flags
  catchment --version

A first run, without any data at hand:
  catchment train examples/mnist_mlp.textproto --set data.drawn_digits={} --workers=2 --out=out

For jobs over several machines start catchment_server and catchment_worker by hand: see README.md.
)";

int Unknown(const std::string& word) {
  const std::string nearest = NearestName(word, {"train", "validate", "compare", "health"});
  std::cerr << "catchment: no subcommand " << word
            << (nearest.empty() ? "; `catchment --help` lists them" : "; is it `catchment " + nearest + "`?")
            << '\n';
  return 2;
}

int Run(const std::vector<std::string>& args) {
  if (args.empty()) {
    std::cerr << kHelp;
    return 2;
  }
  const std::string& word = args[0];
  const std::vector<std::string> rest(args.begin() + 1, args.end());
  if (word == "train") return TrainMain(rest);
  if (word == "compare") return CompareMain(rest);
  if (word == "validate") return RunValidate(rest, &std::cout, &std::cerr);
  if (word == "health") return RunHealth(rest, &std::cout, &std::cerr);
  if (word == "--version" || word == "version") {
    std::cout << DescribeVersion("catchment");
    return 0;
  }
  if (word != "--help" && word != "-h" && word != "help") return Unknown(word);
  if (!rest.empty() && rest[0] == "train") return TrainMain({"--help"});
  if (!rest.empty() && rest[0] == "compare") return CompareMain({"--help"});
  if (!rest.empty() && rest[0] == "validate") return RunValidate({"--help"}, &std::cout, &std::cerr);
  if (!rest.empty() && rest[0] == "health") return RunHealth({"--help"}, &std::cout, &std::cerr);
  std::cout << kHelp;
  return 0;
}

}  // namespace
}  // namespace catchment

int main(int argc, char** argv) { return catchment::Run(std::vector<std::string>(argv + 1, argv + argc)); }
