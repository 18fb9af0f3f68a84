"""The command `catchment` that a wheel installs: the program in the bundle that the wheel brings."""
import os
import sys


def main():
    program = os.path.join(os.path.dirname(os.path.abspath(__file__)), "_bundle", "bin", "catchment")
    try:
        os.execv(program, [program, *sys.argv[1:]])
    except OSError as error:
        sys.exit("catchment: cannot start %s: %s" % (program, error.strerror))
