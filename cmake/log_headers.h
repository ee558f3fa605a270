// spdlog for the precompiled headers of the kinds that log (CoppiceTargets.cmake).
#pragma once

#include <spdlog/spdlog.h>

// A message with arguments makes the whole of fmt 9's formatting again in every file, four seconds
// each, though libfmt has it: fmt 9 does not declare it so, fmt 10 does.
#if defined(SPDLOG_FMT_EXTERNAL) && !defined(FMT_HEADER_ONLY) && FMT_VERSION / 10000 == 9
extern template void fmt::detail::vformat_to<char>(fmt::detail::buffer<char>&, fmt::string_view,
                                                   fmt::basic_format_args<fmt::format_context>,
                                                   fmt::detail::locale_ref);
#endif
