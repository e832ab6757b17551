// Parses a large JSON message on another thread, up to the values that only JavaScript can create.
#ifndef PROCWIRE_NET_SCAN_JOB_H
#define PROCWIRE_NET_SCAN_JOB_H

#include "core/napi-call.h"

namespace procwire {

// Names of TokenKind, in order.
napi_value tokenKinds(napi_env env);

// (message, maxValues, maxDepth, onDone)
napi_value startMessageScan(napi_env env, napi_callback_info info);

}  // namespace procwire

#endif
