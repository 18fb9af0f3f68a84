// The flags of a command that talks to a job's servers.
#ifndef CATCHMENT_CLI_TLS_FLAGS_H_
#define CATCHMENT_CLI_TLS_FLAGS_H_

#include "cli/flags.h"
#include "common/rpc.h"

namespace catchment {

inline void AddTlsFlags(TlsFiles* tls, FlagSet* flags) {
  flags->AddString("tls_ca", "FILE", &tls->ca, "PEM file of the authority (mutual TLS).");
  flags->AddString("tls_cert", "FILE", &tls->cert, "PEM file of this side's certificate.");
  flags->AddString("tls_key", "FILE", &tls->key, "PEM file of its key.");
}

}  // namespace catchment

#endif  // CATCHMENT_CLI_TLS_FLAGS_H_
