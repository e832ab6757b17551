#include "net/scan-job.h"

#include <string.h>

#include <memory>
#include <optional>
#include <string_view>

#include "core/job-queue.h"
#include "net/message-scan.h"

namespace procwire {
namespace {

constexpr const char* kTokenKinds[] = {"object", "objectEnd", "array",   "arrayEnd",     "ascii",  "utf8",
                                       "raw",    "asciiKey",  "utf8Key", "rawKey",       "number", "true",
                                       "false",  "null",      "bytes",   "invalidBase64"};
static_assert(sizeof kTokenKinds / sizeof kTokenKinds[0] == static_cast<size_t>(TokenKind::kInvalidBase64) + 1,
              "one name per kind");

// Messages that are parsed at once. Further ones wait.
constexpr size_t kMaxThreads = 2;

class ScanJob : public Job {
 public:
  Bytes message;
  // Keeps the message until the job is delivered.
  ValueRef owner;
  ValueRef onDone;
  ScanLimits limits;
  ScanResult result;

  void run() override {
    mailbox->whileOpen([this] { result = scanMessage(message.data, message.length, limits); });
  }
  // Without a thread, the loop scans the message itself.
  void fail(int) override { run(); }

  // `src/native/addon.ts` declares the result as NativeScanResult.
  void deliver(Loop& loop) override {
    napi_env env = loop.env();
    HandleScope scope(env);
    ObjectBuilder value(env);
    value.set("isUtf8", result.isUtf8);
    value.set("problem", result.problem.empty() ? std::nullopt : std::optional<std::string_view>(result.problem));
    const size_t bytes = result.tokens.size() * sizeof(uint32_t);
    void* memory;
    napi_value buffer, tokens;
    if (NAPI_OK(napi_create_arraybuffer(env, bytes, &memory, &buffer)) &&
        NAPI_OK(napi_create_typedarray(env, napi_uint32_array, result.tokens.size(), buffer, 0, &tokens))) {
      if (bytes > 0) memcpy(memory, result.tokens.data(), bytes);
      value.set("tokens", tokens);
    }
    ArrayBuilder texts(env);
    for (const std::string& text : result.texts) texts.push(std::string_view(text));
    value.set("texts", texts.get());
    napi_value argument = value.get();
    napi_value done = onDone.get();
    onDone.reset();
    owner.reset();
    loop.call(done, 1, &argument);
  }
};

JobQueue& scanJobs() {
  static JobQueue* const shared = new JobQueue("procwire-json", kMaxThreads);
  return *shared;
}

}  // namespace

napi_value tokenKinds(napi_env env) { return nameList(env, kTokenKinds); }

napi_value startMessageScan(napi_env env, napi_callback_info info) {
  Call call(env, info);
  auto job = std::make_unique<ScanJob>();
  job->message = call[0].bytes();
  job->owner = call[0].ref();
  job->limits = {static_cast<uint32_t>(call[1].number()), static_cast<uint32_t>(call[2].number())};
  job->onDone = call[3].ref();
  scanJobs().submit(std::move(job), call.loop()->reserveMail());
  return nullptr;
}

}  // namespace procwire
