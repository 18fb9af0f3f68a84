#!/usr/bin/python3
"""Makes the files beside it, with NumPy and h5py: what users have, as their tools write it.

    tests/worker/data/table/golden/make_golden.py        (Debian: python3-numpy, python3-h5py)

Features are [[0, 0.5, 1], [1.5, 2, 2.5], ...]: value i is i / 2. Labels are row % 3. All have 5 rows of 3.
"""

import os

import h5py
import numpy as np

os.chdir(os.path.dirname(os.path.abspath(__file__)))
features = np.arange(15).reshape(5, 3) / 2
labels = np.arange(5) % 3
one_hot = np.eye(3)[labels]

np.save("f8_features.npy", features)
np.save("f8_labels.npy", labels)
np.save("u1_features.npy", np.arange(15, dtype="u1").reshape(5, 1, 3))
np.save("u1_labels.npy", one_hot.astype("f4"))
with open("version2_features.npy", "wb") as file:
    np.lib.format.write_array(file, features.astype("f4"), version=(2, 0))
np.save("version2_labels.npy", labels.astype("i2")[:, None])
np.save("fortran_features.npy", np.asfortranarray(features))
np.save("fortran_labels.npy", labels)
np.save("big_features.npy", features.astype(">f4"))
np.save("big_labels.npy", labels)

# The data sets that MPI-Learn's examples write, and how they are often packed.
with h5py.File("mpi_learn.h5", "w") as file:
    file.create_dataset("features", data=features.astype("f4"))
    file.create_dataset("labels", data=one_hot)
with h5py.File("chunked.h5", "w") as file:
    file.create_dataset(
        "X", data=features.reshape(5, 3, 1), chunks=(2, 3, 1), compression="gzip", shuffle=True
    )
    file.create_dataset("Y", data=labels.astype(">i4"), chunks=(2,), compression="gzip")
with h5py.File("bytes.h5", "w") as file:
    file.create_dataset("features", data=np.arange(15, dtype="u1").reshape(5, 3))
    file.create_dataset("labels", data=labels.astype("u1"))
with h5py.File("lzf.h5", "w") as file:
    file.create_dataset("features", data=features, chunks=(5, 3), compression="lzf")
    file.create_dataset("labels", data=labels)
with h5py.File("strings.h5", "w") as file:
    file.create_dataset("features", data=np.array([b"a", b"b"]))
    file.create_dataset("labels", data=labels)
