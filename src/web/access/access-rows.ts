import type { ExecServerClient } from "../../client/browser.ts";
import type { SignedInDevice } from "../../protocol/console/console-device-schemas.ts";
import { formatQuantity } from "../app/format.ts";
import { deviceName } from "../devices/device-name.ts";

/** A connection, console session or share link. */
export interface AccessRow {
  id: string;
  kind: "Connection" | "Console session" | "Share link";
  principal: string;
  /** Address or browser of the client; of a share link its role and guests. */
  from: string;
  sinceMs: number;
  /** Null: no expiry. */
  expiresAtMs: number | null;
  /** How the row belongs to this page; null if it does not. */
  mark: "this connection" | "this browser" | null;
  /** Process of a share link. */
  handle?: string | undefined;
  /** Effect of the revocation. */
  consequence: string;
  /** Resolves to false if it has ended already. */
  revoke: () => Promise<boolean>;
}

/** Loads all rows: console sessions, connections, then share links, each oldest first. */
export async function listAccess(
  client: ExecServerClient,
  listDevices: (signal: AbortSignal) => Promise<readonly SignedInDevice[]>,
  signal: AbortSignal,
): Promise<AccessRow[]> {
  const [{ accesses }, { shares }, devices] = await Promise.all([
    client.call("access/list", {}, { signal }),
    client.call("process/listShares", {}, { signal }),
    listDevices(signal),
  ]);
  const own = devices.find(({ isCurrent }) => isCurrent);
  const rows = accesses.map((access): AccessRow => {
    const { accessId, principal, peer, device, sinceMs, expiresAtMs = null } = access;
    const isConsole = access.kind === "console";
    const isOwnBrowser = isConsole && own?.signedInAtMs === sinceMs && own.device === device;
    return {
      ...{ id: accessId, principal, sinceMs, expiresAtMs },
      kind: isConsole ? "Console session" : "Connection",
      from: isConsole ? deviceName(device) : peer,
      mark: access.isCurrent ? "this connection" : isOwnBrowser ? "this browser" : null,
      consequence: isConsole
        ? "The server signs the browser out and closes its connections."
        : "The server closes the connection. Its client does not reconnect, but a valid token admits new connections.",
      revoke: async () => (await client.call("access/revoke", { accessId }, { resend: "unsent" })).revoked,
    };
  });
  const links = shares.map(({ shareId, handle = "", role, createdAtMs, expiresAtMs, principal, connections }) => {
    return {
      ...{ id: shareId, principal, sinceMs: createdAtMs, expiresAtMs, handle, mark: null },
      kind: "Share link" as const,
      from: `${role === "driver" ? "watch and type" : "watch"}, ${formatQuantity(connections, "guest")}`,
      consequence: "The link stops working, and the server disconnects its guests.",
      revoke: () => client.revokeShare(handle, shareId),
    };
  });
  const isConsole = ({ kind }: AccessRow) => kind === "Console session";
  return [...rows.filter(isConsole), ...rows.filter((row) => !isConsole(row)), ...links];
}
