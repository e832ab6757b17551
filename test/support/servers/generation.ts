/** Returns an error without the server's generation, which differs for every server. */
export function withoutGeneration(message: string): string {
  return message.replace(/; this server is generation [0-9a-f]{8}-\d+, .*$/, "");
}
