// The flags of catchment_server.
#ifndef CATCHMENT_SERVER_PROCESS_SERVER_FLAGS_H_
#define CATCHMENT_SERVER_PROCESS_SERVER_FLAGS_H_

#include <string>

#include "common/net/rpc.h"
#include "common/program/command_line.h"

namespace catchment {

struct ServerFlags {
  std::string job;
  int index = 0;
  std::string servers = "127.0.0.1:0";
  std::string out;
  std::string checkpoint_dir;
  std::string control_log;
  int threads = 0;
  int apply_threads = -1;
  bool pin_threads = false;
  bool no_shared_memory = false;
  bool listen_everywhere = false;
  int evaluators = 0;
  AutoSwitch resume = AutoSwitch::kOff;
  TlsFiles tls;
  bool insecure = false;
};

// Returns the command line that fills in `flags`, which must outlive it.
CommandLine MakeCommandLine(ServerFlags* flags);

}  // namespace catchment

#endif  // CATCHMENT_SERVER_PROCESS_SERVER_FLAGS_H_
