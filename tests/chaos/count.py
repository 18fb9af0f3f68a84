#!/usr/bin/env python3
"""A worker's program whose pushes can be counted in the weights (python/catchment).

    count.py COPIES SAMPLES SECONDS

The model is a vector of COPIES x SAMPLES weights. The gradient of a minibatch is -1 at the places of its
samples, in each copy, and 0 elsewhere. With SGD, learning rate 1 and no momentum each application of a push
adds 1 there: after training, the weight of a sample is the number of times that it was applied to the block
that holds it. All values are small integers, for which float32 is exact. A step takes SECONDS at least.
"""

import array
import sys
import time

sys.dont_write_bytecode = True
import catchment


def main():
    copies, samples, seconds = int(sys.argv[1]), int(sys.argv[2]), float(sys.argv[3])
    counts = memoryview(array.array("f", bytes(4 * copies * samples))).cast("B").cast("f", (copies, samples))
    worker = catchment.join({"counts": counts}, samples)
    gradient = memoryview(worker.gradient).cast("B").cast("f")
    for minibatch in worker.minibatches():
        for place in (copy * samples + int(sample) for copy in range(copies) for sample in minibatch):
            gradient[place] = -1.0
        time.sleep(seconds)
        worker.step(0.0)


main()
