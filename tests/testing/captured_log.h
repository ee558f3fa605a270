// What a test's code writes to the log, while this lives. One at a time; not while other threads
// change the logger.
#pragma once

#include <spdlog/sinks/ostream_sink.h>
#include <spdlog/spdlog.h>

#include <memory>
#include <sstream>
#include <string>

namespace coppice::test {

class CapturedLog {
 public:
  CapturedLog() {
    auto logger = std::make_shared<spdlog::logger>(
        "test", std::make_shared<spdlog::sinks::ostream_sink_mt>(text_));
    logger->set_pattern("%l %v");
    spdlog::set_default_logger(std::move(logger));
  }
  ~CapturedLog() { spdlog::set_default_logger(before_); }
  CapturedLog(const CapturedLog&) = delete;
  CapturedLog& operator=(const CapturedLog&) = delete;

  // Lines "warning text".
  std::string text() const { return text_.str(); }

 private:
  std::ostringstream text_;
  const std::shared_ptr<spdlog::logger> before_ = spdlog::default_logger();
};

}  // namespace coppice::test
