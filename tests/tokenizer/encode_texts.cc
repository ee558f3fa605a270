// Encodes texts for make_family_fixtures.py --compare. The argument is a model's folder. Each line
// of the standard input is a text as JSON. The answer to it is a line {"ids": with the tokens that
// are added to a text, "decoded": the text of those ids}.
#include <iostream>
#include <nlohmann/json.hpp>
#include <string>

#include "tokenizer/tokenizer.h"

int main(int argc, char** argv) {
  using Json = nlohmann::json;
  const auto tokenizer = coppice::tokenizer::Tokenizer::Load(argc == 2 ? argv[1] : "");
  if (!tokenizer.ok()) {
    std::cerr << tokenizer.status().message() << std::endl;
    return 2;
  }
  for (std::string line; std::getline(std::cin, line);) {
    const auto ids = (*tokenizer)->Encode(Json::parse(line).get<std::string>(), true);
    const std::string decoded = (*tokenizer)->Decode(ids, /*skip_special=*/true);
    std::cout << Json{{"ids", ids}, {"decoded", decoded}}.dump() << std::endl;
  }
  return 0;
}
