// Makes the calls of a control log again: bazel run //tests/server/control:replay -- FILE
#include <cstdio>

#include "tests/server/control/replay.h"

int main(int argc, char** argv) {
  if (argc != 2) {
    std::fprintf(stderr, "usage: replay FILE\n");
    return 2;
  }
  const std::string differs = catchment::ReplayFile(argv[1]);
  if (differs.empty()) return 0;
  std::fprintf(stderr, "%s\n", differs.c_str());
  return 1;
}
