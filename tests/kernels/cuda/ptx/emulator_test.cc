// The emulator executes kernels, and finds mistakes that a device would let pass or would not name.
#include <cstdlib>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/kernels/cuda/ptx/faults.h"

namespace catchment::ptx {
namespace {

TEST(EmulatorTest, ExecutesThreadsThatMeetAtBarriers) { EXPECT_EQ(SumOfABlock(), 63 * 64 / 2); }

TEST(EmulatorTest, ACopyThatDoesNotWaitForItsKernelReadsTheOldValue) {
  setenv("CATCHMENT_PTX_ORDER", "first:1", /*overwrite=*/1);
  EXPECT_EQ(CopyAfterAKernel(/*wait=*/true), 2);
  EXPECT_EQ(CopyAfterAKernel(/*wait=*/false), 1);
}

TEST(EmulatorDeathTest, NamesTheKernelWhoseThreadsDoNotAllReachABarrier) {
  EXPECT_DEATH(ReachABarrierWithSomeThreads(),
               "ptx emulator: kernel .*SomeWait.*: a barrier is not reached by all threads");
}

TEST(EmulatorDeathTest, NamesTheKernelThatCannotBeLaunched) {
  EXPECT_DEATH(LaunchTooManyThreads(),
               "kernel .*Set.*: cannot be launched with 1 x 1 x 1 blocks of 2048 x 1 x 1 threads");
}

TEST(EmulatorDeathTest, NamesTheKernelOnTheDefaultStream) {
  EXPECT_DEATH(UseTheDefaultStream(), "kernel .*Set.*: uses the default stream");
}

TEST(EmulatorDeathTest, FindsCopiesBeyondAnAllocation) {
  EXPECT_DEATH(CopyBeyondAnAllocation(), "a copy of 20 bytes leaves its allocations");
}

TEST(EmulatorDeathTest, FindsMemoryThatIsFreedTwice) {
  EXPECT_DEATH(FreeTwice(), "memory is freed that was not allocated");
}

TEST(EmulatorTest, APageIsRegisteredOnce) { EXPECT_FALSE(RegistersAPageTwice()); }

TEST(EmulatorDeathTest, FindsCopiesThatReachFromOneRegistrationIntoTheNext) {
  EXPECT_DEATH(CopyAcrossRegistrations(), "a copy of 8 bytes leaves its allocations");
}

TEST(EmulatorDeathTest, FindsMemoryThatIsUnregisteredTooEarly) {
  EXPECT_DEATH((setenv("CATCHMENT_PTX_ORDER", "lazy", /*overwrite=*/1), UnregisterDuringACopy()),
               "memory is unregistered while a copy is under way");
}

TEST(EmulatorDeathTest, FindsMatricesThatAreNotAlignedAsPromised) {
  EXPECT_DEATH(MultiplyUnalignedMatrices(), "cublasLtMatmul: b is not aligned to the 256 bytes");
}

TEST(EmulatorDeathTest, RefusesAnUnknownOrder) {
  EXPECT_DEATH((setenv("CATCHMENT_PTX_ORDER", "sometimes", /*overwrite=*/1), SumOfABlock()),
               "CATCHMENT_PTX_ORDER is sometimes; must be eager, lazy, first:N or random:SEED");
}

}  // namespace
}  // namespace catchment::ptx
