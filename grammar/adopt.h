// A grammar inside of another one. Pure.
#pragma once

#include "grammar/expression.h"

namespace coppice::grammar {

// The texts of rule 0 of a grammar, whose rules are added to *into if it needs them.
Part AdoptRules(Grammar from, Grammar* into);

}  // namespace coppice::grammar
