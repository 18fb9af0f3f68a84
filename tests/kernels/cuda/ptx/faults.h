// Mistakes in the use of CUDA, each of which the emulator must find.
#ifndef CATCHMENT_TESTS_KERNELS_CUDA_PTX_FAULTS_H_
#define CATCHMENT_TESTS_KERNELS_CUDA_PTX_FAULTS_H_

namespace catchment::ptx {

void ReachABarrierWithSomeThreads();
void LaunchTooManyThreads();
void UseTheDefaultStream();
void CopyBeyondAnAllocation();
void FreeTwice();
void CopyAcrossRegistrations();
void UnregisterDuringACopy();
void MultiplyUnalignedMatrices();

// Returns true if memory of a page that is registered can be registered once more.
bool RegistersAPageTwice();

// Returns what a kernel computes: the sum of 0 .. 63 by the threads of a block, over shared memory and
// barriers.
float SumOfABlock();

// Returns what the host reads from a copy of 1 that a kernel changes to 2, with and without a wait between
// the two streams.
float CopyAfterAKernel(bool wait);

}  // namespace catchment::ptx

#endif  // CATCHMENT_TESTS_KERNELS_CUDA_PTX_FAULTS_H_
