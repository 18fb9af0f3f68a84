#!/usr/bin/env python3
"""What the job makes of models in low precision. With the real daemons: torch_models.py. Needs PyTorch 2.1 or newer."""
import os
import sys
import unittest

sys.path.insert(0, "tests/python")
sys.path.insert(0, os.path.abspath("python"))
import torch_models  # noqa: E402
from torch_case import TorchCase  # noqa: E402


class ModelsTest(TorchCase):
    def trained(self, variant, *fields, **more):
        return self.attached(variant, *self.sets("epochs=1", *fields), program="torch_models", **more)

    def test_optimizer_that_moves_nothing_moves_no_weight(self):
        for preset, precision in (*((preset, "bfloat16") for preset in torch_models.PRESETS), ("diloco", "float16"),
                                  ("diloco", "float32")):
            with self.subTest(preset, precision=precision):
                self.trained("rests-" + precision, "algorithm.preset=" + preset, *torch_models.PRESETS[preset])
                self.assertIn("no move was sent", self.logs)


if __name__ == "__main__":
    unittest.main()
