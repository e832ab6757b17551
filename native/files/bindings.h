// Exports of `native/files` to JavaScript.
#ifndef PROCWIRE_FILES_BINDINGS_H
#define PROCWIRE_FILES_BINDINGS_H

#include "core/napi-call.h"

namespace procwire {

Bindings fileBindings(napi_env env);

}  // namespace procwire

#endif
