// Precompiled for tests (CoppiceTargets.cmake): GoogleTest and what most tests include.
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "cmake/library_headers.h"
