// Reads the file of --suffix_corpus: text or token ids in which drafts are looked for
// (worker/suffix_drafts.h). Called once at the start, before the replica joins.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "decoding/suffix_corpus.h"

namespace coppice::worker {

struct SuffixCorpusFile {
  std::string path;  // "": none
  // Bytes that the corpus may take.
  int64_t most_bytes = int64_t{512} << 20;
};

// A name that ends in .ids: a document a line, token ids with spaces between them. Any other: one
// text in UTF-8, which the tokenizer in `model` (a folder or file) encodes. nullptr: no path.
// InvalidArgument names the file and the line of an id that the vocabulary does not have,
// ResourceExhausted the bytes that it would take. on_progress, if there is one, is called again and
// again.
absl::StatusOr<std::shared_ptr<const decoding::SuffixCorpus>> LoadSuffixCorpus(
    const SuffixCorpusFile& file, const std::string& model, int vocab_size,
    const std::function<void()>& on_progress = nullptr);

}  // namespace coppice::worker
