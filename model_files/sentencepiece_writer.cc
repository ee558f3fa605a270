#include "model_files/sentencepiece_writer.h"

#include <cstring>
#include <utility>

namespace coppice::model_files {
namespace {

constexpr int kVarint = 0, kBytes = 2, kFixed32 = 5;  // wire types of Protobuf
constexpr int kBpe = 2;                               // Trainer::ModelKind

void AppendVarint(uint64_t value, std::string* out) {
  for (; value > 127; value >>= 7) out->push_back(static_cast<char>((value & 127) | 128));
  out->push_back(static_cast<char>(value));
}

void AppendInteger(int field, int64_t value, std::string* out) {
  AppendVarint(static_cast<uint64_t>(field) << 3 | kVarint, out);
  AppendVarint(static_cast<uint64_t>(value), out);
}

void AppendFloat(int field, float value, std::string* out) {
  AppendVarint(static_cast<uint64_t>(field) << 3 | kFixed32, out);
  char bytes[sizeof value];
  std::memcpy(bytes, &value, sizeof value);
  out->append(bytes, sizeof value);
}

void AppendBytes(int field, absl::string_view content, std::string* out) {
  AppendVarint(static_cast<uint64_t>(field) << 3 | kBytes, out);
  AppendVarint(content.size(), out);
  out->append(content.data(), content.size());
}

}  // namespace

void SentencePieceWriter::AddPiece(absl::string_view text, float score, int kind) {
  std::string piece;
  AppendBytes(1, text, &piece);
  AppendFloat(2, score, &piece);
  AppendInteger(3, kind, &piece);
  AppendBytes(1, piece, &message_);
  ++pieces_;
}

std::string SentencePieceWriter::Finish(const SentencePieceSettings& settings) && {
  std::string trainer, normalizer;
  AppendInteger(3, kBpe, &trainer);
  AppendInteger(4, pieces_, &trainer);
  AppendInteger(35, settings.byte_fallback, &trainer);
  AppendInteger(40, settings.unknown, &trainer);
  AppendInteger(41, settings.bos, &trainer);
  AppendInteger(42, settings.eos, &trainer);
  AppendBytes(1, "identity", &normalizer);
  AppendInteger(3, settings.space_first, &normalizer);
  AppendInteger(4, settings.joins_spaces, &normalizer);
  AppendInteger(5, true, &normalizer);
  AppendBytes(2, trainer, &message_);
  AppendBytes(3, normalizer, &message_);
  return std::move(message_);
}

}  // namespace coppice::model_files
