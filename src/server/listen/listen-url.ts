import { bracketHost, ipVersion } from "../../base/ip-address.ts";
import { checkArgument, text } from "../../exec/options/option-schema.ts";

/** The address that a server listens on. */
export type ExecServerTransport =
  | { type: "stdio" }
  | { type: "websocket"; host: string; port: number }
  | { type: "unix"; path: string };

/** Transport if none is given, as in Codex and v0. */
export const DEFAULT_LISTEN_URL = "stdio://";

/** Reports an invalid `--listen` URL. The message lists the valid forms. */
export class ListenUrlError extends Error {
  override readonly name = "ListenUrlError";
  readonly kind: "unsupported" | "invalidWebSocket" | "invalidUnix";

  constructor(kind: ListenUrlError["kind"], url: string) {
    super(
      kind === "unsupported"
        ? `unsupported --listen URL \`${url}\`; expected \`stdio://\`, \`unix://PATH\` or \`ws://IP:PORT\``
        : kind === "invalidWebSocket"
          ? `invalid websocket --listen URL \`${url}\`; expected \`ws://IP:PORT\``
          : `invalid unix --listen URL \`${url}\`; expected \`unix://PATH\` with an absolute path of at most ${MAX_UNIX_PATH_BYTES} bytes`,
    );
    this.kind = kind;
  }
}

/** Maximum length of a unix socket path on Linux, without the final NUL. */
const MAX_UNIX_PATH_BYTES = 107;

export const ExecServerTransport = {
  DEFAULT_LISTEN_URL,

  /** Parses a listen URL. Throws a ListenUrlError if it is invalid. */
  fromListenUrl(url: string): ExecServerTransport {
    checkArgument("fromListenUrl", "url", url, text);
    if (url === DEFAULT_LISTEN_URL || url === "stdio") return { type: "stdio" };
    if (url.startsWith("ws://")) return webSocketTransport(url);
    if (url.startsWith("unix://")) {
      const path = url.slice("unix://".length);
      if (!path.startsWith("/") || Buffer.byteLength(path) > MAX_UNIX_PATH_BYTES || path.includes("\0")) {
        throw new ListenUrlError("invalidUnix", url);
      }
      return { type: "unix", path };
    }
    throw new ListenUrlError("unsupported", url);
  },

  /** Returns the URL that a client connects to. */
  toUrl(transport: ExecServerTransport): string {
    switch (transport.type) {
      case "stdio":
        return DEFAULT_LISTEN_URL;
      case "unix":
        return `unix://${transport.path}`;
      case "websocket":
        return `ws://${bracketHost(transport.host)}:${transport.port}`;
    }
  },
};

function webSocketTransport(url: string): ExecServerTransport {
  const match = /^(?:\[([^\]]+)\]|([^:[\]]+)):(\d{1,5})$/.exec(url.slice("ws://".length));
  const host = match?.[1] ?? match?.[2];
  const port = Number(match?.[3]);
  const family = match?.[1] !== undefined ? 6 : 4;
  if (host === undefined || ipVersion(host) !== family || port > 65535)
    throw new ListenUrlError("invalidWebSocket", url);
  return { type: "websocket", host, port };
}

export function isLoopback(host: string): boolean {
  return host === "::1" || host === "::ffff:127.0.0.1" || (ipVersion(host) === 4 && host.startsWith("127."));
}
