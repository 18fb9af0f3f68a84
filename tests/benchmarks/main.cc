#include <glog/logging.h>

#include "common/net/rpc.h"
#include "tests/benchmarks/benchmark.h"

int main(int argc, char** argv) {
  google::InitGoogleLogging(argv[0]);
  FLAGS_logtostderr = true;
  catchment::TuneProcess();
  return catchment::RunBenchmarks({argv + 1, argv + argc});
}
