import { ipVersion } from "../../base/ip-address.ts";

/** Says what to do; the name that was asked for is not repeated, since anybody may have chosen it. */
export const FOREIGN_HOST =
  "address this server by an IP address, localhost, or a name that it was started with: `--allow-host NAME`";

/**
 * Whether a `Host` header names this server by an address, as localhost, or by a name it was given. Any other name is one
 * that somebody else can point here, to make a page of theirs read what this server answers.
 */
export function isOwnHost(host: string | undefined, names: ReadonlySet<string>): boolean {
  if (host === undefined) return false;
  const name = HOST.exec(host)
    ?.slice(1)
    .find((part) => part !== undefined);
  if (name === undefined) return false;
  const plain = name.toLowerCase().replace(/\.$/, "");
  return plain === "localhost" || names.has(plain) || ipVersion(name) !== 0;
}

/** An address in brackets or a name, and a port or none. */
const HOST = /^(?:\[([\da-fA-F:.]+)\]|([^:[\]]+))(?::\d{1,5})?$/;
