// The flags and environment variables that secure the connections of a program.
#ifndef CATCHMENT_COMMON_PROGRAM_SECURITY_FLAGS_H_
#define CATCHMENT_COMMON_PROGRAM_SECURITY_FLAGS_H_

#include "common/net/rpc.h"
#include "common/program/command_line.h"

namespace catchment {

// Declares --certs, --tls_ca, --tls_cert, --tls_key and --insecure. Their defaults are the environment's
// CATCHMENT_CERTS, CATCHMENT_TLS_CA, CATCHMENT_TLS_CERT, CATCHMENT_TLS_KEY and CATCHMENT_INSECURE (1).
// --certs replaces the values of the three others that came before it.
void AddSecurityFlags(TlsFiles* tls, bool* insecure, FlagSet* flags);
// Removes these variables from the environment, for child processes with connections of their own.
void ClearSecurityEnvironment();

}  // namespace catchment

#endif  // CATCHMENT_COMMON_PROGRAM_SECURITY_FLAGS_H_
