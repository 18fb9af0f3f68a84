// System calls and text for the code in this directory, which runs before the C library: nothing is relocated
// yet, there is no errno, and any call to a function outside this directory would crash. Headers of the C++
// library are not included, because the linker could take their inline functions from a file compiled for
// AVX2.
#ifndef CATCHMENT_COMMON_START_SYSTEM_H_
#define CATCHMENT_COMMON_START_SYSTEM_H_

#include <stdint.h>
#include <sys/syscall.h>

namespace catchment::start {
namespace {

// Makes the system call `number`. Returns its result, or the negative error number.
inline int64_t SystemCall(int64_t number, int64_t a = 0, int64_t b = 0, int64_t c = 0, int64_t d = 0,
                          int64_t e = 0, int64_t f = 0) {
  register int64_t r10 asm("r10") = d;
  register int64_t r8 asm("r8") = e;
  register int64_t r9 asm("r9") = f;
  int64_t result;
  asm volatile("syscall"
               : "=a"(result)
               : "a"(number), "D"(a), "S"(b), "d"(c), "r"(r10), "r"(r8), "r"(r9)
               : "rcx", "r11", "memory");
  return result;
}

inline int64_t Address(const void* pointer) { return reinterpret_cast<int64_t>(pointer); }

// Returns the part of `path` after its last slash.
inline const char* BaseName(const char* path) {
  const char* name = path;
  for (const char* c = path; *c != '\0'; ++c) {
    if (*c == '/') name = c + 1;
  }
  return name;
}

// One line of text in a buffer of fixed size; longer text is truncated.
class Line {
 public:
  Line() { text_[0] = '\0'; }

  void Append(const char* text) {
    while (*text != '\0' && size_ + 1 < static_cast<int>(sizeof text_)) text_[size_++] = *text++;
    text_[size_] = '\0';
  }

  void CutAfterLastSlash() {
    while (size_ > 0 && text_[size_ - 1] != '/') --size_;
    text_[size_] = '\0';
  }

  const char* text() const { return text_; }
  int size() const { return size_; }

 private:
  char text_[4352];  // PATH_MAX and a sentence
  int size_ = 0;
};

// Writes "PROGRAM: " and `message` as one line to standard error and ends the process with exit code 1.
[[noreturn]] inline void Fail(const char* program, const Line& message) {
  constexpr int kStandardError = 2;
  Line line;
  line.Append(program);
  line.Append(": ");
  line.Append(message.text());
  line.Append("\n");
  SystemCall(SYS_write, kStandardError, Address(line.text()), line.size());
  while (true) SystemCall(SYS_exit_group, 1);
}

}  // namespace
}  // namespace catchment::start

#endif  // CATCHMENT_COMMON_START_SYSTEM_H_
