#include "lab/golden/recorded_choices.h"

#include "absl/strings/str_cat.h"
#include "sampling/rng.h"

namespace coppice::golden {
namespace {

const char* DomainName(sampling::Domain domain) {
  return domain == sampling::Domain::kDraft    ? "DRAFT"
         : domain == sampling::Domain::kDirect ? "DIRECT"
                                               : "RESIDUAL";
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
    const uint64_t hash = draw.distribution.rows[entry.beam].hash;
    check->True(
        absl::StrCat(name, ".u[", i, "].path"),
        sampling::ExtendHash(hash, entry.token) == sampling::HashPath(Path(u[i].at("path"))));
    check->Near(
        absl::StrCat(name, ".u[", i, "].u"),
        sampling::Uniform(seeding.seed, draw.domain, sampling::EpochHash(hash, seeding.epoch),
                          draw.slot, static_cast<uint32_t>(entry.token)),
        u[i].at("u").get<double>(), 0.0);
  }
  const Json winners =
      want.contains("winners") ? want.at("winners") : Json::array({want.at("winner")});
  check->Equal(name + ": winners", draw.winners.size(), winners.size());
  for (size_t i = 0; i < draw.winners.size() && i < winners.size(); ++i) {
    const decoding::Entry winner = draw.winners[i];
    check->True(absl::StrCat(name, ".winners[", i, "]"),
                sampling::ExtendHash(draw.distribution.rows[winner.beam].hash, winner.token) ==
                    sampling::HashPath(Path(winners[i])));
  }
}

}  // namespace coppice::golden
