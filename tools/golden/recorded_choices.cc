#include "tools/golden/recorded_choices.h"

#include "absl/strings/str_cat.h"
#include "base/rng.h"

namespace coppice::golden {
namespace {

const char* DomainName(Domain domain) {
  return domain == Domain::kDraft ? "DRAFT" : domain == Domain::kDirect ? "DIRECT" : "RESIDUAL";
}

}  // namespace

void CheckDraw(const std::string& name, const Seeding& seeding, const RecordedDraw& draw,
               const Json& want, CaseCheck* check) {
  check->Equal(name + ".domain", DomainName(draw.domain), want.at("domain"));
  check->Equal(name + ".slot", draw.slot, want.at("slot"));
  const Json& u = want.at("u");
  check->Equal(name + ": entries of positive mass", draw.entries.size(), u.size());
  for (size_t i = 0; i < draw.entries.size() && i < u.size(); ++i) {
    const decoding::Entry entry = draw.entries[i].entry;
    const uint64_t hash = draw.law.rows[entry.beam].hash;
    check->True(absl::StrCat(name, ".u[", i, "].path"),
                ExtendHash(hash, entry.token) == HashPath(Path(u[i].at("path"))));
    check->Near(absl::StrCat(name, ".u[", i, "].u"),
                Uniform(seeding.seed, draw.domain, EpochHash(hash, seeding.epoch), draw.slot,
                        static_cast<uint32_t>(entry.token)),
                u[i].at("u").get<double>(), 0.0);
  }
  const Json winners =
      want.contains("winners") ? want.at("winners") : Json::array({want.at("winner")});
  check->Equal(name + ": winners", draw.winners.size(), winners.size());
  for (size_t i = 0; i < draw.winners.size() && i < winners.size(); ++i) {
    const decoding::Entry winner = draw.winners[i];
    check->True(
        absl::StrCat(name, ".winners[", i, "]"),
        ExtendHash(draw.law.rows[winner.beam].hash, winner.token) == HashPath(Path(winners[i])));
  }
}

}  // namespace coppice::golden
