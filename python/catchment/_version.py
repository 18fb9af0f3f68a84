"""The version of Catchment: that of common/base/version.cc, which a test compares it with."""

__version__ = "0.1.0"
