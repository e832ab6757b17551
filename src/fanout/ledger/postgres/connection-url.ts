import net from "node:net";

/** What a client asks a server before anything else: whether it speaks TLS. */
const TLS_QUESTION = Buffer.from([0, 0, 0, 8, 0x04, 0xd2, 0x16, 0x2f]);
const TLS_YES = "S";
/** A server that says nothing for so long will not say it later. */
const PROBE_MS = 5_000;
const DEFAULT_PORT = 5432;

/**
 * The URL so that the driver takes `sslmode` as psql does: `require` encrypts and does not ask who it is, `verify-ca` and
 * `verify-full` do; without one, or with `prefer` or `allow`, the connection is encrypted where the server offers it.
 */
export async function connectionUrl(url: string): Promise<string> {
  const parsed = URL.parse(url);
  // Sockets of this machine and settings without a URL's form are as the driver has them.
  if (!parsed?.hostname || parsed.searchParams.has("host")) return url;
  const mode = parsed.searchParams.get("sslmode");
  if (mode === null || mode === "prefer" || mode === "allow") {
    const offersTls = await answersYes(
      parsed.hostname.replace(/^\[|\]$/g, ""),
      Number(parsed.port || DEFAULT_PORT),
    );
    // A server that cannot be asked now is told of by the first connection.
    if (offersTls === null) return url;
    parsed.searchParams.set("sslmode", offersTls ? "prefer" : "disable");
  }
  if (mode !== "disable" && mode !== "no-verify" && !parsed.searchParams.has("uselibpqcompat")) {
    parsed.searchParams.set("uselibpqcompat", "true");
  }
  return parsed.href;
}

/** Null: there was no answer. */
function answersYes(host: string, port: number): Promise<boolean | null> {
  return new Promise((resolve) => {
    const socket = net.connect({ host, port });
    const end = (answer: boolean | null) => {
      socket.destroy();
      resolve(answer);
    };
    socket.setTimeout(PROBE_MS, () => end(null));
    socket.on("error", () => end(null));
    socket.on("close", () => end(null));
    socket.once("connect", () => socket.write(TLS_QUESTION));
    socket.once("data", (chunk) => end(chunk.toString("latin1", 0, 1) === TLS_YES));
  });
}
