#include "lab/reference/flags_page.h"

#include "base/program_help.h"
#include "coordinator/options.h"
#include "draft_node/draft_flags.h"
#include "loadgen/options.h"
#include "worker/worker_flags.h"

namespace coppice::reference {
namespace {

constexpr char kHead[] =
    R"(# Flags of the programs

Every flag of the programs of a cluster and of the load generator: what it may be, its default, what it does. `--help`
of a program prints the same list. A worker and a draft node have the groups "Model and passes", "Cluster" and "Energy"
in common.

Flags of the coordinator, the worker and the draft node may also be given in the environment (`COPPICE_` and the flag's
name in capitals) or in a configuration file for the whole cluster ([api.md](api.md) 7). `--flagfile=FILE` reads flags
from a file, one in each line. A flag that is true or false may be given by its name alone, or with `no` before the
name.

The page is written from the programs' tables of flags: `coppice-reference flags > docs/flags.md`. A test fails when it
is stale.

)";

}  // namespace

std::string FlagsPage() {
  coordinator::LaunchOptions coordinator;
  worker::WorkerFlags worker;
  draft_node::DraftFlags draft;
  loadgen::LoadgenFlags loadgen;
  std::string page = kHead;
  page += FlagsChapter(Flags(coordinator::CoordinatorFlagTable(&coordinator))) + "\n";
  page += FlagsChapter(Flags(worker::WorkerFlagTable(&worker))) + "\n";
  page += FlagsChapter(Flags(draft_node::DraftFlagTable(&draft))) + "\n";
  page += FlagsChapter(Flags(loadgen::LoadgenFlagTable(&loadgen)));
  return page;
}

}  // namespace coppice::reference
