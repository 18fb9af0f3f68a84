// The rosters that are sent to the shards: the workers whose contributions make each version of the center
// (ShardCommand in proto/wire.proto). Every change makes a new generation. A lease is granted only after all
// shards have acknowledged the generation in which the worker was added.
//
// Synchronous mode: one roster for each plan. Other modes: a single roster from version 0, which workers join
// at once, and which also says which of them are idle.
//
// Threads: not thread-safe.
#ifndef CATCHMENT_SERVER_CONTROL_ROSTERS_H_
#define CATCHMENT_SERVER_CONTROL_ROSTERS_H_

#include <cstdint>
#include <optional>
#include <vector>

#include "absl/types/span.h"
#include "proto/master_image.pb.h"
#include "proto/wire.pb.h"

namespace catchment {

class Rosters {
 public:
  struct Entry {
    uint32_t worker = 0;
    uint64_t incarnation = 0;
    uint64_t since = 0;  // the generation in which it was added
    bool idle = false;
    uint64_t clock = 0;  // proto/wire.proto, Member
  };

  // Versions below `first_version` exist already; if it is above 0, they have an empty roster.
  explicit Rosters(uint64_t first_version);

  // Asynchronous mode: Join adds a worker to the roster, SetIdle notes that it has no work, and SetActive
  // that it has work again, which counts as being added again. SetIdle and SetActive have no effect on a
  // worker that is not in the roster, or already in that state.
  void Join(uint32_t worker, uint64_t incarnation, uint64_t clock);
  void SetIdle(uint64_t incarnation);
  void SetActive(uint64_t incarnation, uint64_t clock);
  bool IsIdle(uint64_t incarnation) const;
  // Does the same without a search through all workers.
  bool IsIdle(uint32_t worker, uint64_t incarnation) const;
  // Returns the current roster, by worker index.
  absl::Span<const Entry> Current() const;

  // Synchronous mode: adds a roster for the versions from `from_version` on, unless one begins there or
  // later. Drops the rosters that all shards have passed; these are at version `passed` or later.
  void Begin(uint64_t from_version, const std::vector<Entry>& members, uint64_t passed);

  // Removes the worker from all rosters. Returns true if it was in any.
  bool Remove(uint64_t incarnation);

  // Returns the generation in which the worker was added to the roster of this version; nothing if it is not
  // in that roster.
  std::optional<uint64_t> Since(uint64_t version, uint64_t incarnation) const;

  uint64_t generation() const { return generation_; }
  // Makes a new generation for a command that differs from the last one in other fields than the rosters.
  void Renew() { ++generation_; }
  v1::RostersImage Save() const;
  void Restore(const v1::RostersImage& image);
  // Fills `generation` and `rosters`.
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

#endif  // CATCHMENT_SERVER_CONTROL_ROSTERS_H_
