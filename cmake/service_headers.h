// Precompiled for the coordinator (CoppiceTargets.cmake).
#pragma once

#include <nlohmann/json.hpp>

#include "cmake/library_headers.h"
#include "cmake/log_headers.h"
#include "proto/control.pb.h"
