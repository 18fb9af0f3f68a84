// Facts of an accepted connection's socket. Threads: all functions may be called from any thread.
#ifndef CATCHMENT_SERVER_EDGE_ACCEPTED_SOCKET_H_
#define CATCHMENT_SERVER_EDGE_ACCEPTED_SOCKET_H_

#include <cstdint>
#include <optional>
#include <string>

#include "server/edge/peer_account.h"

namespace catchment {

// Returns the bytes that this process has read from the connection, and those of its own that have arrived
// at the other end; nullopt if the file is not a TCP socket.
std::optional<PeerAccount::Traffic> TrafficOf(int fd);

// Returns the kernel's number of the socket, which no other socket has had since the machine was started; 0
// if the file is not a socket.
uint64_t CookieOf(int fd);

// Returns the other end of a connection as gRPC names it; empty if there is none.
std::string PeerOf(int fd);

// Ends a connection at once, with a reset. Bytes that have arrived are discarded: gRPC might need seconds for
// them.
void Reset(int fd);

}  // namespace catchment

#endif  // CATCHMENT_SERVER_EDGE_ACCEPTED_SOCKET_H_
