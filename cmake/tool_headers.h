// Precompiled for the tools (CoppiceTargets.cmake).
#pragma once

#include <nlohmann/json.hpp>

#include "cmake/library_headers.h"
