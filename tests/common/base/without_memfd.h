// A machine without memfd_create, as under a seccomp filter or in a sandbox.
#ifndef CATCHMENT_TESTS_COMMON_BASE_WITHOUT_MEMFD_H_
#define CATCHMENT_TESTS_COMMON_BASE_WITHOUT_MEMFD_H_

#include <errno.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <sys/prctl.h>
#include <sys/syscall.h>

#include <iterator>

namespace catchment {

// From now on memfd_create fails with ENOSYS in this thread, and in all threads and processes that it starts.
// Returns false where the system allows no such filter.
inline bool ForbidMemfd() {
  sock_filter filter[] = {
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_memfd_create, 0, 1),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | ENOSYS),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
  };
  const sock_fprog program = {static_cast<unsigned short>(std::size(filter)), filter};
  return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 &&
         prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0;
}

}  // namespace catchment

#endif  // CATCHMENT_TESTS_COMMON_BASE_WITHOUT_MEMFD_H_
