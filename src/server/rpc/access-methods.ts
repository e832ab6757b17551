import { invalidParams, invalidRequest } from "../../protocol/errors.ts";
import type { AccessList } from "../auth/access-list.ts";
import type { Authenticator } from "../auth/authenticator.ts";
import type { Principal } from "../auth/principal.ts";
import { MAX_TOKEN_ID_CHARS } from "../auth/revoked-tokens.ts";
import type { Handlers } from "./handler-types.ts";

export interface AccessMethodDeps {
  principal: Principal;
  accesses: AccessList;
  /** Returns the authenticator of the server, or null if it has none. */
  authenticator: () => Authenticator | null;
}

/** The methods on connections, console sessions and tokens. */
export function accessMethods(deps: AccessMethodDeps): Handlers<"access/list" | "access/revoke" | "token/revoke"> {
  const { principal, accesses, authenticator } = deps;
  return {
    "access/list": async () => ({
      accesses: accesses.list(principal, (access) => access.principal === principal),
    }),
    "access/revoke": async ({ accessId }) => ({ revoked: accesses.revoke(principal, accessId) }),
    "token/revoke": async ({ tokenId }) => {
      if (tokenId.length > MAX_TOKEN_ID_CHARS)
        throw invalidParams(`tokenId must have at most ${MAX_TOKEN_ID_CHARS} characters, got ${tokenId.length}`);
      const current = authenticator();
      if (!current || current.type === "none")
        throw invalidRequest("this server has no tokens; start it with `--ws-auth signed-bearer-token`");
      return { ended: current.revoke(tokenId, principal) };
    },
  };
}
