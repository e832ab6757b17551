import type { ForwardAddress } from "../../forward/forward-address.ts";
import { UsageError } from "../usage-error.ts";

/** A forward: where to listen, and the target of the connections. */
export interface ForwardSpec {
  listen: ForwardAddress;
  target: ForwardAddress;
}

/** One field of a forward, as OpenSSH splits it: `[::1]`, a path, or text without a colon. */
const FIELD = /\[([^\]]*)\]|(\/[^:]*)|([^:[\]/]*)/y;
const LOOPBACK = "127.0.0.1";
const ANY_ADDRESS = "0.0.0.0";

type Field = { type: "path"; path: string } | { type: "text"; text: string };

/**
 * Parses a forward as OpenSSH writes it: `[BIND:]PORT:HOST:PORT`, where a path of a Unix socket can replace either side. `PORT`
 * alone forwards to the same port of localhost.
 */
export function parseForwardSpec(text: string, flag: string): ForwardSpec {
  const fields = splitFields(text);
  const spec = fields && toSpec(fields);
  if (!spec)
    throw new UsageError(
      `invalid ${flag} \`${text}\`; expected [BIND:]PORT[:HOST:PORT], with the path of a socket instead of either side`,
    );
  return spec;
}

/** Parses the address of a SOCKS5 proxy: `[BIND:]PORT`. */
export function parseDynamicSpec(text: string): ForwardAddress {
  const fields = splitFields(text);
  const listen = fields && (fields.length === 1 || fields.length === 2) ? toListener(fields) : null;
  if (!listen || "path" in listen) throw new UsageError(`invalid -D \`${text}\`; expected [BIND:]PORT`);
  return listen;
}

function toSpec(fields: readonly Field[]): ForwardSpec | null {
  const [first, ...others] = fields;
  const last = fields.at(-1);
  if (!first || !last) return null;
  if (fields.length === 1) {
    const listen = toListener(fields);
    if (!listen || "path" in listen || listen.port === 0) return null;
    return { listen, target: { host: "localhost", port: listen.port } };
  }
  // The target is one path, or the last two fields.
  const targetFields = last.type === "path" ? [last] : others.slice(-2);
  const listen = toListener(fields.slice(0, fields.length - targetFields.length));
  const target = toTarget(targetFields);
  return listen && target ? { listen, target } : null;
}

/** Returns the address of `PATH`, `PORT` or `BIND:PORT`. An empty or `*` BIND means all interfaces. */
function toListener([first, second, ...more]: readonly Field[]): ForwardAddress | null {
  if (!first || more.length > 0) return null;
  if (first.type === "path") return second ? null : { path: first.path };
  if (!second) return withPort(LOOPBACK, first);
  const bind = first.text === "localhost" ? LOOPBACK : first.text;
  return withPort(bind === "" || bind === "*" ? ANY_ADDRESS : bind, second);
}

function toTarget([first, second]: readonly Field[]): ForwardAddress | null {
  if (first?.type === "path") return second ? null : { path: first.path };
  if (!first || !second || first.text === "") return null;
  const address = withPort(first.text, second);
  return address && "port" in address && address.port > 0 ? address : null;
}

function withPort(host: string, field: Field): ForwardAddress | null {
  if (field.type === "path" || !/^\d{1,5}$/.test(field.text) || Number(field.text) > 65_535) return null;
  return { host, port: Number(field.text) };
}

/** Splits at colons, except within brackets. Returns null if the text has another form. */
function splitFields(text: string): Field[] | null {
  const fields: Field[] = [];
  for (let at = 0; ; ) {
    FIELD.lastIndex = at;
    const found = FIELD.exec(text);
    if (!found) return null;
    const [whole, bracketed, path, plain = ""] = found;
    fields.push(path === undefined ? { type: "text", text: bracketed ?? plain } : { type: "path", path });
    at += whole.length;
    if (at === text.length) return fields;
    if (text[at] !== ":") return null;
    at++;
  }
}
