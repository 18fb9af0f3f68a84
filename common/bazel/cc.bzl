"""cc_library, cc_binary and cc_test as Bazel has them, with a precompiled header in front of each source file:
//common:prelude, or for tests //tests:prelude. catchment_test is a cc_test with what most tests have in common."""

def _with_prelude(rule, package, attributes):
    # g++ takes a precompiled header only under the options that it was made with, so a target with its own
    # options goes without.
    if attributes.get("srcs") and not attributes.get("copts"):
        attributes["copts"] = select({
            "//common:without_prelude": [],
            "//conditions:default": ["-include", "$(BINDIR)/%s/precompiled/prelude.h" % package],
        })
        attributes["deps"] = attributes.get("deps", []) + select({
            "//common:without_prelude": [],
            "//conditions:default": ["//%s:prelude" % package],
        })
    rule(**attributes)

def cc_library(**attributes):
    _with_prelude(native.cc_library, "common", attributes)

def cc_binary(**attributes):
    _with_prelude(native.cc_binary, "common", attributes)

def cc_test(**attributes):
    _with_prelude(native.cc_test, "tests", attributes)

def catchment_test(name, size = "small", srcs = None, deps = [], **attributes):
    """Declares the small test whose source is NAME.cc, with GoogleTest, GoogleMock and their main function."""
    cc_test(
        name = name,
        size = size,
        srcs = srcs or [name + ".cc"],
        deps = deps + ["@system//:gtest_main"],
        **attributes
    )

def catchment_tests(names, **attributes):
    """Declares several tests, which have all attributes in common."""
    for name in names:
        catchment_test(name = name, **attributes)
