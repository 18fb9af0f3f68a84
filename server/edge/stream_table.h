// The streams that a service has open, so that they are also examined when nothing arrives over them.
#ifndef CATCHMENT_SERVER_EDGE_STREAM_TABLE_H_
#define CATCHMENT_SERVER_EDGE_STREAM_TABLE_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "common/base/mutex.h"

namespace catchment {

// Threads: safe.
class ServedStream {
 public:
  virtual ~ServedStream() = default;
  // Ends the stream if its peer violates the protocol's limits. Called about once a second.
  virtual void Sweep(double now) = 0;
  // Ends the stream because the peer has opened another one.
  virtual void Replace() = 0;
};

// Threads: safe; streams are called without its lock.
class StreamTable {
 public:
  using Owner = std::pair<uint32_t, uint64_t>;  // worker, incarnation

  // Adds the stream of an owner, which replaces its former one. Returns the stream's number, which is higher
  // than those of earlier streams.
  uint64_t Add(const Owner& owner, std::shared_ptr<ServedStream> stream);
  // Adds a stream without an owner. Returns false, and does not add it, if there are `most` already.
  bool AddUpTo(size_t most, std::shared_ptr<ServedStream> stream);
  // Removes a stream that has ended.
  void Remove(const ServedStream* stream);

  void Sweep(double now);
  size_t size() const;

 private:
  struct Entry {
    Owner owner;
    std::shared_ptr<ServedStream> stream;
  };

  mutable Mutex mu_;
  std::vector<Entry> entries_ ABSL_GUARDED_BY(mu_);
  uint64_t added_ ABSL_GUARDED_BY(mu_) = 0;  // streams that have owners
};

}  // namespace catchment

#endif  // CATCHMENT_SERVER_EDGE_STREAM_TABLE_H_
