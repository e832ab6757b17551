/** Returns a refusal without the server's generation, which every server generates at start. */
export function withoutGeneration(message: string): string {
  return message.replace(/; this server is generation [0-9a-f]{8}-\d+, .*$/, "");
}
