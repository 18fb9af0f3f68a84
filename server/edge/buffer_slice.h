// Payloads as gRPC slices, without copying them.
#ifndef CATCHMENT_SERVER_EDGE_BUFFER_SLICE_H_
#define CATCHMENT_SERVER_EDGE_BUFFER_SLICE_H_

#include <grpcpp/support/slice.h>

#include <utility>

#include "server/shard/buffer_pool.h"

namespace catchment {

// Returns a slice that owns the buffer, which returns to its pool when gRPC has sent it. Null: an empty
// slice.
inline grpc::Slice SliceOf(BufferPtr payload) {
  if (payload == nullptr) return grpc::Slice();
  float* const data = payload->data();
  const int64_t bytes = payload->bytes();
  return grpc::Slice(
      data, bytes, [](void* buffer) { BufferPtr::Adopt(static_cast<FloatBuffer*>(buffer)); },
      std::move(payload).Release());
}

}  // namespace catchment

#endif  // CATCHMENT_SERVER_EDGE_BUFFER_SLICE_H_
