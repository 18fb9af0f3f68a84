// The environment that this process gives to programs of the user.
#ifndef CATCHMENT_COMMON_BASE_ENVIRONMENT_H_
#define CATCHMENT_COMMON_BASE_ENVIRONMENT_H_

#include <string>
#include <vector>

namespace catchment {

// Returns the entries "NAME=VALUE" of the environment. Variables of gRPC (GRPC_...) are as they were when the
// process was started: its own settings are not meant for the gRPC of other programs.
std::vector<std::string> InheritedEnvironment();

}  // namespace catchment

#endif  // CATCHMENT_COMMON_BASE_ENVIRONMENT_H_
