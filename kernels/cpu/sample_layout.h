// How one sample lies in an activation's memory, for our own loops.
#ifndef CATCHMENT_KERNELS_CPU_SAMPLE_LAYOUT_H_
#define CATCHMENT_KERNELS_CPU_SAMPLE_LAYOUT_H_

#include <cstdint>

#include "absl/status/statusor.h"
#include "dnnl.hpp"

namespace catchment {

// `blocks` of channels, one after another; in each, for every position (height and width), `block` channels
// side by side. C x H x W is C blocks of one channel, and a vector is one block at one position. The last
// block may be wider than there are channels left; what lies there is 0.
struct SampleLayout {
  int64_t blocks;
  int64_t positions;
  int64_t block;

  int64_t stored() const { return blocks * positions * block; }
  // For those who do not ask for channels: C x H x W goes as one position of C*H*W of them.
  SampleLayout ByElement() const { return block == 1 ? SampleLayout{1, 1, stored()} : *this; }
};

// Errors: Unimplemented for a layout that is neither plain, nor channels last, nor blocked by channels.
absl::StatusOr<SampleLayout> LayoutOfSample(const dnnl::memory::desc& layout);

}  // namespace catchment

#endif  // CATCHMENT_KERNELS_CPU_SAMPLE_LAYOUT_H_
