// Starts a program of a bundle (deploy/bundle.sh) with the C library of the bundle, wherever it is unpacked
// and whichever C library the machine has. An executable can name its loader only by an absolute path, so the
// programs of a bundle name none, and the Linux kernel starts them at their entry point, like a static
// program. That code maps lib/ld-linux-x86-64.so.2 of the bundle into its own process, passes it the
// information that the kernel would have passed, and continues there; the loader finds the libraries by the
// run path of the program. No other program is executed, so that /proc/self/exe, the command line, the
// process name and core dumps are those of the program.
#ifndef CATCHMENT_COMMON_START_BUNDLED_LOADER_H_
#define CATCHMENT_COMMON_START_BUNDLED_LOADER_H_

#include <elf.h>
#include <stdint.h>

namespace catchment::start {

// The entries of the auxiliary vector that are read and written in place.
struct Auxiliary {
  Elf64_auxv_t* base = nullptr;             // AT_BASE: the address of the loader, 0 without one
  Elf64_auxv_t* program_headers = nullptr;  // AT_PHDR
  uint64_t program_header_count = 0;        // AT_PHNUM
};

// Maps the loader of the bundle, and changes `auxiliary` to the values that the kernel sets with a loader.
// Returns the loader's entry point. If the bundle is not complete, ends the process with exit code 1 and one
// line.
uint64_t MapBundledLoader(const char* program, const Auxiliary& auxiliary);

}  // namespace catchment::start

#endif  // CATCHMENT_COMMON_START_BUNDLED_LOADER_H_
