#include "grammar/adopt.h"

#include <algorithm>
#include <memory>
#include <utility>

namespace coppice::grammar {
namespace {

bool HasRule(const Expression& part) {
  return part.kind == Expression::Kind::kRule ||
         std::any_of(part.parts.begin(), part.parts.end(),
                     [](const Part& inner) { return HasRule(*inner); });
}

// The part with numbers of rules that are higher by `more`.
Part Renumbered(const Part& part, int more) {
  if (!HasRule(*part)) return part;
  auto copy = std::make_shared<Expression>(*part);
  copy->rule += more;
  for (Part& inner : copy->parts) inner = Renumbered(inner, more);
  return copy;
}

}  // namespace

Part AdoptRules(Grammar from, Grammar* into) {
  if (from.rules.size() == 1 && !HasRule(*from.rules[0])) return from.rules[0];
  const auto first = static_cast<int>(into->rules.size());
  for (size_t rule = 0; rule < from.rules.size(); ++rule) {
    into->rules.push_back(Renumbered(from.rules[rule], first));
    into->names.push_back(std::move(from.names[rule]));
  }
  return Rule(first);
}

}  // namespace coppice::grammar
