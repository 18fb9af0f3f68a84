// The interface of libcatchment_cuda.so. It consists of C functions, so that the plugin and the program need
// not share a C++ library. kernels/cuda/cuda_backend.h makes a Backend of them; kernels/backend.h describes
// what they do.
//
// Errors: functions that return a pointer return null, and functions that return an int32_t return another
// value than 0; error() then returns the reason. After a failed run the backend cannot be used any more.
#ifndef CATCHMENT_KERNELS_CUDA_PLUGIN_API_H_
#define CATCHMENT_KERNELS_CUDA_PLUGIN_API_H_

#include <stdint.h>

extern "C" {

#define CATCHMENT_CUDA_PLUGIN_VERSION 6

struct CatchmentCudaDevice {
  char name[256];
  uint64_t memory_bytes;
  int32_t capability_major;  // compute capability 9.0 is 9 and 0
  int32_t capability_minor;
};

// The kinds of layers, with the numbers of the fields of v1::Layer (proto/job.proto). RESIDUAL is the
// addition that ends a residual block.
enum CatchmentCudaKind {
  CATCHMENT_CUDA_CONV2D = 2,
  CATCHMENT_CUDA_DENSE = 3,
  CATCHMENT_CUDA_MAX_POOL = 4,
  CATCHMENT_CUDA_RELU = 6,
  CATCHMENT_CUDA_DROPOUT = 7,
  CATCHMENT_CUDA_RESIDUAL = 8,
  CATCHMENT_CUDA_BATCH_NORM = 9,
  CATCHMENT_CUDA_LAYER_NORM = 10,
  CATCHMENT_CUDA_AVERAGE_POOL = 11,
  CATCHMENT_CUDA_GLOBAL_AVERAGE_POOL = 12,
  CATCHMENT_CUDA_GELU = 13,
  CATCHMENT_CUDA_TANH = 14,
  CATCHMENT_CUDA_SIGMOID = 15,
  CATCHMENT_CUDA_SOFTMAX = 16,
  CATCHMENT_CUDA_LSTM = 17
};

// The precision of the factors of matrix products (kernels/cuda/precision.h).
enum CatchmentCudaPrecision {
  CATCHMENT_CUDA_FLOAT32 = 0,
  CATCHMENT_CUDA_TF32 = 1,
  CATCHMENT_CUDA_BFLOAT16 = 2,
  CATCHMENT_CUDA_FLOAT16 = 3
};

// The shape of a sample: an image of channels x height x width; a vector of `channels` values, height and
// width 1; or a sequence of `channels` steps of `width` values, height 1.
struct CatchmentCudaShape {
  int64_t channels, height, width;
  int32_t kind;  // 0 image, 1 vector, 2 sequence
};

// KernelSpec of kernels/backend.h.
struct CatchmentCudaLayer {
  int32_t kind;  // CatchmentCudaKind
  int32_t index;
  int32_t batch_size;
  int32_t relu;
  int32_t input_gradient;
  int32_t bias;
  int32_t may_round_output;
  struct CatchmentCudaShape input, output;
  int64_t kernel_size, stride, padding, groups, ghost_batch;
  float rate, epsilon;
  uint64_t seed;
};

// LossSpec of kernels/backend.h.
struct CatchmentCudaLossSpec {
  int32_t kind;  // 0 softmax cross-entropy, 1 sigmoid cross-entropy, 2 mean squared error
  int32_t num_outputs;
  int32_t batch_size;
  float label_smoothing;
};

// Pass of kernels/backend.h.
struct CatchmentCudaPass {
  int32_t mode;  // 0 training, 1 gathering, 2 scoring
  int32_t samples;
  const uint64_t* sample_ids;
  float* statistics;
};

struct CatchmentCudaScore {
  double loss_sum;
  int64_t correct;
};

struct CatchmentCudaBackend;
struct CatchmentCudaNode;    // a source, a layer, a fork or a loss
struct CatchmentCudaTensor;  // an activation; it belongs to the node that writes it

struct CatchmentCudaPlugin {
  // CATCHMENT_CUDA_PLUGIN_VERSION of the plugin's build; the other members may only be read if it is the
  // program's.
  int32_t version;

  // The versions of the CUDA Toolkit and cuBLAS that it was built with; empty if it was built without.
  const char* toolkit;

  // Writes up to `capacity` devices, and returns their number. If it is 0, `why` (why_size bytes including
  // the final zero) names the missing part.
  int32_t (*probe)(CatchmentCudaDevice* devices, int32_t capacity, char* why, int32_t why_size);

  // The other members are null in a build without the toolkit.

  // Creates the backend of device `index`; `precision` is a CatchmentCudaPrecision. Returns null with the
  // reason in `why`.
  CatchmentCudaBackend* (*create)(int32_t index, int32_t precision, char* why, int32_t why_size);
  void (*destroy)(CatchmentCudaBackend* backend);
  const char* (*error)(const CatchmentCudaBackend* backend);
  const char* (*describe)(CatchmentCudaBackend* backend);
  int32_t (*enter)(CatchmentCudaBackend* backend);

  // Lets the device reach memory of the host directly until unpin, which waits for the device. pin returns
  // another value than 0, without an error, if the memory cannot be pinned. Both may be called by any thread.
  int32_t (*pin)(CatchmentCudaBackend* backend, void* memory, uint64_t bytes);
  void (*unpin)(CatchmentCudaBackend* backend, void* memory);

  CatchmentCudaNode* (*create_source)(CatchmentCudaBackend* backend, const CatchmentCudaShape* shape,
                                      int32_t batch_size);
  CatchmentCudaNode* (*create_layer)(CatchmentCudaBackend* backend, const CatchmentCudaLayer* layer,
                                     CatchmentCudaTensor* const* inputs, int32_t num_inputs);
  CatchmentCudaNode* (*create_fork)(CatchmentCudaBackend* backend, CatchmentCudaTensor* tensor,
                                    int32_t readers);
  // Creates the last node of a network. Fails if the device has too little memory for all nodes.
  CatchmentCudaNode* (*create_loss)(CatchmentCudaBackend* backend, const CatchmentCudaLossSpec* spec,
                                    CatchmentCudaTensor* outputs);
  void (*destroy_node)(CatchmentCudaNode* node);
  // Returns the tensor that the node writes; for a fork, the view of one reader.
  CatchmentCudaTensor* (*output)(CatchmentCudaNode* node, int32_t reader);

  // Copies samples to a source. Pinned memory is read until the pass has been waited for; so are parameters.
  int32_t (*load)(CatchmentCudaBackend* backend, CatchmentCudaNode* source, const float* inputs,
                  int32_t samples);
  // Runs a layer forward.
  int32_t (*forward)(CatchmentCudaBackend* backend, CatchmentCudaNode* layer, const float* parameters,
                     const CatchmentCudaPass* pass);
  // Runs a layer backward. The gradient of its parameters is complete on the host after await_gradient with
  // the same `gradient`.
  int32_t (*backward)(CatchmentCudaBackend* backend, CatchmentCudaNode* layer, const CatchmentCudaPass* pass,
                      float* gradient);
  int32_t (*await_gradient)(CatchmentCudaBackend* backend, CatchmentCudaNode* layer, float* gradient);
  // Sums the gradients of a fork's views.
  int32_t (*sum_gradients)(CatchmentCudaBackend* backend, CatchmentCudaNode* fork);
  // Sets the factor of a loss's gradient; 1 at first.
  void (*scale_gradient)(CatchmentCudaNode* loss, float scale);
  // Scores a loss's outputs against labels or targets; the other one is null. The score is complete after
  // await_score.
  int32_t (*run_loss)(CatchmentCudaBackend* backend, CatchmentCudaNode* loss, const int32_t* labels,
                      const float* targets, int32_t samples, int32_t gradient);
  int32_t (*await_score)(CatchmentCudaBackend* backend, CatchmentCudaNode* loss, CatchmentCudaScore* score);
};

// The exported function is called "catchment_cuda_plugin" and has this type.
typedef const CatchmentCudaPlugin* (*CatchmentCudaPluginFunction)();

}  // extern "C"

#endif  // CATCHMENT_KERNELS_CUDA_PLUGIN_API_H_
