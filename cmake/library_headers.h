// Precompiled for libraries and programs (CoppiceTargets.cmake): what most files include. A file
// still includes what it uses; COPPICE_PRECOMPILE=OFF builds without.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <functional>
#include <limits>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/types/span.h"
