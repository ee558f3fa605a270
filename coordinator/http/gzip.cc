#include "coordinator/http/gzip.h"

#include <zlib.h>

#include <algorithm>
#include <new>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"

namespace coppice::coordinator {
namespace {

constexpr int kGzipWindow = 15 + 16;  // zlib: the largest window, in a gzip file
constexpr int kMemory = 8;
constexpr size_t kTrailer = 8;  // bytes of a gzip file's checksum and size
constexpr size_t kLeastFile = 10 + 2 + kTrailer;
constexpr size_t kGrowth = 64 << 10;
constexpr size_t kMostRatio = 1032;  // of a content to its file: no deflate does better
constexpr char kWrongSize[] = "it does not have the size it says";

bool IsGzip(absl::string_view coding) {
  return absl::EqualsIgnoreCase(coding, "gzip") || absl::EqualsIgnoreCase(coding, "x-gzip");
}

// The weight of an element of Accept-Encoding, whose parameters these are. A faulty one is 0.
double WeightIn(absl::string_view parameters) {
  double weight = 1;
  for (absl::string_view parameter : absl::StrSplit(parameters, ';', absl::SkipWhitespace())) {
    parameter = absl::StripAsciiWhitespace(parameter);
    if (!absl::StartsWithIgnoreCase(parameter, "q=")) continue;
    if (!absl::SimpleAtod(parameter.substr(2), &weight) || !(weight >= 0 && weight <= 1)) return 0;
  }
  return weight;
}

Bytef* BytesOf(absl::string_view text) {  // zlib does not write to its input
  return reinterpret_cast<Bytef*>(const_cast<char*>(text.data()));
}

}  // namespace

bool PrefersGzip(absl::string_view accept_encoding) {
  std::optional<double> gzip, identity, any;
  for (const absl::string_view element : absl::StrSplit(accept_encoding, ',')) {
    const size_t end = std::min(element.find(';'), element.size());
    const absl::string_view coding = absl::StripAsciiWhitespace(element.substr(0, end));
    const double weight = WeightIn(element.substr(end));
    if (IsGzip(coding)) {
      gzip = std::max(gzip.value_or(0), weight);
    } else if (absl::EqualsIgnoreCase(coding, "identity")) {
      identity = weight;
    } else if (coding == "*") {
      any = weight;
    }
  }
  const double of_gzip = gzip.value_or(any.value_or(0));
  return of_gzip > 0 && of_gzip >= identity.value_or(0);
}

std::optional<bool> IsGzipCoding(absl::string_view content_encoding) {
  bool gzip = false;
  for (absl::string_view coding : absl::StrSplit(content_encoding, ',')) {
    coding = absl::StripAsciiWhitespace(coding);
    if (coding.empty() || absl::EqualsIgnoreCase(coding, "identity")) continue;
    if (gzip || !IsGzip(coding)) return std::nullopt;
    gzip = true;
  }
  return gzip;
}

std::optional<std::string> Gzip(absl::string_view text, GzipEffort effort) {
  z_stream zlib{};
  const int level = effort == GzipEffort::kFast ? Z_BEST_SPEED : Z_BEST_COMPRESSION;
  if (deflateInit2(&zlib, level, Z_DEFLATED, kGzipWindow, kMemory, Z_DEFAULT_STRATEGY) != Z_OK)
    return std::nullopt;
  const absl::Cleanup end = [&zlib] { deflateEnd(&zlib); };
  try {
    std::string file;
    zlib.next_in = BytesOf(text);
    size_t left = text.size();
    int result = Z_OK;
    while (result != Z_STREAM_END) {
      // zlib counts in 32 bits.
      const uInt piece = static_cast<uInt>(std::min<size_t>(left, 1 << 30));
      const size_t before = file.size();
      file.resize(before + kGrowth);
      zlib.next_out = reinterpret_cast<Bytef*>(&file[before]);
      zlib.avail_out = kGrowth;
      zlib.avail_in = piece;
      result = deflate(&zlib, piece == left ? Z_FINISH : Z_NO_FLUSH);
      if (result != Z_OK && result != Z_STREAM_END) return std::nullopt;
      left -= piece - zlib.avail_in;
      file.resize(before + kGrowth - zlib.avail_out);
    }
    return file;
  } catch (const std::bad_alloc&) {
    return std::nullopt;
  }
}

size_t GunzippedSize(absl::string_view file) {
  if (file.size() < kLeastFile) return 0;
  size_t size = 0;
  for (int i = 0; i < 4; ++i)
    size |= static_cast<size_t>(static_cast<unsigned char>(file[file.size() - 4 + i])) << (8 * i);
  return size;
}

absl::StatusOr<std::string> Gunzip(absl::string_view file, size_t most) {
  const size_t size = GunzippedSize(file);
  if (!absl::StartsWith(file, "\x1f\x8b"))
    return absl::InvalidArgumentError("it does not begin like one");
  if (size / kMostRatio > file.size()) return absl::InvalidArgumentError(kWrongSize);
  if (size > most) return absl::ResourceExhaustedError(absl::StrCat("it is of ", size, " bytes"));
  z_stream zlib{};
  if (inflateInit2(&zlib, kGzipWindow) != Z_OK)
    return absl::InternalError("there is no memory for zlib");
  const absl::Cleanup end = [&zlib] { inflateEnd(&zlib); };
  std::string text(size + 1, '\0');  // a byte more, so that zlib can reach the end of the file
  zlib.next_in = BytesOf(file);
  zlib.avail_in = static_cast<uInt>(file.size());
  zlib.next_out = reinterpret_cast<Bytef*>(text.data());
  zlib.avail_out = static_cast<uInt>(text.size());
  if (inflate(&zlib, Z_FINISH) != Z_STREAM_END) {
    return absl::InvalidArgumentError(zlib.msg != nullptr ? zlib.msg : kWrongSize);
  }
  if (zlib.avail_in != 0) return absl::InvalidArgumentError("bytes follow the end of the file");
  text.resize(zlib.total_out);
  return text;
}

}  // namespace coppice::coordinator
