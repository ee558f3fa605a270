#include <cstdio>
#include <string>
#include <string_view>

#include "tools/reference/parameter_page.h"

int main(int argc, char** argv) {
  if (argc > 1) {
    const bool help = argc == 2 && std::string_view(argv[1]) == "--help";
    std::fputs("usage: coppice-reference > docs/parameters.md\n", help ? stdout : stderr);
    return help ? 0 : 2;
  }
  const std::string page = coppice::reference::ParameterPage();
  return std::fwrite(page.data(), 1, page.size(), stdout) == page.size() ? 0 : 1;
}
