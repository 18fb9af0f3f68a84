#include "server/master/span.h"

#include <algorithm>

namespace catchment {

uint64_t NumSamples(const Step& step) {
  uint64_t samples = 0;
  for (const Span& span : step) samples += span.size();
  return samples;
}

void Append(const Span& span, Step* step) {
  if (span.size() == 0) return;
  if (!step->empty() && step->back().epoch == span.epoch && step->back().end == span.begin) {
    step->back().end = span.end;
  } else {
    step->push_back(span);
  }
}

Step Slice(const Step& step, uint64_t begin, uint64_t end) {
  Step slice;
  uint64_t before = 0;
  for (const Span& span : step) {
    const uint64_t from = std::max(begin, before);
    const uint64_t to = std::min(end, before + span.size());
    if (from < to) Append({span.epoch, span.begin + from - before, span.begin + to - before}, &slice);
    before += span.size();
  }
  return slice;
}

v1::SampleSpan ToProto(const Span& span) {
  v1::SampleSpan proto;
  proto.set_epoch(span.epoch);
  proto.set_begin(span.begin);
  proto.set_end(span.end);
  return proto;
}

Span FromProto(const v1::SampleSpan& span) { return {span.epoch(), span.begin(), span.end()}; }

v1::Minibatch ToMinibatch(const Step& step) {
  v1::Minibatch minibatch;
  for (const Span& span : step) *minibatch.add_spans() = ToProto(span);
  return minibatch;
}

}  // namespace catchment
