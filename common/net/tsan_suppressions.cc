// Suppresses ThreadSanitizer's reports from inside Debian's libraries: they are not built with it, so it does
// not see their locks and atomics. Linked into every program that uses gRPC.
#if defined(__SANITIZE_THREAD__)

extern "C" const char* __tsan_default_suppressions() {
  return "called_from_lib:libgrpc.so\n"
         "called_from_lib:libgrpc++.so\n"
         "called_from_lib:libgpr.so\n"
         "called_from_lib:libabsl_synchronization.so\n"
         "called_from_lib:libprotobuf.so\n"
         "called_from_lib:libglog.so\n"
         "called_from_lib:libcares.so\n"
         // Templates of these libraries in our objects, which pass data through the libraries' locks.
         "race:^grpc::\n"
         "race:^grpc_core::\n"
         "race:libgrpc\n"
         "race:libgpr\n"
         "race:libabsl_\n"
         "mutex:libgrpc\n"
         "deadlock:libgrpc\n"
         "thread:libgrpc\n"
         "thread:libgpr\n";
}

#endif
