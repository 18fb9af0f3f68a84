#include "server/control/span.h"

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

void AddStep(const Step& step, v1::StepsImage* image) {
  for (const Span& span : step) {
    v1::SampleSpan* const last =
        image->spans_size() == 0 ? nullptr : image->mutable_spans(image->spans_size() - 1);
    if (last != nullptr && last->epoch() == span.epoch && last->end() == span.begin) {
      last->set_end(span.end);
    } else {
      *image->add_spans() = ToProto(span);
    }
  }
  const uint64_t size = NumSamples(step);
  const int pairs = image->sizes_size();
  if (pairs > 0 && image->sizes(pairs - 2) == size) {
    image->set_sizes(pairs - 1, image->sizes(pairs - 1) + 1);
  } else {
    image->add_sizes(size);
    image->add_sizes(1);
  }
}

std::vector<Step> StepsOf(const v1::StepsImage& image) {
  std::vector<Step> steps;
  int span = 0;
  uint64_t taken = 0;  // of the span
  for (int i = 0; i + 1 < image.sizes_size(); i += 2) {
    for (uint64_t n = 0; n < image.sizes(i + 1); ++n) {
      Step& step = steps.emplace_back();
      for (uint64_t left = image.sizes(i); left > 0 && span < image.spans_size();) {
        const Span from = FromProto(image.spans(span));
        const uint64_t size = std::min(left, from.size() - taken);
        Append({from.epoch, from.begin + taken, from.begin + taken + size}, &step);
        left -= size;
        taken += size;
        if (taken < from.size()) continue;
        taken = 0;
        ++span;
      }
    }
  }
  return steps;
}

}  // namespace catchment
