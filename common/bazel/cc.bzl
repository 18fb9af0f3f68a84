"""cc_library, cc_binary and cc_test as Bazel has them, with a precompiled header in front of each source file:
//common:prelude, or for tests //tests:prelude."""

def _with_prelude(rule, package, attributes):
    # g++ takes a precompiled header only under the options that it was made with, so a target with its own options
    # goes without.
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
