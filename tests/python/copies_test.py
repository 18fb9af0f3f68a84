#!/usr/bin/env python3
"""Copies to and from a GPU, with a stand-in for it (fake_cuda.py). Run as torch_test.py is."""

import os
import sys
import types
import unittest
import unittest.mock
import warnings

import torch

sys.path.insert(0, "tests/python")
sys.path.insert(0, os.path.abspath("python"))
from catchment._copies import CudaCopies, HostCopies, choose
from fake_cuda import FakeCuda


class Parameter:
    """Three values from `begin` on, as catchment.torch has it."""

    def __init__(self, begin, weights, gradient):
        self.tensor, self.end = torch.zeros(3), begin + 3
        self.weights, self.gradient = weights[begin : self.end], gradient[begin : self.end]


class CopiesTest(unittest.TestCase):
    def setUp(self):
        self.weights, self.gradient = torch.arange(6.0), torch.zeros(6)
        self.parameters = [Parameter(begin, self.weights, self.gradient) for begin in (0, 3)]
        record_stream = torch.Tensor.record_stream
        self.addCleanup(setattr, torch.Tensor, "record_stream", record_stream)
        torch.Tensor.record_stream = lambda tensor, stream: None

    def make(self, **more):
        self.cuda = FakeCuda(**more)
        patch = unittest.mock.patch("catchment._copies.launch", self.cuda.launch)
        patch.start()
        self.addCleanup(patch.stop)
        return CudaCopies((self.weights, self.gradient), {torch.device("cpu")}, self.cuda)

    def test_pins_the_shared_memory(self):
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            self.make()
        device, portable = torch.device("cpu"), 1
        self.assertEqual(
            self.cuda.pinned,
            [(memory.data_ptr(), 24, device, portable) for memory in (self.weights, self.gradient)],
        )
        self.assertEqual(caught, [])

    def test_says_once_that_memory_could_not_be_pinned_and_copies(self):
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            copies = self.make(error=2)
        self.assertEqual(len(caught), 1)
        self.assertIn("could not be pinned (cudaHostRegister: 2)", str(caught[0].message))
        self.cuda.launch(None)  # the program's next kernel does not raise the error
        copies.bring(self.parameters[0])
        copies.wait_for(3)
        self.assertEqual(self.parameters[0].tensor.tolist(), [0, 1, 2])

    def test_computations_wait_for_their_weights_alone(self):
        copies = self.make()
        for parameter in self.parameters:
            copies.bring(parameter)
        copies.wait_for(2)
        self.assertEqual(self.parameters[0].tensor.tolist(), [0, 0, 0])
        copies.wait_for(3)
        self.assertEqual(self.parameters[0].tensor.tolist(), [0, 1, 2])
        self.assertEqual(self.parameters[1].tensor.tolist(), [0, 0, 0])
        copies.finish()  # before the worker writes the next weights
        self.assertEqual(self.parameters[1].tensor.tolist(), [3, 4, 5])

    def test_parameters_elsewhere_are_copied_at_once(self):
        copies = CudaCopies((self.weights, self.gradient), {torch.device("cuda", 0)}, FakeCuda())
        copies.bring(self.parameters[0])
        copies.take(self.parameters[0], torch.ones(3))
        self.assertEqual(self.parameters[0].tensor.tolist(), [0, 1, 2])
        self.assertEqual(self.gradient.tolist(), [1, 1, 1, 0, 0, 0])

    def test_gradient_is_final_when_it_has_left(self):
        copies = self.make()
        first, second = self.parameters
        copies.take(second, torch.ones(3))
        self.assertFalse(copies.is_final(second))
        self.assertTrue(copies.is_final(first))
        copies.take(first, torch.full((3,), 2.0))
        copies.finish()
        self.assertTrue(copies.is_final(second))
        self.assertEqual(self.gradient.tolist(), [2, 2, 2, 1, 1, 1])

    def test_parameters_that_move_are_copied_by_the_same_copies(self):
        copies = self.make()
        copies.take(self.parameters[1], torch.ones(3))
        moved = types.SimpleNamespace(tensor=types.SimpleNamespace(device=torch.device("cuda", 1)))
        self.assertIs(choose([moved], (self.weights, self.gradient), copies), copies)
        self.assertEqual(len(self.cuda.pinned), 2)
        self.assertFalse(copies.is_final(self.parameters[1]))

    def test_sparse_gradients_become_dense(self):
        sparse = torch.sparse_coo_tensor([[2, 0, 2]], [1.0, 5.0, 2.0], (3,))
        for copies in (HostCopies(), self.make()):
            self.gradient.fill_(7)
            copies.take(self.parameters[1], sparse)
            copies.finish()
            self.assertEqual(self.gradient.tolist(), [7, 7, 7, 5, 0, 3])


if __name__ == "__main__":
    unittest.main()
