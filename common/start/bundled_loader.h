// How a program of a bundle (deploy/bundle.sh) starts with the C library of the bundle, wherever it is
// unpacked and whichever C library the machine has. An executable can name its loader by an absolute path
// only, so the programs of a bundle name none: the Linux kernel then starts them as it starts a static
// program, at their entry point. That code maps lib/ld-linux-x86-64.so.2 of the bundle into its own process,
// tells it what the kernel would have told it, and continues there; the loader finds the libraries by the run
// path of the program. No other program is executed, so that /proc/self/exe, the command line, the name of
// the process, and its core dumps are those of the program.
#ifndef CATCHMENT_COMMON_START_BUNDLED_LOADER_H_
#define CATCHMENT_COMMON_START_BUNDLED_LOADER_H_

#include <elf.h>
#include <stdint.h>

namespace catchment::start {

// The entries of the auxiliary vector that matter here, to be read and written in place.
struct Auxiliary {
  Elf64_auxv_t* base = nullptr;             // AT_BASE: where the loader is, 0 without one
  Elf64_auxv_t* program_headers = nullptr;  // AT_PHDR
  uint64_t program_header_count = 0;        // AT_PHNUM
};

// Maps the loader of the bundle, and changes `auxiliary` to what the kernel says with a loader. Returns the
// loader's entry point. Ends the process with exit code 1 and one line where the bundle is not complete.
uint64_t MapBundledLoader(const char* program, const Auxiliary& auxiliary);

}  // namespace catchment::start

#endif  // CATCHMENT_COMMON_START_BUNDLED_LOADER_H_
