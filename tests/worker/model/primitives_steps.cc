// Trains a model for a few steps in each batch size, for primitives_test: with DNNL_VERBOSE=1 oneDNN writes a
// line for each primitive that ran. Before the steps that count there is a line "steps: BATCHES", after them
// "end".
//
//   primitives_steps MODEL    MODEL: an example's name, or one of kModels
#include <cstdio>
#include <string>
#include <vector>

#include "common/job/data_sources.h"
#include "common/job/job_text.h"
#include "common/job/validate.h"
#include "glog/logging.h"
#include "tests/worker/model/network_setup.h"

namespace catchment {
namespace {

struct Case {
  v1::Model model;
  SampleShape input;
  int classes;
  bool large = false;  // takes seconds a step
};

// Grouped and depthwise convolutions, and layers for which oneDNN has kernels in some layouts only. Not in an
// example.
struct ModelText {
  const char* name;
  const char* text;
  SampleShape input;
};
const ModelText kModels[] = {
    {"groups",
     "layers { conv2d { filters: 16 kernel_size: 3 padding: 1 } } layers { relu {} } "
     "layers { conv2d { filters: 32 kernel_size: 3 padding: 1 groups: 4 } } layers { relu {} } "
     "layers { conv2d { filters: 48 kernel_size: 3 stride: 2 padding: 1 groups: 16 } } layers { relu {} } "
     "layers { max_pool { size: 2 } } "
     "layers { conv2d { filters: 48 kernel_size: 3 groups: 48 } } layers { relu {} } "
     "layers { global_average_pool {} } layers { dense { units: 10 } }",
     {3, 24, 24}},
    {"odd_channels",
     "layers { conv2d { filters: 5 kernel_size: 5 padding: 2 } } layers { relu {} } "
     "layers { conv2d { filters: 19 kernel_size: 4 } } layers { average_pool { size: 3 stride: 2 } } "
     "layers { conv2d { filters: 3 kernel_size: 3 stride: 2 } } layers { max_pool { size: 2 } } "
     "layers { flatten {} } layers { dense { units: 10 } }",
     {1, 28, 28}},
    {"pooled_input",
     "layers { max_pool { size: 2 } } layers { conv2d { filters: 24 kernel_size: 3 } } "
     "layers { batch_norm {} } layers { relu {} } layers { flatten {} } layers { dense { units: 10 } }",
     {3, 32, 32}},
};

Case Find(const std::string& name) {
  for (const ModelText& model : kModels) {
    if (model.name == name) return {Parse(model.text), model.input, 10};
  }
  const auto loaded = LoadJob("examples/" + name + ".textproto");
  CHECK(loaded.ok()) << loaded.status();
  const auto job = FillDefaultsAndValidate(*loaded);
  CHECK(job.ok()) << job.status();
  const DataShape shape = ShapeOf(job->data());
  return {job->model(), shape.input, shape.target.classes, shape.input.size() > 1 << 14};
}

// The last minibatch of an epoch is smaller than the others, and runs in kernels of their own.
void Train(const Case& c, int batch_size, bool deterministic) {
  auto network = Network::Create(c.model, c.input, c.classes, {.max_batch_size = batch_size},
                                 MakeCpuBackend({.deterministic = deterministic}));
  CHECK(network.ok()) << network.status();
  const std::vector<float> weights = InitialWeights(**network);
  const Samples samples(batch_size, c.input, c.classes);
  std::vector<Minibatch> batches = {samples.Batch()};
  if (batch_size > 3) batches.push_back(samples.Batch(0, batch_size / 3));
  for (const Minibatch& batch : batches) {
    GradientOf(network->get(), weights, batch);
    std::printf("steps: %d of %d%s\n", batch.samples, batch_size, deterministic ? ", deterministic" : "");
    for (int i = 0; i < 3; ++i) GradientOf(network->get(), weights, batch);
    std::printf("end\n");
  }
}

}  // namespace
}  // namespace catchment

int main(int argc, char** argv) {
  CHECK_EQ(argc, 2) << "usage: primitives_steps MODEL";
  const catchment::Case found = catchment::Find(argv[1]);
  catchment::Train(found, 1, false);
  if (found.large) return 0;
  for (const int batch_size : {32, 128}) catchment::Train(found, batch_size, false);
  catchment::Train(found, 8, true);
}
