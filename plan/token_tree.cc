#include "plan/token_tree.h"

#include <algorithm>

namespace coppice {

void TokenTree::AppendPath(TreePlace place, std::vector<TokenId>* tokens) const {
  const size_t begin = tokens->size();
  for (; !place.is_root(); place = parent[Index(place.node())])
    tokens->push_back(token[Index(place.node())]);
  std::reverse(tokens->begin() + begin, tokens->end());
}

}  // namespace coppice
