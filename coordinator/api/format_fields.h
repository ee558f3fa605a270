// The fields that bind the output to a format (docs/api.md 2.6), under the names of OpenAI, vLLM
// and SGLang. Called by api. Pure.
#pragma once

#include <string>

#include "coordinator/api/api.h"
#include "coordinator/api/json_fields.h"

namespace coppice::coordinator {

// Reads them into request->params.format_spec and request->format_field. `body` is the text that
// *fields reads: it has the order of keys. Errors go to *fields.
void ReadFormatFields(const std::string& body, const ApiLimits& limits, JsonFields* fields,
                      GenerateRequest* request);

// Checks whether this vocabulary can write the format of the request, and whether the format can be
// read, which may take a second. For requests whose other fields are valid.
void CheckFormatFields(const ApiContext& context, JsonFields* fields,
                       const GenerateRequest& request);

// Every sequence carries the format to its replica. Refuses requests whose copies would be too
// large.
void CheckFormatCopies(const ApiLimits& limits, JsonFields* fields, const GenerateRequest& request);

// Whether a body may have such fields. False for most bodies without them.
bool MayHaveFormat(const std::string& body);

// Whether the vocabulary can write every text of printable ASCII, and so most formats.
bool ServesFormats(const ApiContext& context);

}  // namespace coppice::coordinator
