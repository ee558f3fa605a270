#include <cstdio>
#include <string>

#include "tools/reference/parameter_page.h"

int main() {
  const std::string page = coppice::reference::ParameterPage();
  return std::fwrite(page.data(), 1, page.size(), stdout) == page.size() ? 0 : 1;
}
