#ifndef PROCWIRE_PROCESS_BINDINGS_H
#define PROCWIRE_PROCESS_BINDINGS_H

#include "core/call.h"

namespace procwire {

void bindProcesses(napi_env env, Bindings& bindings);

}  // namespace procwire

#endif
