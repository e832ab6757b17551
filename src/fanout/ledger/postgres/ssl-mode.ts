import net from "node:net";

/** The SSLRequest message, which a client sends first to ask whether the server speaks TLS. */
const TLS_QUESTION = Buffer.from([0, 0, 0, 8, 0x04, 0xd2, 0x16, 0x2f]);
const TLS_YES = "S";
/** How long to wait for the server's answer. */
const PROBE_MS = 5_000;
const DEFAULT_PORT = 5432;

/**
 * Rewrites the URL so that the driver treats `sslmode` as psql does: `require` encrypts without verifying, `verify-ca` and
 * `verify-full` verify; without one, or with `prefer` or `allow`, the connection is encrypted where the server offers it.
 * Only the server can tell that: rejects when it cannot be reached.
 */
export async function connectionUrl(url: string): Promise<string> {
  const parsed = URL.parse(url);
  // Unix sockets, and connection strings that are not URLs, are left to the driver.
  if (!parsed?.hostname || parsed.searchParams.has("host")) return url;
  const mode = parsed.searchParams.get("sslmode");
  if (mode === null || mode === "prefer" || mode === "allow") {
    const offersTls = await answersYes(
      parsed.hostname.replace(/^\[|\]$/g, ""),
      Number(parsed.port || DEFAULT_PORT),
    );
    parsed.searchParams.set("sslmode", offersTls ? "prefer" : "disable");
  }
  if (mode !== "disable" && mode !== "no-verify" && !parsed.searchParams.has("uselibpqcompat")) {
    parsed.searchParams.set("uselibpqcompat", "true");
  }
  return parsed.href;
}

function answersYes(host: string, port: number): Promise<boolean> {
  return new Promise((resolve, reject) => {
    const socket = net.connect({ host, port });
    const fail = (error: Error) => {
      socket.destroy();
      reject(error);
    };
    socket.setTimeout(PROBE_MS, () => fail(unanswered("ETIMEDOUT", host, port)));
    socket.on("error", fail);
    socket.on("close", () => fail(unanswered("ECONNRESET", host, port)));
    socket.once("connect", () => socket.write(TLS_QUESTION));
    socket.once("data", (chunk) => {
      socket.destroy();
      resolve(chunk.toString("latin1", 0, 1) === TLS_YES);
    });
  });
}

/** As the system reports it for other connections. */
function unanswered(code: string, host: string, port: number): Error {
  return Object.assign(new Error(`no answer ${code} ${host}:${port}`), { code });
}
