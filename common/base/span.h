// The unit of all accounts of samples: a part of the shuffled order of one epoch.
#ifndef CATCHMENT_COMMON_BASE_SPAN_H_
#define CATCHMENT_COMMON_BASE_SPAN_H_

#include <cstdint>
#include <ostream>

namespace catchment {

// Positions begin .. end-1 of the order of `epoch`. Units: samples.
struct Span {
  uint64_t epoch = 0;
  uint64_t begin = 0;
  uint64_t end = 0;

  uint64_t size() const { return end - begin; }
  bool operator==(const Span&) const = default;
};

inline std::ostream& operator<<(std::ostream& out, const Span& span) {
  return out << span.epoch << ":" << span.begin << "-" << span.end;
}

}  // namespace catchment

#endif  // CATCHMENT_COMMON_BASE_SPAN_H_
