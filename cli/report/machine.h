// The machine that a comparison ran on.
#ifndef CATCHMENT_CLI_REPORT_MACHINE_H_
#define CATCHMENT_CLI_REPORT_MACHINE_H_

#include <string>

namespace catchment {

struct Machine {
  std::string processor;  // "AMD EPYC 7B13"; "unknown" where the kernel does not say
  int processors = 1;     // that this process may use
  double memory_bytes = 0;
  std::string system;  // "Debian GNU/Linux 12 (bookworm), Linux 6.1.0"
};

Machine ThisMachine();

}  // namespace catchment

#endif  // CATCHMENT_CLI_REPORT_MACHINE_H_
