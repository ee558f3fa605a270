// Whether a catalogue was compiled for the tokenizer of a model. Called where a catalogue is opened
// for a model. Pure.
#pragma once

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "catalogue/catalogue.h"
#include "tokenizer/vocabulary.h"

namespace coppice::catalogue {

// Of the bytes of every token, and of which are special; the same on every machine.
uint64_t VocabularyFingerprint(const tokenizer::Vocabulary& vocabulary);

// InvalidArgument "PATH: compiled for another tokenizer than that of MODEL".
absl::Status CheckVocabulary(const Catalogue& catalogue, const tokenizer::Vocabulary& vocabulary,
                             const std::string& model);

}  // namespace coppice::catalogue
