/** Throws where a token would go to another host in the clear. */
export function refusePlainToken(url: string): void {
  if (!url.startsWith("ws:")) return;
  const { hostname, host } = new URL(url);
  if (isThisHost(hostname)) return;
  throw Object.assign(
    new Error(
      `refusing to send a token to ${host} over plain ws://, where everybody on the way can read it; use wss:// or ssh://, or allow it with \`--insecure-plain-token\` (insecurePlainToken)`,
    ),
    { code: "EPLAINTOKEN" },
  );
}

function isThisHost(hostname: string): boolean {
  return (
    hostname === "localhost" ||
    hostname.endsWith(".localhost") ||
    hostname === "[::1]" ||
    /^127\.\d+\.\d+\.\d+$/.test(hostname)
  );
}
