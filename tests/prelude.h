// The headers that most tests include, precompiled once per build, like common/prelude.h for the libraries.
#ifndef CATCHMENT_TESTS_PRELUDE_H_
#define CATCHMENT_TESTS_PRELUDE_H_

#include "common/prelude.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

#endif  // CATCHMENT_TESTS_PRELUDE_H_
