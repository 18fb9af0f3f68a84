"""cc_library and cc_test as Bazel has them, but that compile faster: the sources of a library as one
translation unit (a unity build), and each test with a precompiled header, //tests:prelude, in front. catchment_test
is a cc_test with what most tests have in common."""

def _in_unity(name, apart, attributes):
    """Replaces the sources by one that holds them all, for they mostly parse the same headers.

    Targets with their own options keep their files apart: theirs are the loops over values, whose machine code should
    not depend on their neighbours. So do the files of apart, whose local names are those of another file, or all if it
    is True. --define=unity=off compiles every file alone.
    """
    srcs = attributes.get("srcs", [])
    if apart == True or attributes.get("copts"):
        return attributes
    sources = [src for src in srcs if src.endswith(".cc") and src not in apart]
    if len(sources) < 2:
        return attributes
    unity = name + ".unity.cc"
    native.genrule(
        name = name + "_unity",
        srcs = sources,
        outs = [unity],
        cmd = "for f in $(SRCS); do echo \"#line 1 \\\"$$f\\\"\"; cat $$f; done >$@",
        testonly = attributes.get("testonly", False),
        visibility = ["//visibility:private"],
    )
    others = [src for src in srcs if src not in sources]
    return dict(attributes, srcs = others + select({
        "//common:unity_off": sources,
        "//conditions:default": [unity],
    }))

def cc_library(name, apart = [], **attributes):
    native.cc_library(name = name, **_in_unity(name, apart, attributes))

def cc_test(name, copts = [], deps = [], **attributes):
    # g++ takes a precompiled header only under the options that it was made with, so a test with its own options
    # goes without.
    if copts:
        prelude, options = [], copts
    else:
        prelude = select({"//common:prelude_off": [], "//conditions:default": ["//tests:prelude"]})
        options = select({
            "//common:prelude_off": [],
            "//conditions:default": ["-include", "$(BINDIR)/tests/precompiled/prelude.h"],
        })
    native.cc_test(name = name, copts = options, deps = deps + prelude, **attributes)

# The folders whose tests .ci/run leaves out under a sanitizer, which the tags "asan" and "tsan" select, with the
# reason. A folder covers its subfolders.
_MINUTES = "trains for minutes under a sanitizer"
_ONE_THREAD = "runs on one thread"
_COVERED = "the tests that run cover the memory of the folder"
_RULES = "rules and words, hardly any memory of their own"
WITHOUT = {
    "tests/benchmarks": {"asan": _MINUTES, "tsan": _MINUTES},
    "tests/cli": {"asan": _RULES, "tsan": _ONE_THREAD},
    "tests/cluster": {"asan": _MINUTES, "tsan": _MINUTES},
    "tests/common/allocation": {"asan": "replaces malloc"},
    "tests/common/base": {"asan": _RULES, "tsan": _ONE_THREAD},
    "tests/common/checkpoint": {"tsan": _ONE_THREAD},
    "tests/common/codec": {"tsan": _ONE_THREAD},
    "tests/common/energy": {"asan": _RULES, "tsan": _ONE_THREAD},
    "tests/common/job": {"asan": _RULES, "tsan": _ONE_THREAD},
    "tests/common/metrics": {"asan": _RULES},
    "tests/common/net": {"asan": _COVERED},
    "tests/common/program": {"asan": _RULES},
    "tests/common/trace": {"asan": _RULES},
    "tests/common/wire": {"tsan": _ONE_THREAD},
    "tests/conformance": {"asan": _MINUTES, "tsan": _ONE_THREAD},
    "tests/docs": {"asan": _RULES, "tsan": _ONE_THREAD},
    "tests/kernels": {"asan": _MINUTES, "tsan": "libgomp synchronises in ways that ThreadSanitizer does not see"},
    "tests/optim": {"tsan": _ONE_THREAD},
    "tests/server/control": {"asan": _RULES, "tsan": _ONE_THREAD},
    "tests/server/edge": {"asan": _COVERED},
    "tests/server/host": {"asan": _RULES},
    "tests/server/outputs": {"asan": _RULES, "tsan": _ONE_THREAD},
    "tests/server/process": {"asan": _RULES},
    "tests/server/rules": {"tsan": _ONE_THREAD},
    "tests/server/shard": {"asan": _COVERED, "tsan": _ONE_THREAD},
    "tests/simulation": {"asan": _MINUTES, "tsan": _ONE_THREAD},
    "tests/worker/algorithms": {"asan": _RULES, "tsan": _ONE_THREAD},
    "tests/worker/client": {"asan": _COVERED},
    "tests/worker/data": {"tsan": _ONE_THREAD},
    "tests/worker/loop": {"asan": _RULES},
    "tests/worker/model": {"asan": _MINUTES, "tsan": "libgomp synchronises in ways that ThreadSanitizer does not see"},
}

def _sanitizers(without):
    left_out = [tag for tag in without]
    for folder, reasons in WITHOUT.items():
        if (native.package_name() + "/").startswith(folder + "/"):
            left_out += [tag for tag in reasons]
    return [tag for tag in ["asan", "tsan"] if tag not in left_out]

def catchment_test(name, size = "small", srcs = None, deps = [], tags = [], without = {}, also = [], **attributes):
    """Declares the small test whose source is NAME.cc, with GoogleTest, GoogleMock and their main function.

    Args:
      name: the name of the test.
      size: as of a cc_test.
      srcs: the sources, if they are not NAME.cc.
      deps: what it tests, and what helps. What they bring along is not named.
      tags: further tags.
      without: sanitizers that it does not run under, with the reason: {"tsan": "..."}.
      also: sanitizers that it runs under although its folder does not (WITHOUT).
      **attributes: those of a cc_test.
    """
    cc_test(
        name = name,
        size = size,
        srcs = srcs or [name + ".cc"],
        tags = tags + also + [tag for tag in _sanitizers(without) if tag not in also],
        deps = deps + ["@system//:gtest_main"],
        **attributes
    )

def catchment_tests(names, **attributes):
    """Declares several tests, which have all attributes in common."""
    for name in names:
        catchment_test(name = name, **attributes)
