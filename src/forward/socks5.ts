/** The server side of a SOCKS5 handshake (RFC 1928), as a parser without I/O: CONNECT only, no authentication. */

import { ipVersion } from "../base/ip-address.ts";

const VERSION = 5;
const NO_AUTHENTICATION = 0;
const NO_METHOD = 0xff;
const CONNECT = 1;
const ADDRESS_TYPE = { ipv4: 1, name: 3, ipv6: 4 } as const;

/** Reply codes of RFC 1928. */
export const SocksReply = {
  succeeded: 0,
  failed: 1,
  notAllowed: 2,
  networkUnreachable: 3,
  hostUnreachable: 4,
  refused: 5,
  commandUnsupported: 7,
  addressUnsupported: 8,
} as const;
export type SocksReplyCode = (typeof SocksReply)[keyof typeof SocksReply];

/** The result of the bytes so far. */
export type SocksStep =
  | { type: "incomplete" }
  /** Send `reply`, then parse the bytes after the first `consumed` ones as the request. */
  | { type: "greeted"; consumed: number; reply: Uint8Array }
  /** Connect to the target; the bytes after the first `consumed` ones are for the target. */
  | { type: "connect"; consumed: number; host: string; port: number }
  /** Send `reply`, which may be empty, and close the connection. */
  | { type: "rejected"; reply: Uint8Array; reason: string };

const INCOMPLETE: SocksStep = { type: "incomplete" };
const NOTHING = new Uint8Array(0);

/** Parses the first message of a client, at most 257 bytes: the authentication methods that it supports. */
export function parseGreeting(bytes: Uint8Array): SocksStep {
  const [version, count] = bytes;
  if (version === undefined) return INCOMPLETE;
  if (version !== VERSION) return { type: "rejected", reply: NOTHING, reason: "the client does not speak SOCKS5" };
  if (count === undefined || bytes.length < 2 + count) return INCOMPLETE;
  if (!bytes.subarray(2, 2 + count).includes(NO_AUTHENTICATION))
    return {
      type: "rejected",
      reply: Uint8Array.of(VERSION, NO_METHOD),
      reason: "the client requires authentication",
    };
  return { type: "greeted", consumed: 2 + count, reply: Uint8Array.of(VERSION, NO_AUTHENTICATION) };
}

/** Parses the request after the greeting, at most 262 bytes. */
export function parseRequest(bytes: Uint8Array): SocksStep {
  const [version, command, , addressType, nameLength] = bytes;
  if (version === undefined) return INCOMPLETE;
  if (version !== VERSION) return reject(SocksReply.failed, "the request is not SOCKS5");
  if (command === undefined) return INCOMPLETE;
  if (command !== CONNECT) return reject(SocksReply.commandUnsupported, `command ${command} is not supported`);
  if (addressType === undefined) return INCOMPLETE;
  const start = addressType === ADDRESS_TYPE.name ? 5 : 4;
  const length =
    addressType === ADDRESS_TYPE.ipv4
      ? 4
      : addressType === ADDRESS_TYPE.ipv6
        ? 16
        : addressType === ADDRESS_TYPE.name
          ? nameLength
          : null;
  if (length === null) return reject(SocksReply.addressUnsupported, `address type ${addressType} is not supported`);
  if (length === undefined || bytes.length < start + length + 2) return INCOMPLETE;
  const address = bytes.subarray(start, start + length);
  const host = formatHost(addressType, address);
  if (host === null) return reject(SocksReply.addressUnsupported, "the host name is invalid");
  const [high = 0, low = 0] = bytes.subarray(start + length);
  const port = high * 256 + low;
  if (port === 0) return reject(SocksReply.addressUnsupported, "the port is 0");
  return { type: "connect", consumed: start + length + 2, host, port };
}

/** Returns the reply to a request, by default with an unspecified address: clients of CONNECT do not need it. */
export function socksReply(
  code: SocksReplyCode,
  { localAddress = "", localPort = 0 }: { localAddress?: string | undefined; localPort?: number | undefined } = {},
): Uint8Array {
  const address = ipVersion(localAddress) === 4 ? localAddress.split(".").map(Number) : [0, 0, 0, 0];
  return Uint8Array.of(VERSION, code, 0, ADDRESS_TYPE.ipv4, ...address, localPort >> 8, localPort & 255);
}

function reject(code: SocksReplyCode, reason: string): SocksStep {
  return { type: "rejected", reply: socksReply(code), reason };
}

/** Returns null for a name that no resolver accepts. */
function formatHost(type: number, address: Uint8Array): string | null {
  if (type === ADDRESS_TYPE.ipv4) return address.join(".");
  if (type === ADDRESS_TYPE.ipv6) {
    const groups = Array.from({ length: 8 }, (_, at) => (address[2 * at] ?? 0) * 256 + (address[2 * at + 1] ?? 0));
    return groups.map((group) => group.toString(16)).join(":");
  }
  const name = String.fromCharCode(...address);
  return /^[\w.-]+$/.test(name) ? name : null;
}
