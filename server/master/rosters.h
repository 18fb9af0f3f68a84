// Whose contributions make which versions of the center, as the shards are told: see ShardCommand in
// proto/wire.proto. Every change makes a new generation; a lease is granted only when all shards have
// acknowledged the generation that its member came in with.
//
// Synchronous mode: a roster for each plan. All other modes: one from version 0, which members join at once,
// and which tells who of them is idle.
//
// Threads: not thread-safe.
#ifndef CATCHMENT_SERVER_MASTER_ROSTERS_H_
#define CATCHMENT_SERVER_MASTER_ROSTERS_H_

#include <cstdint>
#include <optional>
#include <vector>

#include "absl/types/span.h"
#include "proto/wire.pb.h"

namespace catchment {

class Rosters {
 public:
  struct Entry {
    uint32_t worker = 0;
    uint64_t incarnation = 0;
    uint64_t since = 0;  // generation
    bool idle = false;
    uint64_t clock = 0;  // proto/wire.proto, Member
  };

  // Versions below `first_version` are made already: with one above 0 there is an empty roster for them.
  explicit Rosters(uint64_t first_version);

  // The one roster: a member comes in, has nothing to do, and has work again. The last two do nothing for one
  // who is no member, or is that already; who has work again is in since then.
  void Join(uint32_t worker, uint64_t incarnation, uint64_t clock);
  void SetIdle(uint64_t incarnation);
  void SetActive(uint64_t incarnation, uint64_t clock);
  bool IsIdle(uint64_t incarnation) const;
  // By worker index.
  absl::Span<const Entry> Current() const;

  // Synchronous mode: a roster for the versions from this one on, unless one begins there or later. Rosters
  // that all shards have passed, being at `passed` or further, are dropped.
  void Begin(uint64_t from_version, const std::vector<Entry>& members, uint64_t passed);

  // Removes the member from all rosters. Returns whether it was in any.
  bool Remove(uint64_t incarnation);

  // The generation since which a member is in the roster that makes the version; nothing when it is not.
  std::optional<uint64_t> Since(uint64_t version, uint64_t incarnation) const;

  uint64_t generation() const { return generation_; }
  // Makes a new generation, of a command that differs from the last one in something else.
  void Renew() { ++generation_; }
  // generation and rosters.
  void Fill(v1::ShardCommand* command) const;

 private:
  struct List {
    uint64_t from_version = 0;
    std::vector<Entry> members;  // by worker index
  };

  Entry* Find(uint64_t incarnation);
  void DropPassed(uint64_t version);

  uint64_t generation_ = 0;
  std::vector<List> lists_;  // by from_version
};

}  // namespace catchment

#endif  // CATCHMENT_SERVER_MASTER_ROSTERS_H_
