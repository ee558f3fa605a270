#include "comm/secure_link.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "comm/frame.h"

namespace coppice::comm {
namespace {

constexpr size_t kRecordsBytes = 128 << 10;
constexpr char kOtherKey[] = "it has another cluster key";

static_assert(kRecordsBytes >= 2 + SecureLink::kMostSealed);

std::string Prologue() { return absl::StrCat("coppice direct 1, frames ", kProtocolVersion); }

size_t ReadLength(const uint8_t* bytes) { return size_t{bytes[0]} << 8 | bytes[1]; }

void AppendLength(size_t length, std::string* out) {
  out->push_back(static_cast<char>(length >> 8));
  out->push_back(static_cast<char>(length & 255));
}

absl::string_view View(const uint8_t* bytes, size_t size) {
  return {reinterpret_cast<const char*>(bytes), size};
}

}  // namespace

SecureLink::SecureLink(End end, const KeyBytes& psk, const KeyBytes& ephemeral)
    : stage_(end == End::kConnects ? Stage::kAnswer : Stage::kHello),
      handshake_(std::make_unique<NoiseHandshake>(end, psk, Prologue(), ephemeral)) {
  if (end == End::kListens) return;
  AppendLength(kHandshakeBytes, &outgoing_);
  outgoing_ += *handshake_->Write("");
}

std::string SecureLink::TakeOutgoing() { return std::exchange(outgoing_, {}); }

size_t SecureLink::Wanted() const { return stage_ == Stage::kProof ? kProofBytes : kHelloBytes; }

absl::Span<uint8_t> SecureLink::Room() {
  if (!ready()) return {early_ + end_, Wanted() - end_};
  if (records_ == nullptr) records_ = std::make_unique_for_overwrite<uint8_t[]>(kRecordsBytes);
  if (begin_ > 0) {
    std::memmove(records_.get(), records_.get() + begin_, end_ - begin_);
    end_ -= std::exchange(begin_, 0);
  }
  return {records_.get() + end_, kRecordsBytes - end_};
}

bool SecureLink::Fail(const char* why) {
  fault_ = why;
  handshake_.reset();
  return false;
}

bool SecureLink::Arrived(size_t bytes) {
  if (fault_ != nullptr) return false;
  end_ += bytes;
  if (ready()) return true;
  // A peer without a key is recognised as early as possible, for the log.
  if (stage_ != Stage::kProof && end_ >= 4 && absl::StartsWith(View(early_, end_), "COPP")) {
    return Fail("it has no cluster key");
  }
  if (end_ >= 2 && ReadLength(early_) != Wanted() - 2) return Fail("it speaks another protocol");
  if (end_ < Wanted()) return true;
  const size_t size = std::exchange(end_, 0);
  return OnMessage(View(early_ + 2, size - 2));
}

bool SecureLink::OnMessage(absl::string_view message) {
  if (stage_ == Stage::kProof) {
    uint8_t nothing;
    if (!ciphers_.receives.Open(message, "", &nothing)) return Fail(kOtherKey);
    stage_ = Stage::kReady;
    return true;
  }
  if (!handshake_->Read(message)) return Fail(kOtherKey);
  if (stage_ == Stage::kAnswer) {
    ciphers_ = handshake_->Split();
    stage_ = Stage::kReady;
    Seal("", &outgoing_);
  } else {
    const auto answer = handshake_->Write("");
    if (!answer) return Fail("its key of this connection is of small order");
    AppendLength(kHandshakeBytes, &outgoing_);
    outgoing_ += *answer;
    ciphers_ = handshake_->Split();
    stage_ = Stage::kProof;
  }
  handshake_.reset();
  return true;
}

std::optional<size_t> SecureLink::NextRecord() const {
  if (!ready() || fault_ != nullptr || end_ - begin_ < 2) return std::nullopt;
  const size_t sealed = ReadLength(records_.get() + begin_);
  if (sealed >= kTagBytes && end_ - begin_ < 2 + sealed) return std::nullopt;
  return std::max(sealed, kTagBytes) - kTagBytes;
}

bool SecureLink::OpenRecord(uint8_t* plain) {
  COPPICE_CHECK(NextRecord().has_value());
  const uint8_t* record = records_.get() + begin_;
  const size_t sealed = ReadLength(record);
  if (sealed < kTagBytes || !ciphers_.receives.Open(View(record + 2, sealed), "", plain)) {
    return Fail("a record is damaged, repeated or forged");
  }
  begin_ += 2 + sealed;
  return true;
}

void SecureLink::Seal(absl::string_view plain, std::string* records) {
  COPPICE_CHECK(ready());
  do {
    const absl::string_view part = plain.substr(0, kMostPlain);
    plain.remove_prefix(part.size());
    AppendLength(part.size() + kTagBytes, records);
    const size_t at = records->size();
    records->resize(at + part.size() + kTagBytes);
    ciphers_.sends.Seal(part, "", reinterpret_cast<uint8_t*>(records->data()) + at);
  } while (!plain.empty());
}

}  // namespace coppice::comm
