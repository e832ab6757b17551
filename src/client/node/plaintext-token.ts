/** Throws if a token would be sent to another host without encryption. */
export function rejectPlaintextToken(url: string): void {
  // URL schemes ignore case.
  if (!/^ws:/i.test(url)) return;
  const { hostname, host } = new URL(url);
  if (isLocalHost(hostname)) return;
  throw Object.assign(
    new Error(
      `cannot send a token to ${host} over plain ws://: the connection is not encrypted; use wss:// or ssh://, or allow it with \`--insecure-plain-token\` (insecurePlainToken)`,
    ),
    { code: "EPLAINTOKEN" },
  );
}

function isLocalHost(hostname: string): boolean {
  return (
    hostname === "localhost" ||
    hostname.endsWith(".localhost") ||
    hostname === "[::1]" ||
    /^127\.\d+\.\d+\.\d+$/.test(hostname)
  );
}
