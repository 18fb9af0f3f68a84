"""fuzz_target(name, srcs, deps, size): a function LLVMFuzzerTestOneInput over a parser.

It becomes NAME_seeds_test, which runs it over the files of seeds/NAME, and NAME, the fuzzer, which tests/fuzz/run builds with clang."""
load("//common/bazel:cc.bzl", "cc_library", "cc_test")

def fuzz_target(name, srcs, deps, size = "small"):
    cc_library(
        name = name + "_target",
        testonly = True,
        srcs = srcs,
        deps = deps + [":input", "@system//:glog"],
        alwayslink = True,
    )
    cc_test(
        name = name + "_seeds_test",
        size = size,
        args = ["tests/fuzz/seeds/" + name],
        data = native.glob(["seeds/%s/**" % name]),
        deps = [":%s_target" % name, ":run_seeds"],
    )
    native.cc_binary(
        name = name,
        testonly = True,
        linkopts = ["-fsanitize=fuzzer"],
        tags = ["fuzzer", "manual"],
        deps = [":%s_target" % name],
    )
