#include "kernels/cuda/session.h"

namespace catchment::cuda {

void FillSession(CatchmentCudaPlugin*) {}

}  // namespace catchment::cuda
