// The runners of every algorithm that a golden file may name; golden_file.cc has the table. All of
// them drive production code.
#pragma once

#include "lab/golden/golden_case.h"

namespace coppice::golden {

// basic_cases.cc
void RunRng(const Json& inputs, const Json& expected, CaseCheck* check);
void RunHashLm(const Json& inputs, const Json& expected, CaseCheck* check);
void RunFinalSelection(const Json& inputs, const Json& expected, CaseCheck* check);
// acceptance_cases.cc
void RunAlphaStar(const Json& inputs, const Json& expected, CaseCheck* check);
void RunAlphaStarLarge(const Json& inputs, const Json& expected, CaseCheck* check);
// lossy_cases.cc
void RunMjsdMjgd(const Json& inputs, const Json& expected, CaseCheck* check);
void RunBild(const Json& inputs, const Json& expected, CaseCheck* check);
// joint_cases.cc
void RunSampling(const Json& inputs, const Json& expected, CaseCheck* check);
void RunJointGumbelCoupling(const Json& inputs, const Json& expected, CaseCheck* check);
// distribution_cases.cc
void RunBeamSampling(const Json& inputs, const Json& expected, CaseCheck* check);
void RunBeamDistributionTwoLayers(const Json& inputs, const Json& expected, CaseCheck* check);
// dsbd_cases.cc
void RunDsbdLayer(const Json& inputs, const Json& expected, CaseCheck* check);
void RunDsbdSurvivors(const Json& inputs, const Json& expected, CaseCheck* check);
void RunDsbdWidth(const Json& inputs, const Json& expected, CaseCheck* check);
// dsbd_wor_cases.cc
void RunDsbdWorLayer(const Json& inputs, const Json& expected, CaseCheck* check);
// node_cases.cc
void RunRrsIid(const Json& inputs, const Json& expected, CaseCheck* check);
void RunRrsWithoutReplacement(const Json& inputs, const Json& expected, CaseCheck* check);
void RunKSeq(const Json& inputs, const Json& expected, CaseCheck* check);
void RunLuceOt(const Json& inputs, const Json& expected, CaseCheck* check);
void RunGreedySpecHub(const Json& inputs, const Json& expected, CaseCheck* check);
// sequence_cases.cc
void RunSpecDecode(const Json& inputs, const Json& expected, CaseCheck* check);
void RunTreeBlockLengths(const Json& inputs, const Json& expected, CaseCheck* check);
void RunBlockVerify(const Json& inputs, const Json& expected, CaseCheck* check);
// seeded_sequence_cases.cc: the kinds of seeded_rejection that decode one sequence
void RunSeededSequence(const Json& inputs, const Json& expected, CaseCheck* check);
// seeded_cases.cc
void RunSeededRejection(const Json& inputs, const Json& expected, CaseCheck* check);
// decode_cases.cc
void RunGumbelCoupling(const Json& inputs, const Json& expected, CaseCheck* check);
void RunGumbelTopK(const Json& inputs, const Json& expected, CaseCheck* check);
void RunSpecSearch(const Json& inputs, const Json& expected, CaseCheck* check);
void RunGumbelTopKSpec(const Json& inputs, const Json& expected, CaseCheck* check);
void RunEosDecode(const Json& inputs, const Json& expected, CaseCheck* check);
void RunSearchOptions(const Json& inputs, const Json& expected, CaseCheck* check);
void RunEosCertificate(const Json& inputs, const Json& expected, CaseCheck* check);

}  // namespace coppice::golden
