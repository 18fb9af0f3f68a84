// Writes a folder of JPEG images for benchmarks.
#include <cstdlib>
#include <iostream>
#include <string>
#include <vector>

#include "tests/worker/data/jpeg_files.h"

int main(int argc, char** argv) {
  const std::vector<std::string> args(argv + 1, argv + argc);
  if (args.size() != 5) {
    std::cerr << "usage: write_images DIRECTORY CLASSES IMAGES_OF_A_CLASS SHORTEST_SIDE LONGEST_SIDE\n";
    return 2;
  }
  const auto number = [&args](size_t i) { return std::atoi(args[i].c_str()); };
  catchment::WriteImageFolder(
      args[0], {.classes = number(1), .images = number(2), .min_side = number(3), .max_side = number(4)});
  return 0;
}
