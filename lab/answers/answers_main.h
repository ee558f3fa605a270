// The program coppice-answers: records answers, or compares this build's answers with a recording.
#pragma once

namespace coppice::answers {

// The exit status: 0, or 1 when an answer differs, 2 when nothing could be compared.
int AnswersMain(int argc, char** argv);

}  // namespace coppice::answers
