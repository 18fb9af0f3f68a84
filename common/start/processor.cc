#include "common/start/processor.h"

#include <cpuid.h>

#include "common/start/system.h"

namespace catchment::start {
namespace {

// The registers in which the instruction cpuid returns its results.
enum Register { kEbx, kEcx, kEdx };

struct Feature {
  char name[8];  // an array, because a pointer would have to be relocated
  uint32_t leaf;
  Register reg;
  uint32_t bit;
};

// The features of x86-64-v3 beyond x86-64, as the x86-64 psABI defines them.
constexpr Feature kFeatures[] = {
    {"CX16", 1, kEcx, bit_CMPXCHG16B},
    {"LAHF", 0x80000001, kEcx, bit_LAHF_LM},
    {"POPCNT", 1, kEcx, bit_POPCNT},
    {"SSE4.2", 1, kEcx, bit_SSE4_2},
    {"AVX", 1, kEcx, bit_AVX},
    {"AVX2", 7, kEbx, bit_AVX2},
    {"BMI1", 7, kEbx, bit_BMI},
    {"BMI2", 7, kEbx, bit_BMI2},
    {"F16C", 1, kEcx, bit_F16C},
    {"FMA", 1, kEcx, bit_FMA},
    {"LZCNT", 0x80000001, kEcx, bit_LZCNT},
    {"MOVBE", 1, kEcx, bit_MOVBE},
};

bool Has(const Feature& feature) {
  uint32_t eax = 0, ebx = 0, ecx = 0, edx = 0;
  if (__get_cpuid_count(feature.leaf, 0, &eax, &ebx, &ecx, &edx) == 0) return false;
  const uint32_t value = feature.reg == kEbx ? ebx : feature.reg == kEcx ? ecx : edx;
  return (value & feature.bit) != 0;
}

// Returns true if the operating system saves the SSE and AVX registers when it switches threads.
bool SystemSavesAvx() {
  if (!Has({"OSXSAVE", 1, kEcx, bit_OSXSAVE})) return false;
  constexpr uint32_t kSseAndAvx = 6;
  uint32_t low = 0, high = 0;
  asm volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
  return (low & kSseAndAvx) == kSseAndAvx;
}

}  // namespace

void RequireProcessor(const char* program) {
  Line message;
  for (const Feature& feature : kFeatures) {
    if (Has(feature)) continue;
    message.Append(message.size() == 0 ? "this processor lacks " : ", ");
    message.Append(feature.name);
  }
  if (message.size() == 0) {
    if (SystemSavesAvx()) return;
    message.Append("the operating system or virtual machine does not enable AVX");
  }
  message.Append("; Catchment needs x86-64-v3 (AVX2: Intel since Haswell of 2013, AMD since Zen of 2017)");
  Fail(program, message);
}

}  // namespace catchment::start
