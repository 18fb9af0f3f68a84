// ThreadSanitizer sees nothing of what Debian's libraries do with their own locks and atomics, since they are not
// built with it; reports from inside them are not ours. Linked into every program that uses gRPC.
#if defined(__SANITIZE_THREAD__)

extern "C" const char* __tsan_default_suppressions() {
  return "called_from_lib:libgrpc.so\n"
         "called_from_lib:libgrpc++.so\n"
         "called_from_lib:libgpr.so\n"
         "called_from_lib:libabsl_synchronization.so\n"
         "called_from_lib:libprotobuf.so\n"
         "called_from_lib:libglog.so\n"
         "called_from_lib:libcares.so\n"
         // Templates of these that are compiled into our objects, and hand data over through the libraries' locks.
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
