import net from "node:net";

/** The SSLRequest message, by which a client asks whether the server supports TLS. */
const SSL_REQUEST = Buffer.from([0, 0, 0, 8, 0x04, 0xd2, 0x16, 0x2f]);
const TLS_SUPPORTED = "S";
/** Timeout of the server's response. */
const PROBE_TIMEOUT_MS = 5_000;
const DEFAULT_PORT = 5432;

/**
 * Rewrites the URL so that the driver treats `sslmode` like psql: `require` encrypts without verification, `verify-ca`
 * and `verify-full` verify. Without `sslmode`, or with `prefer` or `allow`, the connection is encrypted if the server
 * supports it. Only the server knows that, so the call rejects if the server is unreachable.
 */
export async function connectionUrl(url: string): Promise<string> {
  const parsed = URL.parse(url);
  // The driver handles Unix sockets and connection strings that are not URLs.
  if (!parsed?.hostname || parsed.searchParams.has("host")) return url;
  const mode = parsed.searchParams.get("sslmode");
  if (mode === null || mode === "prefer" || mode === "allow") {
    const offersTls = await supportsTls(parsed.hostname.replace(/^\[|\]$/g, ""), Number(parsed.port || DEFAULT_PORT));
    parsed.searchParams.set("sslmode", offersTls ? "prefer" : "disable");
  }
  if (mode !== "disable" && mode !== "no-verify" && !parsed.searchParams.has("uselibpqcompat")) {
    parsed.searchParams.set("uselibpqcompat", "true");
  }
  return parsed.href;
}

function supportsTls(host: string, port: number): Promise<boolean> {
  return new Promise((resolve, reject) => {
    const socket = net.connect({ host, port });
    const fail = (error: Error) => {
      socket.destroy();
      reject(error);
    };
    socket.setTimeout(PROBE_TIMEOUT_MS, () => fail(noAnswerError("ETIMEDOUT", host, port)));
    socket.on("error", fail);
    socket.on("close", () => fail(noAnswerError("ECONNRESET", host, port)));
    socket.once("connect", () => socket.write(SSL_REQUEST));
    socket.once("data", (chunk) => {
      socket.destroy();
      resolve(chunk.toString("latin1", 0, 1) === TLS_SUPPORTED);
    });
  });
}

/** Returns an error in the format of the system. */
function noAnswerError(code: string, host: string, port: number): Error {
  return Object.assign(new Error(`no answer ${code} ${host}:${port}`), { code });
}
