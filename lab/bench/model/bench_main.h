// coppice-bench: what passes of a model and single ops take, beside what this machine allows. Each
// measurement is one line of JSON.
#pragma once

namespace coppice::bench {

int BenchMain(int argc, char** argv);

}  // namespace coppice::bench
