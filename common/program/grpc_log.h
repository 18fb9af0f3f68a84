// The messages of gRPC in the log of a daemon. gRPC writes a line for each handshake that fails, so that a
// stranger could fill the disk with them.
#ifndef CATCHMENT_COMMON_PROGRAM_GRPC_LOG_H_
#define CATCHMENT_COMMON_PROGRAM_GRPC_LOG_H_

namespace catchment {

// Writes gRPC's messages to glog from then on, a few a second, and the number of those that are left out. A
// line has at most some hundred bytes, without control characters. Call it once, after glog is initialized.
void LimitGrpcLog();

}  // namespace catchment

#endif  // CATCHMENT_COMMON_PROGRAM_GRPC_LOG_H_
