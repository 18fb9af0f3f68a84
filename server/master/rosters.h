// Whose contributions make which versions of the center, as the shards are told: see ShardCommand in
// proto/wire.proto. Every change makes a new generation; a lease is granted only when all shards have
// acknowledged the generation that its member came in with.
//
// Asynchronous mode: one roster from version 0, which members join at once. Synchronous mode: one for each
// plan.
//
// Threads: not thread-safe.
#ifndef CATCHMENT_SERVER_MASTER_ROSTERS_H_
#define CATCHMENT_SERVER_MASTER_ROSTERS_H_

#include <cstdint>
#include <optional>
#include <vector>

#include "proto/wire.pb.h"

namespace catchment {

class Rosters {
 public:
  struct Entry {
    uint32_t worker = 0;
    uint64_t incarnation = 0;
    uint64_t since = 0;  // generation
  };

  // Versions below `first_version` are made already: with one above 0 there is an empty roster for them.
  explicit Rosters(uint64_t first_version);

  // Asynchronous mode: a member comes in.
  void Join(uint32_t worker, uint64_t incarnation);

  // Synchronous mode: a roster for the versions from this one on, unless one begins there or later. Rosters
  // that all shards have passed, being at `passed` or further, are dropped.
  void Begin(uint64_t from_version, const std::vector<Entry>& members, uint64_t passed);

  // From all rosters.
  void Remove(uint64_t incarnation);

  // The generation since which a member is in the roster that makes the version; nothing when it is not.
  std::optional<uint64_t> Since(uint64_t version, uint64_t incarnation) const;

  uint64_t generation() const { return generation_; }
  // generation and rosters.
  void Fill(v1::ShardCommand* command) const;

 private:
  struct List {
    uint64_t from_version = 0;
    std::vector<Entry> members;  // by worker index
  };

  void DropPassed(uint64_t version);

  uint64_t generation_ = 0;
  std::vector<List> lists_;  // by from_version
};

}  // namespace catchment

#endif  // CATCHMENT_SERVER_MASTER_ROSTERS_H_
