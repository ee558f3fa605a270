// The format of the whole answer of a chat: reasoning, calls of tools, and the format that the
// request asks for, put together as a structural tag. Called by api when the prompt is known.
#pragma once

#include "coordinator/api/api.h"
#include "coordinator/api/json_fields.h"

namespace coppice::coordinator {

// Changes request->params.format_spec to that of the whole answer, if request->syntax has tools, or
// has reasoning before a format. request->asked_format keeps what the request asks for.
void BindAnswer(const ApiContext& context, JsonFields* fields, GenerateRequest* request);

// Why the format of a whole answer cannot be read: the path of a field and what is wrong there.
// error: what reading the whole format gave.
ApiError BoundFormatError(const ApiContext& context, const GenerateRequest& request,
                          absl::string_view error);

// A place in the format of the answer (a JSON pointer) as a path in the request.
std::string PlaceInRequest(const GenerateRequest& request, absl::string_view pointer);

}  // namespace coppice::coordinator
