import { invalidRequest } from "../../protocol/errors.ts";
import type { MethodName, ParamsOf } from "../../protocol/methods.ts";
import type { ScopeGroup, TokenScope } from "./token-scope.ts";

/** Groups of which one grants the method; null: every scope does. A new method without an entry is a type error. */
export const METHOD_SCOPES: Readonly<Record<MethodName, readonly ScopeGroup[] | null>> = {
  initialize: null,
  "environment/info": null,
  "environment/status": null,
  "environmentConfig/read": ["files:read"],
  "capabilityRoots/discoverV1": ["files:read"],
  "capabilities/discoverV2": ["files:read"],

  "command/exec": ["process"],
  "command/exec/write": ["process"],
  "command/exec/terminate": ["process"],

  "process/start": ["process"],
  "process/read": ["process", "attach:viewer", "attach:driver"],
  "process/write": ["process", "attach:driver"],
  "process/signal": ["process", "attach:driver"],
  "process/terminate": ["process", "attach:driver"],
  "process/closeStdin": ["process", "attach:driver"],
  "process/resize": ["process", "attach:driver"],
  "process/wait": ["process", "attach:viewer", "attach:driver"],
  "process/snapshot": ["process", "attach:viewer", "attach:driver"],
  "process/list": ["process", "attach:viewer", "attach:driver"],
  "process/attach": ["attach:viewer", "attach:driver"],
  "process/detach": ["process", "attach:viewer", "attach:driver"],
  "process/screen": ["process", "attach:viewer", "attach:driver"],
  "process/inputs": ["process", "attach:viewer", "attach:driver"],
  "process/claimQueries": ["process"],
  "process/tree": ["process", "attach:viewer", "attach:driver"],
  "process/connections": ["process", "attach:viewer", "attach:driver"],
  "process/share": ["share"],
  "process/listShares": ["share"],
  "process/revokeShare": ["share"],
  "process/kill": ["process", "attach:driver"],

  "network/ask": ["process"],
  "network/questions": ["attach:driver"],
  "network/answer": ["attach:driver"],

  "fs/readFile": ["files:read"],
  "fs/writeFile": ["files:write"],
  "fs/createDirectory": ["files:write"],
  "fs/getMetadata": ["files:read"],
  "fs/canonicalize": ["files:read"],
  "fs/readDirectory": ["files:read"],
  "fs/walk": ["files:read"],
  "fs/remove": ["files:write"],
  "fs/copy": ["files:write"],
  "fs/open": ["files:read", "files:write"],
  "fs/readBlock": ["files:read"],
  "fs/writeBlock": ["files:write"],
  "fs/close": ["files:read", "files:write"],
  "fs/watchMissing": ["files:read"],
  "fs/scan": ["files:read"],
  "fs/writeAtomic": ["files:write"],
  "fs/setAttributes": ["files:write"],
  "fs/openPartial": ["files:write"],
  "fs/checksum": ["files:read", "files:write"],
  "fs/commit": ["files:write"],

  "http/request": ["http"],

  "forward/open": ["forward"],
  "forward/write": ["forward"],
  "forward/end": ["forward"],
  "forward/close": ["forward"],
  "forward/listen": ["forward"],
  "forward/unlisten": ["forward"],
  "forward/watchPorts": ["forward"],

  "access/list": ["access"],
  "access/revoke": ["access"],
  "token/revoke": ["access"],
  "console/login": ["console"],
};

/** Groups that a call needs in addition, depending on its params. */
function additionalGroups<M extends MethodName>(method: M, params: ParamsOf<M>): ScopeGroup[] {
  switch (method) {
    case "fs/open":
      return ["mode" in params && params.mode === "replace" ? "files:write" : "files:read"];
    case "fs/copy":
      return ["files:read"];
    case "process/attach":
    case "process/share":
      return "role" in params && params.role === "driver" ? ["attach:driver"] : ["attach:viewer"];
    default:
      return [];
  }
}

/** Methods that read or use paths which no sandbox confines. A token with roots cannot use them. */
const UNCONFINED: ReadonlySet<MethodName> = new Set([
  "environmentConfig/read",
  "capabilityRoots/discoverV1",
  "capabilities/discoverV2",
  "fs/watchMissing",
]);

/** Throws if a scope does not grant a call. The error names the missing scope. */
export function requireScope<M extends MethodName>(scope: TokenScope, method: M, params: ParamsOf<M>): void {
  const groups = METHOD_SCOPES[method];
  if (groups === null) return;
  const { grants, roots, sandbox } = scope;
  const has = (grant: ScopeGroup | MethodName) => grants.includes(grant);
  if (!has(method) && !groups.some(has)) throw missingScope(method, groups);
  for (const group of additionalGroups(method, params)) {
    // The role driver includes the role viewer.
    if (!has(group) && !(group === "attach:viewer" && has("attach:driver"))) throw missingScope(method, [group]);
  }
  if (roots && UNCONFINED.has(method))
    throw invalidRequest(
      `${method} is not allowed: the token of this connection has roots, which the method cannot enforce`,
    );
  if (roots && method.startsWith("forward/") && "path" in params && params.path !== undefined)
    throw invalidRequest(`${method} to a Unix socket is not allowed: the token of this connection has roots`);
  if (sandbox && method === "command/exec")
    throw invalidRequest(
      `${method} is not allowed: the token of this connection requires a sandbox; use process/start`,
    );
}

function missingScope(method: MethodName, groups: readonly ScopeGroup[]): Error {
  const names = groups.map((group) => `\`${group}\``).join(" or ");
  return invalidRequest(`${method} is not allowed: the token of this connection lacks the scope ${names}`);
}
