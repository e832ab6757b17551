import { ipVersion } from "../../base/ip-address.ts";

/** The message does not repeat the requested host name, because an attacker may have chosen it. */
export const FOREIGN_HOST_MESSAGE =
  "address this server by an IP address, localhost, or a name that it was started with: `--allow-host NAME`";

/**
 * Reports whether a `Host` header names this server by IP address, as localhost, or by an allowed name. An attacker
 * can point any other DNS name at this server, so that a web page of the attacker reads its responses.
 */
export function isAllowedHost(host: string | undefined, names: ReadonlySet<string>): boolean {
  if (host === undefined) return false;
  const name = HOST.exec(host)
    ?.slice(1)
    .find((part) => part !== undefined);
  if (name === undefined) return false;
  const plain = name.toLowerCase().replace(/\.$/, "");
  return plain === "localhost" || names.has(plain) || ipVersion(name) !== 0;
}

/** Matches a bracketed address or a name, with an optional port. */
const HOST = /^(?:\[([\da-fA-F:.]+)\]|([^:[\]]+))(?::\d{1,5})?$/;
