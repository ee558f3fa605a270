// Precompiled for the programs of the nodes and what they share (CoppiceTargets.cmake).
#pragma once

#include "cmake/library_headers.h"
#include "cmake/log_headers.h"
#include "proto/control.pb.h"
#include "proto/draft.pb.h"
#include "proto/plan.pb.h"
