import type { Credential } from "./credential.ts";

/** The identity that a connection acts for. Only operators see the sessions of other principals. */
export interface Principal {
  /**
   * `local`, `token`, `operator`, `uid:UID`, `jwt` (no subject), `jwt:SUBJECT`, `cert:SUBJECT` (client certificate) or
   * `share:NUMBER` (share token).
   */
  readonly id: string;
  /** An operator sees, and can take over, the sessions of all principals. */
  readonly role: "user" | "operator";
  /**
   * Set if the connection authenticated with a share token: it may use this process, in this role, and nothing else.
   */
  readonly share?: ShareGrant | undefined;
  /** The token or certificate that the client sent. Absent without authentication. */
  readonly credential?: Credential | undefined;
}

export interface ShareGrant {
  readonly handle: string;
  readonly role: "viewer" | "driver";
  /** Id of the principal that created the token. */
  readonly createdBy: string;
  /** Expiry by the server's monotonic clock, in milliseconds. */
  readonly expiresAtMs: number;
}

/** The principal of every client of a server without authentication, of stdio, and of in-process clients. */
export const LOCAL_PRINCIPAL: Principal = { id: "local", role: "user" };

/** Returns the id of the principal whose quotas count the resources. Guests count for the creator of their share token. */
export const quotaOwner = ({ id, share }: Principal): string => share?.createdBy ?? id;

export function canAccess(principal: Principal, ownerId: string): boolean {
  return principal.role === "operator" || principal.id === ownerId;
}

/** Reports whether the principal is the user that runs the server. */
export function isServerUser({ id }: Principal): boolean {
  return id === LOCAL_PRINCIPAL.id || id === `uid:${process.geteuid?.()}`;
}
