#!/usr/bin/env python3
"""Tests of translate.py: what it cannot translate is an error that names it."""

import pathlib
import subprocess
import sys
import tempfile
import unittest

TRANSLATE = pathlib.Path(__file__).with_name("translate.py")
KERNEL = """.visible .entry Add(
\t.param .u64 Add_param_0
)
{{
\t.reg .f32 \t%f<3>;
\t.reg .b64 \t%rd<2>;
\tld.param.u64 \t%rd1, [Add_param_0];
\tld.global.f32 \t%f1, [%rd1+4];
\t{instruction}
\tst.global.f32 \t[%rd1], %f2;
\tret;
}}
"""


def translate(instruction):
    with tempfile.NamedTemporaryFile("w", suffix=".ptx") as file:
        file.write(KERNEL.format(instruction=instruction))
        file.flush()
        return subprocess.run(
            [sys.executable, TRANSLATE, file.name], capture_output=True, text=True, check=False
        )


class TranslateTest(unittest.TestCase):
    def test_translates_an_instruction(self):
        result = translate("add.f32 \t%f2, %f1, 0f3F800000;")
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertIn("r.f2 = r.f1 + Float(0x3F800000u);", result.stdout)
        self.assertIn("r.f1 = Load<float>(reinterpret_cast<char*>(r.rd1) + 4 + 0);", result.stdout)

    def test_counts_instructions_and_accesses_to_memory(self):
        result = translate("div.rn.f32 \t%f2, %f1, %f1;\n\tst.global.v2.f32 \t[%rd1+8], {%f1, %f2};")
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertIn(
            "activity.instructions += 15;", result.stdout, "a division is 10, the five others 1 each"
        )
        self.assertIn("RecordRead(reinterpret_cast<char*>(r.rd1) + 4, 4);", result.stdout)
        self.assertIn("RecordWrite(reinterpret_cast<char*>(r.rd1) + 8, 8);", result.stdout)
        self.assertIn("Store<float>(reinterpret_cast<char*>(r.rd1) + 8 + 4, r.f2);", result.stdout)

    def test_translates_the_high_half_of_a_product(self):
        self.assertIn(
            "r.r1 = static_cast<uint32_t>(uint64_t{static_cast<uint32_t>(r.r2)} * "
            "static_cast<uint32_t>(r.r3) >> 32);",
            translate("mul.hi.u32 \t%r1, %r2, %r3;").stdout,
        )

    def test_translates_a_pair_of_halves(self):
        self.assertIn(
            "r.r1 = uint32_t{static_cast<uint16_t>(r.rs1)} | uint32_t{static_cast<uint16_t>(r.rs2)} << 16;",
            translate("mov.b32 \t%r1, {%rs1, %rs2};").stdout,
        )
        self.assertIn(
            "r.rs1 = static_cast<uint16_t>(r.r1 >> 0); r.rs2 = static_cast<uint16_t>(r.r1 >> 16);",
            translate("mov.b32 \t{%rs1, %rs2}, %r1;").stdout,
        )
        self.assertIn(
            "unknown instruction: mov.b64 {%r1, %r2}", translate("mov.b64 \t{%r1, %r2}, %rd1;").stderr
        )

    def test_translates_the_address_of_a_parameter(self):
        result = translate("mov.b64 \t%rd1, Add_param_0;\n\tld.param.u32 \t%r1, [%rd1+8];")
        self.assertIn("r.rd1 = reinterpret_cast<uint64_t>(parameters[0]);", result.stdout)
        self.assertIn("r.r1 = Load<uint32_t>(reinterpret_cast<char*>(r.rd1) + 8 + 0);", result.stdout)

    def test_translates_an_increment_up_to_a_limit(self):
        result = translate("atom.global.inc.u32 \t%r1, [%rd1+4], %r2;")
        self.assertIn("r.r1 = Load<uint32_t>(reinterpret_cast<char*>(r.rd1) + 4);", result.stdout)
        self.assertIn("r.r1 >= r.r2 ? 0 : r.r1 + 1);", result.stdout)
        self.assertEqual(translate("membar.gl;").returncode, 0)

    def test_translates_a_half_to_a_float(self):
        self.assertIn("r.f2 = FromHalfBits(r.rs1);", translate("{  cvt.f32.f16 %f2, %rs1;}").stdout)

    def test_names_what_it_does_not_know(self):
        for instruction in (
            "sin.approx.f32 \t%f2, %f1;",
            "add.rp.f32 \t%f2, %f1, %f1;",
            "cvt.rni.f32.f32 \t%f2, %f1;",
        ):
            result = translate(instruction)
            self.assertNotEqual(result.returncode, 0, instruction)
            self.assertIn("kernel Add: unknown instruction: " + instruction.split()[0], result.stderr)

    def test_refuses_a_barrier_under_a_condition(self):
        result = translate("@%p1 bar.sync \t0;")
        self.assertIn("kernel Add: a barrier under a condition", result.stderr)


if __name__ == "__main__":
    unittest.main()
