// Spans of samples (common/base/span.h) in the shuffled order of an epoch.
//
// Units: positions count samples.
#ifndef CATCHMENT_SERVER_CONTROL_SPAN_H_
#define CATCHMENT_SERVER_CONTROL_SPAN_H_

#include <compare>
#include <cstdint>
#include <vector>

#include "common/base/span.h"
#include "proto/master.pb.h"
#include "proto/master_image.pb.h"

namespace catchment {

// A position in the infinite sequence of epochs.
struct Position {
  uint64_t epoch = 0;
  uint64_t position = 0;

  auto operator<=>(const Position&) const = default;
};

// The samples of one step, either of one worker or of all workers together; may be empty.
using Step = std::vector<Span>;

uint64_t NumSamples(const Step& step);

// Appends a span; it is merged with the last span if it continues it.
void Append(const Span& span, Step* step);

// Returns samples begin .. end-1 of a step, counted along its spans.
Step Slice(const Step& step, uint64_t begin, uint64_t end);

v1::SampleSpan ToProto(const Span& span);
Span FromProto(const v1::SampleSpan& span);
v1::Minibatch ToMinibatch(const Step& step);

// Appends a step to an image.
void AddStep(const Step& step, v1::StepsImage* image);
// Returns the steps of an image.
std::vector<Step> StepsOf(const v1::StepsImage& image);

}  // namespace catchment

#endif  // CATCHMENT_SERVER_CONTROL_SPAN_H_
