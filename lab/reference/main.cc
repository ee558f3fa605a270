#include <cstdio>
#include <string>
#include <string_view>

#include "coordinator/api/openapi.h"
#include "coordinator/api/unserved_fields.h"
#include "lab/reference/flags_page.h"
#include "lab/reference/parameter_page.h"

int main(int argc, char** argv) {
  const std::string_view argument = argc == 2 ? argv[1] : "";
  if (argc > 1 && argument != "endpoints" && argument != "unserved" && argument != "flags") {
    const bool help = argument == "--help";
    std::fputs(
        "usage: coppice-reference [endpoints | unserved | flags]\n"
        "prints docs/parameters.md, a table of docs/api.md, or docs/flags.md\n",
        help ? stdout : stderr);
    return help ? 0 : 2;
  }
  const std::string page = argument == "endpoints"  ? coppice::coordinator::EndpointTable()
                           : argument == "unserved" ? coppice::coordinator::UnservedFieldTable()
                           : argument == "flags"    ? coppice::reference::FlagsPage()
                                                    : coppice::reference::ParameterPage();
  return std::fwrite(page.data(), 1, page.size(), stdout) == page.size() ? 0 : 1;
}
