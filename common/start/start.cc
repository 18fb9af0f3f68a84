// The entry point of the programs. It checks the processor before any code that needs more than baseline
// x86-64, and then continues at the C library's _start. In a bundle no loader has run yet: the entry point
// maps the bundle's loader (bundled_loader.h), which relocates the program and jumps to the entry point
// again.
#include "common/start/bundled_loader.h"
#include "common/start/processor.h"
#include "common/start/system.h"

// Calls ContinueAt with the process's initial stack, which the System V ABI describes, and jumps to the
// address that it returns. %rdx is passed to _start: the function that the loader wants to be called at exit.
asm(R"(
  .text
  .globl catchment_start
  .type catchment_start, @function
catchment_start:
  .cfi_startproc
  .cfi_undefined rip
  xorl %ebp, %ebp
  movq %rsp, %rdi
  movq %rdx, %rsi
  pushq %rdx
  subq $8, %rsp
  call catchment_continue_at
  addq $8, %rsp
  popq %rdx
  jmpq *%rax
  .cfi_endproc
  .size catchment_start, . - catchment_start
)");

extern "C" [[gnu::visibility("hidden")]] void _start();

namespace catchment::start {
namespace {

Auxiliary FindAuxiliary(uint64_t* stack) {
  uint64_t* word = stack + 1 + stack[0] + 1;  // after argc, the arguments and their null
  while (*word != 0) ++word;                  // the environment
  Auxiliary found;
  for (auto* entry = reinterpret_cast<Elf64_auxv_t*>(word + 1); entry->a_type != AT_NULL; ++entry) {
    if (entry->a_type == AT_BASE) found.base = entry;
    if (entry->a_type == AT_PHDR) found.program_headers = entry;
    if (entry->a_type == AT_PHNUM) found.program_header_count = entry->a_un.a_val;
  }
  return found;
}

}  // namespace

// Returns the address at which the process continues.
extern "C" [[gnu::used]] uint64_t catchment_continue_at(uint64_t* stack, uint64_t at_exit) {
  const char* const program = stack[0] > 0 ? BaseName(reinterpret_cast<const char*>(stack[1])) : "catchment";
  RequireProcessor(program);
  const bool has_loader = at_exit != 0;
  return has_loader ? reinterpret_cast<uint64_t>(&_start) : MapBundledLoader(program, FindAuxiliary(stack));
}

}  // namespace catchment::start
