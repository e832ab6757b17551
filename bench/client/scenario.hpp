// Options, results and phases of a scenario.
#pragma once

#include "exec-client.hpp"

using Words = std::vector<std::string>;

class Options {
 public:
  explicit Options(const Words& words) {
    for (const auto& word : words) {
      size_t equals = word.find('=');
      if (equals == std::string::npos) fail("expected key=value, got " + word);
      values_[word.substr(0, equals)] = word.substr(equals + 1);
    }
  }
  long number(const std::string& key, long otherwise) const {
    auto found = values_.find(key);
    return found == values_.end() ? otherwise : atol(found->second.c_str());
  }
  std::string text(const std::string& key, const std::string& otherwise) const {
    auto found = values_.find(key);
    return found == values_.end() ? otherwise : found->second;
  }

 private:
  std::map<std::string, std::string> values_;
};

class Report {
 public:
  Report& add(const char* key, double value) {
    char text[64];
    snprintf(text, sizeof text, "%.6g", value);
    line_ += (line_.empty() ? "{" : ",") + quoted(key) + ":" + text;
    return *this;
  }
  Report& percentiles(std::vector<double> samples) {
    if (samples.empty()) fail("no samples");
    std::sort(samples.begin(), samples.end());
    auto at = [&](double part) {
      return samples[std::min(samples.size() - 1, static_cast<size_t>(part * static_cast<double>(samples.size())))];
    };
    return add("p50", at(0.5))
        .add("p90", at(0.9))
        .add("p99", at(0.99))
        .add("max", samples.back())
        .add("samples", static_cast<double>(samples.size()));
  }
  void print() { printf("%s,\"clientCpu\":%.4f}\n", line_.c_str(), cpuSeconds()); }

 private:
  std::string line_;
};

/// Notifies the benchmark that it can measure now, and waits for its reply.
inline void hold(const char* phase) {
  printf("{\"phase\":\"%s\"}\n", phase);
  fflush(stdout);
  char byte;
  while (::read(0, &byte, 1) == 1 && byte != '\n') {}
}
